"""The order of strings, which TensorFlow has no operation for."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def order(a: Any, b: Any) -> Any:
    """How two columns of strings are ordered, row by row.

    By UTF-8 bytes, which is the order of code points. The bytes are laid out in a matrix, so
    memory grows with the longest string.

    Args:
        a: strings, shape (N,) or ().
        b: strings, shape (N,) or ().

    Returns:
        int32, shape (N,): negative where a comes first, 0 where they are equal, else positive.

    Example:
        >>> order(tf.constant(["a", "b"]), tf.constant("b")).numpy()
        array([-1,  0], dtype=int32)
    """
    shape = tf.broadcast_dynamic_shape(tf.shape(a), tf.shape(b))
    a, b = (tf.reshape(tf.broadcast_to(text, shape), [-1]) for text in (a, b))
    lengths = [tf.strings.length(text) for text in (a, b)]
    width = tf.maximum(tf.reduce_max(tf.concat(lengths, 0)), 1)
    bytes_a, bytes_b = (
        tf.cast(tf.io.decode_raw(text, tf.uint8, fixed_length=width), tf.int32) for text in (a, b)
    )
    difference = bytes_a - bytes_b
    first = tf.argmax(tf.not_equal(difference, 0), axis=1)
    found = tf.gather(difference, first, batch_dims=1)
    # Equal but for the zeros that fill up the shorter one: the shorter one comes first.
    return tf.reshape(tf.where(tf.equal(found, 0), tf.subtract(*lengths), found), shape)
