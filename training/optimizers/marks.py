"""Gradients of a table with each row once, without computing the number of rows."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

_BLOCK = 1024


def added_up(gradient: tf.IndexedSlices, height: int) -> tf.IndexedSlices:
    """The same gradient, with the sum for each row in one of the row's places.

    For a GPU. `tf.unique` returns the number of distinct rows, for which the host waits and sends
    no work meanwhile. Here all tensors have the size of the batch: unused places have zeros, and a
    row number beyond the table, which a GPU neither reads nor writes.

    Each place writes its number to its row of an array as long as the table; the place whose number
    remains is the one for that row. Earlier content of the array is never read. The array takes 8
    bytes for each row of the table during the update.

    Args:
        gradient: gradient of a table; rows outside the table are dropped.
        height: number of rows of the table.
    """
    rows = tf.cast(gradient.indices, tf.int64)
    numbers = _numbers(tf.shape(rows)[0])
    marks = tf.raw_ops.Empty(shape=[height], dtype=tf.float64)
    marks = tf.tensor_scatter_nd_update(marks, rows[:, tf.newaxis], numbers)
    in_table = tf.logical_and(rows >= 0, rows < height)
    places = tf.where(in_table, tf.gather(marks, rows), -1)
    values = tf.math.unsorted_segment_sum(
        gradient.values, tf.cast(places, tf.int64), tf.shape(rows)[0]
    )
    rows = tf.where(tf.equal(places, numbers), rows, height)
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def _numbers(count: tf.Tensor) -> tf.Tensor:
    """0, 1, 2, ..., computed on the GPU: a range would come from the host. Exact up to 2 ** 53.

    TensorFlow computes a running sum in one block of threads, so only blocks use one.
    """
    blocks = tf.ones([-(-count // _BLOCK)], tf.float64)
    firsts = tf.cumsum(blocks, exclusive=True) * _BLOCK
    inside = tf.constant(np.arange(_BLOCK, dtype="float64"))
    return tf.reshape(firsts[:, tf.newaxis] + inside, [-1])[:count]
