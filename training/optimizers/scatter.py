"""Writing rows of a variable."""

from __future__ import annotations

import tensorflow as tf

# XLA compiles for a fixed number of rows, and a batch of lists has another number each time.
CHUNK = 16_384


def add(variable: tf.Variable, rows: tf.Tensor, values: tf.Tensor, scale: tf.Tensor) -> None:
    """Adds `scale * values` to rows of a variable; what repeated rows get adds up.

    TensorFlow's kernel for a CPU takes a lock for every row, of few for a whole table, so threads
    wait for each other where hot rows are close together. XLA's loop has no locks, and is many
    times as fast on one thread. On a GPU TensorFlow's is the fast one.

    Args:
        variable: of shape (all rows, ...).
        rows: (n,), integers.
        values: (n, ...).
        scale: a scalar.
    """
    if "CPU" in variable.device:
        with tf.device(variable.device):
            _add_in_chunks(variable, rows, values, scale)
    else:
        variable.scatter_add(tf.IndexedSlices(scale * values, rows))


def put(variable: tf.Variable, rows: tf.Tensor, values: tf.Tensor) -> None:
    """Sets distinct rows of a variable."""
    variable.scatter_update(tf.IndexedSlices(values, rows))


def _add_in_chunks(
    variable: tf.Variable, rows: tf.Tensor, values: tf.Tensor, scale: tf.Tensor
) -> None:
    count = tf.shape(rows)[0]
    whole = count - count % CHUNK

    def step(start: tf.Tensor) -> list[tf.Tensor]:
        part = slice(start, start + CHUNK)
        _add_chunk(variable, rows[part], values[part], scale)
        return [start + CHUNK]

    tf.while_loop(lambda start: start < whole, step, [tf.constant(0)], parallel_iterations=1)
    missing = [[0, whole + CHUNK - count]]
    # Rows that do not exist are left out.
    rest = tf.pad(rows[whole:], missing, constant_values=variable.shape[0])
    padding = missing + [[0, 0]] * (len(variable.shape) - 1)
    _add_chunk(variable, rest, tf.pad(values[whole:], padding), scale)


def _add_chunk(variable: tf.Variable, rows: tf.Tensor, values: tf.Tensor, scale: tf.Tensor) -> None:
    rows = tf.ensure_shape(rows, [CHUNK])
    values = tf.ensure_shape(values, [CHUNK, *variable.shape[1:]])
    _add_compiled(variable.handle, rows, values, scale)


@tf.function(jit_compile=True, autograph=False)
def _add_compiled(handle: tf.Tensor, rows: tf.Tensor, values: tf.Tensor, scale: tf.Tensor) -> None:
    # A handle: of a variable TensorFlow takes the function to be unusable once that one is gone.
    tf.raw_ops.ResourceScatterAdd(resource=handle, indices=rows, updates=scale * values)
