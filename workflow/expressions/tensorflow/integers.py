"""Arithmetic of integers in TensorFlow: division, the hash and fingerprints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from workflow.expressions.language.fingerprints import CAT_MULTIPLIER, SHIFT
from workflow.expressions.language.hashing import MULTIPLIERS, SHIFTS, seed_offset
from workflow.expressions.language.types import Type
from workflow.expressions.program.program import Step

from .column import Function, TensorColumn
from .guard import guarded
from .strings import string_bits


def whole_division(verb: str) -> Callable[[Step, Sequence[Type]], Function]:
    """The functions for `floor_divide` and `modulo` steps."""
    divide = _floor_divide if verb == "floor_divide" else _modulo

    def prepare(step: Step, types: Sequence[Type]) -> Function:
        # Of several columns' divisors all have its sign.
        divisor = types[1].value

        def apply(a: TensorColumn, b: TensorColumn) -> TensorColumn:
            x, y = (tf.cast(c.values, step.type.dtype) for c in (a, b))
            masks = [c.valid for c in (a, b) if c.valid is not None]
            if not divisor:
                nonzero = tf.not_equal(y, tf.zeros([], y.dtype))
                masks.append(nonzero)
                y = tf.where(nonzero, y, tf.ones([], y.dtype))
            values = divide(x, y, may_overflow=divisor is None or divisor < 0)
            valid = None
            for mask in masks:
                valid = mask if valid is None else tf.logical_and(valid, mask)
            if valid is not None:
                valid = tf.broadcast_to(valid, tf.shape(values))
            return TensorColumn(values, valid, a.lengths if a.is_list else b.lengths)

        return apply

    return prepare


def _floor_divide(x: Any, y: Any, *, may_overflow: bool) -> Any:
    if y.dtype.is_unsigned or not may_overflow:
        return tf.math.floordiv(x, y)
    # The least integer divided by -1 overflows its type, and aborts the process.
    minus, one = tf.equal(y, tf.constant(-1, y.dtype)), tf.ones([], y.dtype)
    return tf.where(minus, tf.negative(x), tf.math.floordiv(x, tf.where(minus, one, y)))


def _modulo(x: Any, y: Any, *, may_overflow: bool) -> Any:
    if y.dtype.is_unsigned or not may_overflow:
        return tf.math.floormod(x, y)
    one = tf.ones([], y.dtype)
    return tf.math.floormod(x, tf.where(tf.equal(y, tf.constant(-1, y.dtype)), one, y))


def hash_value(step: Step, types: Sequence[Type]) -> Function:
    """The function for a hash step."""
    offset, is_text = seed_offset(step.parameters["seed"]), types[0].kind == "string"

    def apply(column: TensorColumn) -> TensorColumn:
        bits = string_bits(column.values) if is_text else _integer_bits(column.values)
        bits += tf.constant(offset, tf.uint64)
        for shift, multiplier in zip(SHIFTS, (*MULTIPLIERS, None), strict=True):
            bits = tf.bitwise.bitwise_xor(bits, _shifted(bits, shift))
            # Grappler cannot merge two constants if one is guarded.
            factor = None if multiplier is None else guarded(tf.constant(multiplier, tf.uint64))
            bits = bits if factor is None else bits * factor
        return TensorColumn(tf.cast(_shifted(bits, 1), tf.int64), column.valid, column.lengths)

    return apply


def fingerprint(_: Step, types: Sequence[Type]) -> Function:
    """The function for a `fingerprint64` step."""
    is_text = types[0].kind == "string"

    def apply(column: TensorColumn) -> TensorColumn:
        # Of the rows of a matrix TensorFlow makes one fingerprint each.
        flat = tf.reshape(column.values, [-1])
        texts = flat if is_text else tf.strings.as_string(flat)
        bits = tf.bitcast(tf.fingerprint(texts), tf.uint64)
        values = tf.reshape(bits, tf.shape(column.values))
        return TensorColumn(values, column.valid, column.lengths)

    return apply


def concatenated(a: Any, b: Any) -> Any:
    """The formula of `fingerprints.concatenate` for two tensors of integers."""
    first, second = _integer_bits(a), _integer_bits(b)
    # Grappler cannot merge two constants if one is guarded.
    factor = guarded(tf.constant(CAT_MULTIPLIER, tf.uint64))

    def mixed(bits: Any) -> Any:
        return tf.bitwise.bitwise_xor(bits, _shifted(bits, SHIFT))

    both = tf.bitwise.bitwise_xor(
        tf.bitwise.bitwise_xor(first, factor), mixed(second * factor) * factor
    )
    return mixed(mixed(both * factor) * factor)


def _shifted(bits: Any, places: int) -> Any:
    return tf.bitwise.right_shift(bits, tf.constant(places, tf.uint64))


def _integer_bits(values: Any) -> Any:
    if values.dtype == tf.uint64:
        return values
    return tf.bitcast(tf.cast(values, tf.int64), tf.uint64)
