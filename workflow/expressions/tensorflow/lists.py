"""Verbs over whole lists, in TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from workflow.expressions.language.types import Type
from workflow.expressions.program.program import Step

from .column import Function, TensorColumn


def list_length(*_: Any) -> Function:
    """The function for a `list_length` step."""
    return lambda a: TensorColumn(a.lengths)


def list_slice(step: Step, _: Sequence[Type]) -> Function:
    """The function for a `list_slice` step."""
    start, end = step.parameters["start"], step.parameters["end"]

    def apply(a: TensorColumn) -> TensorColumn:
        begins = _place(start, a.lengths)
        ends = tf.maximum(begins, a.lengths if end is None else _place(end, a.lengths))
        first = tf.cumsum(a.lengths, exclusive=True)
        one = tf.ones([], tf.int64)
        elements = tf.raw_ops.RaggedRange(
            starts=first + begins, limits=first + ends, deltas=one, Tsplits=tf.int64
        ).rt_dense_values
        return _take(a.values, a.valid, elements, ends - begins)

    return apply


def _place(bound: int, size: Any) -> Any:
    """Position of a slice's bound in lists of these lengths."""
    number = tf.constant(bound, tf.int64)
    if bound < 0:
        return tf.maximum(size + number, tf.zeros([], tf.int64))
    return tf.minimum(size, number)


def repeat_as(*_: Any) -> Function:
    """The function for a `repeat_as` step."""

    def apply(a: TensorColumn, lists: TensorColumn) -> TensorColumn:
        ends = tf.cumsum(lists.lengths)
        place = tf.range(tf.reduce_sum(lists.lengths))
        # The row of each element: the number of rows that end at or before it. tf.repeat pads.
        rows = tf.raw_ops.UpperBound(
            sorted_inputs=ends[tf.newaxis], values=place[tf.newaxis], out_type=tf.int64
        )
        return _take(a.values, a.valid, rows[0], lists.lengths)

    return apply


def list_pad(step: Step, _: Sequence[Type]) -> Function:
    """The function for a `list_pad` step."""
    dtype, length = step.type.dtype, step.parameters["length"]

    def apply(a: TensorColumn, padding: TensorColumn) -> TensorColumn:
        # One more element, for positions beyond the end of a list.
        more = tf.reshape(tf.cast(padding.values, dtype), [1])
        values = tf.concat([tf.cast(a.values, dtype), more], 0)
        valid = None if a.valid is None else tf.concat([a.valid, [True]], 0)
        within = tf.range(length, dtype=tf.int64)
        places = tf.cumsum(a.lengths, exclusive=True)[:, tf.newaxis] + within
        inside = tf.less(within, a.lengths[:, tf.newaxis])
        elements = tf.where(inside, places, tf.size(a.values, tf.int64))
        lengths = tf.fill(tf.shape(a.lengths), tf.constant(length, tf.int64))
        return _take(values, valid, tf.reshape(elements, [-1]), lengths)

    return apply


def _take(values: Any, valid: Any, elements: Any, lengths: Any) -> TensorColumn:
    mask = None if valid is None else tf.gather(valid, elements)
    return TensorColumn(tf.gather(values, elements), mask, lengths)
