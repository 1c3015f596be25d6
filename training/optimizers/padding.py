"""Tensors of few lengths, since XLA compiles for a length and each batch of lists has another."""

from __future__ import annotations

import math

import tensorflow as tf

_LEAST = 1024
_ROUND = 4096


def capacity(count: tf.Tensor) -> tf.Tensor:
    """A length for `count` rows and at most a quarter more: four lengths from n to 2n.

    Round counts stay, so that nothing is copied: single ids of a round batch have the same number
    each time.

    Args:
        count: int32, a scalar.

    Example:
        >>> [int(capacity(tf.constant(count))) for count in (0, 1024, 9000, 9300, 26 * 16_384)]
        [1024, 1024, 10240, 10240, 425984]
    """
    least = tf.maximum(count, _LEAST)
    # A logarithm that is a little off makes another length of it, which holds them as well.
    power = tf.cast(tf.math.log(tf.cast(least, tf.float64)) / math.log(2), tf.int32)
    part = tf.bitwise.left_shift(1, power - 2)
    is_round = tf.logical_and(count > 0, count % _ROUND == 0)
    return tf.where(is_round, count, (least + part - 1) // part * part)


def padded(tensor: tf.Tensor, size: tf.Tensor, value: int | tf.Tensor = 0) -> tf.Tensor:
    """A tensor (n, ...) and rows of a value behind it: (size, ...)."""
    missing = [[0, size - tf.shape(tensor)[0]]] + [[0, 0]] * (len(tensor.shape) - 1)
    return tf.pad(tensor, missing, constant_values=value)
