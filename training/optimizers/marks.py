"""Gradients of a table with each row once, without knowing how many rows there are."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

_BLOCK = 1024


def added_up(gradient: tf.IndexedSlices, height: int) -> tf.IndexedSlices:
    """The same gradient, with all that a row gets in one of its places.

    For a GPU. `tf.unique` tells the number of distinct rows, which the host has to wait for, and
    meanwhile it sends no work. Here everything has the size of the batch: the places that are left
    over have zeros, and a row beyond the table, which a GPU neither reads nor writes.

    Each place writes its number to its row of an array as long as the table, and where it finds it
    there again it is the one place of that row. What was in the array before is never read. It
    takes 8 bytes for each row of the table, while the update lasts.

    Args:
        gradient: of a table; rows that it does not have are left out.
        height: the number of its rows.
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
    """From 0 on, made on the GPU: a range comes from the host. They are exact up to 2 ** 53.

    Running sums, which TensorFlow computes in one block of threads, are of the blocks alone.
    """
    blocks = tf.ones([-(-count // _BLOCK)], tf.float64)
    firsts = tf.cumsum(blocks, exclusive=True) * _BLOCK
    inside = tf.constant(np.arange(_BLOCK, dtype="float64"))
    return tf.reshape(firsts[:, tf.newaxis] + inside, [-1])[:count]
