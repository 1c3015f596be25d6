"""Lengths to which tensors are padded before they are exchanged."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

# Rows are padded to one of these many lengths between two powers of two. More lengths would need more
# numbers of operations; with fewer, more than 3 % would be padding.
_LENGTHS = 32
# Numbers of operations, one for each length.
NUMBERS = 32 * _LENGTHS


def common_length(count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """A length of at least `count`, and its number among all of them.

    Args:
        count: int32, a scalar.

    Example:
        >>> for count in (0, 5, 1024, 1025, 26 * 65_536):
        ...     print(*map(int, common_length(tf.constant(count))))
        32 160
        32 160
        1024 320
        1056 321
        1703936 660
    """
    count = tf.maximum(count, _LENGTHS)
    # A rounding error of the logarithm selects the neighbouring power, and the same length.
    power = tf.cast(tf.math.log(tf.cast(count, tf.float64)) / math.log(2), tf.int32)
    least = tf.bitwise.left_shift(1, power)
    step = least // _LENGTHS
    steps = (count - least + step - 1) // step
    return least + steps * step, power * _LENGTHS + steps


def row_counts(tensors: Sequence[tf.Tensor], host: str) -> tf.Tensor:
    """The number of rows of each tensor, int32 (tensors,), on the host.

    Taken where the tensors are, since they would be copied to the host, and joined by `concat`: a
    `stack` of one becomes an operation with a constant, which waits for the GPU by a control edge.

    Args:
        tensors: at least one.
        host: its device.
    """
    counts = [tf.shape(tensor)[:1] for tensor in tensors]
    with tf.device(host):
        return tf.concat(counts, axis=0)


def lengthened(tensor: tf.Tensor, length: tf.Tensor, value: int | tf.Tensor = 0) -> tf.Tensor:
    """A tensor (n, ...) with a value behind it: (length, ...)."""
    missing = [length - tf.shape(tensor)[0], *tensor.shape[1:]]
    # TensorFlow pads integers on the host only.
    padding = tf.fill(missing, tf.cast(value, tensor.dtype))
    return tf.concat([tensor, padding], axis=0)


def dtype_of_rows(height: int) -> tf.DType:
    """The dtype in which numbers of a table's rows travel, and one that is beyond them."""
    return tf.int32 if height <= tf.int32.max else tf.int64


def zero_after(counts: tf.Tensor, host: str) -> tf.Tensor:
    """A zero on the GPU, (1,), that is there after the host has the counts.

    A control edge from the host to a GPU is sent behind all queued work, and the host waits until it
    has arrived. The shape of a tensor is read on the host.

    Args:
        counts: of rows, on the host, at least 0.
        host: its device.
    """
    with tf.device(host):
        shape = tf.maximum([1], -tf.reduce_max(counts))
    return tf.fill(shape, 0.0)
