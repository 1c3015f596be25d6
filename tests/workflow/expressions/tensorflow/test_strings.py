"""Operations on the bytes of strings, beside Python's: random programs seldom meet two that differ late."""

from itertools import product

import numpy as np
import tensorflow as tf

from workflow.expressions.language.hashing import BASE
from workflow.expressions.tensorflow.strings import order, string_bits

# Of one to four bytes a character, prefixes of each other, and longer than a span of 256 bytes.
TEXTS = [
    *("", "a", "b", "ab", "ac", "a\0", "\0", "z", "é", "ê", "\uffff", "😀"),
    *("x" * 255, "x" * 256, "x" * 257, "x" * 256 + "y", "é" * 300, "b" + "é" * 300),
]


def compared(a, b):
    return (a > b) - (a < b)


def test_strings_are_ordered_by_their_code_points():
    first, second = zip(*product(TEXTS, TEXTS), strict=True)
    result = np.sign(order(tf.constant(first), tf.constant(second)))
    assert result.tolist() == [*map(compared, first, second)]
    for text in TEXTS:
        result = np.sign(order(tf.constant(text), tf.constant(TEXTS)))
        assert result.tolist() == [compared(text, other) for other in TEXTS]
        result = np.sign(order(tf.constant(TEXTS), tf.constant(text)))
        assert result.tolist() == [compared(other, text) for other in TEXTS]
    assert order(tf.constant("b"), tf.constant("a")).numpy() > 0
    assert order(tf.constant([], tf.string), tf.constant("a")).shape == (0,)


def test_the_bits_of_a_string_are_its_length_and_its_bytes_times_powers():
    expected = [
        (len(text) + sum(byte * BASE**place for place, byte in enumerate(text, 1))) % 2**64
        for text in map(str.encode, TEXTS)
    ]
    assert string_bits(tf.constant(TEXTS)).numpy().tolist() == expected
    assert string_bits(tf.constant(TEXTS)[:, None]).numpy().ravel().tolist() == expected
