"""Gradients of a table with each row once."""

from __future__ import annotations

import keras
import tensorflow as tf

from training.gpu import has_gpu
from training.optimizers.marks import added_up
from training.optimizers.padding import capacity, padded

# Marking this many rows of a table takes as long as one look-up in a hash table for a row of the
# batch; halved, since marks need memory too.
_MARKED = 64
# Fewer look-ups than this take less than a millisecond; XLA compiles for a third of a second.
_FEW = 16_384


def distinct_rows(
    gradient: tf.IndexedSlices, variable: keras.Variable | tf.Variable
) -> tf.IndexedSlices:
    """The same gradient with each row once; values of a repeated row are summed.

    On a CPU TensorFlow finds repeated rows by a hash table and calls a function for each row that
    is added, mostly on one thread. Loops over arrays, compiled by XLA, take a sixth of the time. On
    a GPU the result has unused places: see `added_up`.

    Args:
        gradient: gradient of a table.
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


def distinct_places(rows: tf.Tensor, height: int, device: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Each row once, and for each of the rows its place among them.

    On a GPU the host waits for the number of distinct rows.

    Args:
        rows: integers (n,).
        height: number of rows of the table.
        device: where to compute.
    """
    if "CPU" not in device or height >= tf.int32.max:
        distinct, places = tf.unique(tf.cast(rows, tf.int64))
        return distinct, places
    with tf.device(device):
        distinct, places, count = _found(tf.cast(rows, tf.int32), height)
        return distinct[:count], places[: tf.size(rows)]


def summed_by_place(values: tf.Tensor, places: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """The sums of values (n, width) by place (n,): (count, width)."""
    if has_gpu():
        return tf.math.unsorted_segment_sum(values, places, count)
    size = capacity(tf.size(places))
    rows = tf.zeros([capacity(count)])
    return _added_up(padded(values, size), padded(places, size, size), rows)[:count]


def _on_cpu(gradient: tf.IndexedSlices, height: int) -> tf.IndexedSlices:
    rows = tf.cast(gradient.indices, tf.int32)
    distinct, places, count = _found(rows, height)
    size = tf.size(distinct)
    head = distinct[: tf.minimum(capacity(count), size)]
    values = _added_up(padded(gradient.values, size), places, head)
    return tf.IndexedSlices(values[:count], distinct[:count], gradient.dense_shape)


def _found(rows: tf.Tensor, height: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The result of `_marked` for rows that are not padded yet."""
    size = capacity(tf.size(rows))
    return tf.cond(
        size > max(height // _MARKED, _FEW),
        lambda: _marked(padded(rows, size, height), height),
        lambda: _looked_up(rows, size, height),
    )


@tf.function(jit_compile=True, autograph=False)
def _marked(rows: tf.Tensor, height: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Find repeated rows by an array as long as the table.

    Args:
        rows: int32 (n,); entries equal to `height` are padding, and there is at least one.
        height: number of rows of the table.

    Returns:
        the distinct rows, then `height` as padding: (n,);
        the index of each row among them, or n for padding: (n,);
        the number of distinct rows.
    """
    size = tf.shape(rows)[0]
    numbers = tf.range(size)
    # Of a repeated row's positions one remains, the last.
    marks = tf.tensor_scatter_nd_update(tf.zeros([height], tf.int32), rows[:, tf.newaxis], numbers)
    last = tf.gather(marks, tf.minimum(rows, height - 1))
    order = tf.cumsum(tf.cast(last == numbers, tf.int32))
    places = tf.where(rows < height, tf.gather(order, last) - 1, size)
    distinct = tf.tensor_scatter_nd_update(tf.fill([size], height), places[:, tf.newaxis], rows)
    return distinct, places, order[-1]


def _looked_up(
    rows: tf.Tensor, size: tf.Tensor, height: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The result of `_marked` for rows that are not padded yet, by a hash table."""
    distinct, places = tf.unique(rows)
    return padded(distinct, size, height), padded(places, size, size), tf.size(distinct)


@tf.function(jit_compile=True, autograph=False)
def _added_up(values: tf.Tensor, places: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """The sums of values by place, as many as rows; places beyond them are dropped."""
    return tf.math.unsorted_segment_sum(values, places, tf.shape(rows)[0])
