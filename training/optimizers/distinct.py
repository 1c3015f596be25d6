"""Gradients of a table with each row once."""

from __future__ import annotations

import keras
import tensorflow as tf

from training.optimizers.marks import added_up
from training.optimizers.padding import capacity, padded

# So many rows of a table are marked in the time in which one of the batch is looked up in a hash
# table; half of it, since they need memory as well.
_MARKED = 64
# Looking so many up takes less than a millisecond, and XLA a third of a second to compile.
_FEW = 16_384


def distinct_rows(
    gradient: tf.IndexedSlices, variable: keras.Variable | tf.Variable
) -> tf.IndexedSlices:
    """The same gradient with each row once; what a repeated row gets adds up.

    On a CPU TensorFlow finds repeated rows by a hash table and calls a function for each row that
    is added, nearly all on one thread. Loops over arrays, compiled by XLA, take a sixth of that.
    On a GPU there are places left over: see `added_up`.

    Args:
        gradient: of a table.
        variable: the table, of Keras or TensorFlow.
    """
    table = variable.value if isinstance(variable, keras.Variable) else variable
    if "GPU" in table.device:
        return added_up(gradient, table.shape[0])
    if "CPU" not in table.device or table.shape[0] >= tf.int32.max:
        rows, places = tf.unique(gradient.indices)
        values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
        return tf.IndexedSlices(values, rows, gradient.dense_shape)
    with tf.device(table.device):
        return _on_cpu(gradient, table.shape[0])


def _on_cpu(gradient: tf.IndexedSlices, height: int) -> tf.IndexedSlices:
    rows = tf.cast(gradient.indices, tf.int32)
    size = capacity(tf.size(rows))
    padding = padded(rows, size, height)
    distinct, places, count = tf.cond(
        size > max(height // _MARKED, _FEW),
        lambda: _marked(padding, height),
        lambda: _looked_up(rows, size, height),
    )
    kept = distinct[: tf.minimum(capacity(count), size)]
    values = _added_up(padded(gradient.values, size), places, kept)
    return tf.IndexedSlices(values[:count], distinct[:count], gradient.dense_shape)


@tf.function(jit_compile=True, autograph=False)
def _marked(rows: tf.Tensor, height: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Finds repeated rows in an array as long as the table.

    Args:
        rows: int32 (n,); those that are `height` are none, but one at least is.
        height: of the table.

    Returns:
        the distinct rows, and `height` behind them: (n,);
        which of them each row is, or n: (n,);
        the number of distinct rows.
    """
    size = tf.shape(rows)[0]
    numbers = tf.range(size)
    # Of the places of a row one is left, the last.
    marks = tf.tensor_scatter_nd_update(tf.zeros([height], tf.int32), rows[:, tf.newaxis], numbers)
    last = tf.gather(marks, tf.minimum(rows, height - 1))
    order = tf.cumsum(tf.cast(last == numbers, tf.int32))
    places = tf.where(rows < height, tf.gather(order, last) - 1, size)
    distinct = tf.tensor_scatter_nd_update(tf.fill([size], height), places[:, tf.newaxis], rows)
    return distinct, places, order[-1]


def _looked_up(
    rows: tf.Tensor, size: tf.Tensor, height: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """As `_marked`, by a hash table, of rows that are yet to be padded."""
    distinct, places = tf.unique(rows)
    return padded(distinct, size, height), padded(places, size, size), tf.size(distinct)


@tf.function(jit_compile=True, autograph=False)
def _added_up(values: tf.Tensor, places: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """The sums of values by place, as many as rows; places beyond them are none."""
    return tf.math.unsorted_segment_sum(values, places, tf.shape(rows)[0])
