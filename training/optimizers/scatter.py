"""Writing rows of a variable."""

from __future__ import annotations

import tensorflow as tf

from training.optimizers.padding import capacity, padded


def add(variable: tf.Variable, rows: tf.Tensor, values: tf.Tensor, scale: tf.Tensor) -> None:
    """Add `scale * values` to rows of a variable; values of repeated rows are summed.

    TensorFlow's CPU kernel locks each row with one of few locks for a whole table, so threads wait
    for each other where frequent rows are close together. XLA's loop has no locks, and is many
    times as fast on one thread. On a GPU TensorFlow's kernel is the faster one.

    Args:
        variable: shape (all rows, ...).
        rows: (n,), integers.
        values: (n, ...).
        scale: a scalar.
    """
    if "CPU" in variable.device:
        with tf.device(variable.device):
            size = capacity(tf.shape(rows)[0])
            # Rows that do not exist are dropped.
            rows = padded(rows, size, variable.shape[0])
            # Scaled here in place: the compiled function would allocate memory for all values.
            add_compiled(variable.handle, rows, padded(scale * values, size))
    else:
        variable.scatter_add(tf.IndexedSlices(scale * values, rows))


def put(variable: tf.Variable, rows: tf.Tensor, values: tf.Tensor) -> None:
    """Set distinct rows of a variable."""
    variable.scatter_update(tf.IndexedSlices(values, rows))


@tf.function(jit_compile=True, autograph=False)
def add_compiled(handle: tf.Tensor, rows: tf.Tensor, values: tf.Tensor) -> None:
    """Add values to distinct rows of a variable, given by its handle."""
    # A handle: TensorFlow ties a function to the life of any variable that it is given.
    tf.raw_ops.ResourceScatterAdd(resource=handle, indices=rows, updates=values)
