"""Operations on the bytes of strings, which TensorFlow lacks.

The bytes of a column are one sequence, never a matrix as wide as the longest string: memory grows
with the number of bytes only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from workflow.expressions.language.hashing import BASE

# The power for position 256 * q + r is a product of two, so that no table is as long as the bytes.
_SPAN = 256
_MODULUS = 2**64
_INVERSE = pow(BASE, -1, _MODULUS)


def order(a: Any, b: Any) -> Any:
    """Order of two columns of strings, row by row.

    By UTF-8 bytes, which is the order of code points.

    Args:
        a: strings, shape (N,) or ().
        b: strings, shape (N,) or ().

    Returns:
        int32, shape (N,): negative if a comes first, 0 if they are equal, else positive.

    Example:
        >>> order(tf.constant(["a", "b"]), tf.constant("b")).numpy()
        array([-1,  0], dtype=int32)
    """
    shape = tf.broadcast_dynamic_shape(tf.shape(a), tf.shape(b))
    a, b = (tf.reshape(tf.broadcast_to(text, shape), [-1]) for text in (a, b))
    lengths_a, lengths_b = (tf.strings.length(text) for text in (a, b))
    common = tf.minimum(lengths_a, lengths_b)
    # Truncated to equal lengths, the two strings of a row have their bytes at the same positions.
    bytes_a, bytes_b = (
        _joined(tf.strings.substr(t, tf.zeros_like(common), common)) for t in (a, b)
    )
    places = tf.where(tf.not_equal(bytes_a, bytes_b))[:, 0]
    offsets = _offsets(common)
    first = tf.gather(tf.concat([places, offsets[-1:]], 0), tf.searchsorted(places, offsets[:-1]))
    # A zero follows the last byte, for strings without a difference.
    byte_a, byte_b = (
        tf.cast(tf.gather(tf.pad(codes, [[0, 1]]), first), tf.int32) for codes in (bytes_a, bytes_b)
    )
    # If one is a prefix of the other, the shorter one comes first.
    differs = tf.less(first, offsets[1:])
    return tf.reshape(tf.where(differs, byte_a - byte_b, lengths_a - lengths_b), shape)


def string_bits(texts: Any) -> Any:
    """The 64 bits of each string from which the hash is made.

    As `workflow.expressions.language.hashing` defines them: the length and the bytes, each times a
    power of the base. Sums wrap around, so the sum of a string's bytes is the difference of two
    running sums; and the base is odd, so a product with one of its powers can be inverted.

    Args:
        texts: strings of any shape.

    Returns:
        uint64, with the shape of `texts`.

    Example:
        >>> int(string_bits(tf.constant(["", "a"]))[0])
        0
    """
    flat = tf.reshape(texts, [-1])
    lengths, codes = tf.strings.length(flat), _joined(flat)
    offsets = _offsets(lengths)
    spans = offsets[-1] // _SPAN + 1
    codes = tf.pad(codes, [[0, spans * _SPAN - offsets[-1]]])
    products = tf.cast(tf.reshape(codes, [-1, _SPAN]), tf.uint64) * _powers(BASE, first=1)
    products *= _span_powers(BASE, spans)[:, None]
    sums = tf.gather(tf.cumsum(tf.reshape(products, [-1]), exclusive=True), offsets)
    # As if each string began at position 0.
    starts = offsets[:-1]
    bits = (sums[1:] - sums[:-1]) * tf.gather(_powers(_INVERSE), starts % _SPAN)
    bits *= tf.gather(_span_powers(_INVERSE, spans), starts // _SPAN)
    return tf.reshape(bits + tf.cast(lengths, tf.uint64), tf.shape(texts))


def _joined(texts: Any) -> Any:
    """The bytes of all strings in sequence; uint8."""
    return tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)


def _offsets(lengths: Any) -> Any:
    """Starts of the strings among all bytes, and the end of the last one; int64."""
    return tf.concat([[0], tf.cumsum(tf.cast(lengths, tf.int64))], 0)


def _powers(base: int, first: int = 0) -> Any:
    """The powers of a base for the positions within a span, from the power `first`."""
    powers = [pow(base, first + place, _MODULUS) for place in range(_SPAN)]
    # From a list with numbers from 2**63 on, TensorFlow would make floats first.
    return tf.constant(np.array(powers, np.uint64))


def _span_powers(base: int, spans: Any) -> Any:
    """The power of a base at the start of each span."""
    step = tf.constant(pow(base, _SPAN, _MODULUS), tf.uint64)
    return tf.math.cumprod(tf.fill([spans], step), exclusive=True)
