"""Tensors padded to few lengths: XLA compiles for each length, and lists have many."""

from __future__ import annotations

import math

import tensorflow as tf

_LEAST = 1024
_ROUND = 4096


@tf.function(autograph=False)
def capacity(count: tf.Tensor) -> tf.Tensor:
    """A length of at least `count`, and at most a quarter more: four lengths from n to 2n.

    Round counts are unchanged, so that nothing is copied: single ids of a batch of round size
    always have the same count.

    Args:
        count: int32, a scalar.

    Example:
        >>> [int(capacity(tf.constant(count))) for count in (0, 1024, 9000, 9300, 26 * 16_384)]
        [1024, 1024, 10240, 10240, 425984]
    """
    least = tf.maximum(count, _LEAST)
    # Rounding errors of the logarithm select another length, which is large enough as well.
    power = tf.cast(tf.math.log(tf.cast(least, tf.float64)) / math.log(2), tf.int32)
    part = tf.bitwise.left_shift(1, power - 2)
    is_round = tf.logical_and(count > 0, count % _ROUND == 0)
    return tf.where(is_round, count, (least + part - 1) // part * part)


def padded(tensor: tf.Tensor, size: tf.Tensor, value: int | tf.Tensor = 0) -> tf.Tensor:
    """A tensor (n, ...) padded with rows of a value: (size, ...)."""
    missing = [[0, size - tf.shape(tensor)[0]]] + [[0, 0]] * (len(tensor.shape) - 1)
    return tf.pad(tensor, missing, constant_values=value)
