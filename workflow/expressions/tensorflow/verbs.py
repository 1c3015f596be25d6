"""Each verb in TensorFlow. A new verb is one entry of `PREPARE`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import tensorflow as tf

from workflow.expressions.language.types import Type, promote, table_dtype
from workflow.expressions.language.verbs import of_every_verb
from workflow.expressions.numpy.verbs import bounds
from workflow.expressions.program.program import Step
from workflow.schema.column import Column
from workflow.schema.dtypes import DTYPES

from .column import Function, TensorColumn
from .gathers import gather
from .guard import guarded, guarded_arithmetic
from .integers import concatenated, fingerprint, hash_value, whole_division
from .lists import list_length, list_pad, list_slice, repeat_as
from .lookups import lookup
from .strings import order

Prepare = Callable[[Step, Sequence[Type]], Function]


def tensor_dtype(dtype: str) -> Any:
    """The TensorFlow type of a dtype, which has the same name."""
    return tf.dtypes.as_dtype(dtype)


def _valid(columns: Sequence[TensorColumn]) -> Any:
    masks = [c.valid for c in columns if c.valid is not None]
    return reduce(tf.logical_and, masks) if masks else None


def _lengths(columns: Sequence[TensorColumn]) -> Any:
    return next((c.lengths for c in columns if c.lengths is not None), None)


def elementwise(function: Callable[..., Any], dtype: str | None) -> Function:
    """Apply a function to values of one dtype; a null operand makes a null result."""

    def apply(*columns: TensorColumn) -> TensorColumn:
        values = [c.values if dtype is None else tf.cast(c.values, dtype) for c in columns]
        return TensorColumn(function(*values), _valid(columns), _lengths(columns))

    return apply


def _arithmetic(function: Callable[..., Any]) -> Prepare:
    return lambda step, types: elementwise(
        lambda *values: function(*map(guarded_arithmetic, values)), promote(step.verb, types)
    )


def _real(function: Callable[..., Any]) -> Prepare:
    return lambda step, _: elementwise(
        lambda *values: function(*map(guarded_arithmetic, values)), step.type.dtype
    )


def _transcendental(function: Callable[..., Any]) -> Prepare:
    """Computed in float64 and rounded once: libraries differ by several ulp in float32."""
    return lambda step, _: elementwise(
        lambda *values: tf.cast(function(*map(guarded_arithmetic, values)), step.type.dtype),
        "float64",
    )


def _divide(a: Any, b: Any) -> Any:
    return tf.raw_ops.RealDiv(x=a, y=b)


def _negate(value: Any) -> Any:
    # TensorFlow cannot negate unsigned integers; numpy wraps around.
    if value.dtype.is_unsigned:
        return guarded(tf.zeros([], value.dtype)) - value
    return tf.negative(value)


def _absolute(value: Any) -> Any:
    return value if value.dtype.is_unsigned else tf.abs(value)


def _comparison(function: Callable[..., Any]) -> Prepare:
    return lambda step, types: elementwise(function, promote(step.verb, types))


def _ordering(function: Callable[..., Any]) -> Prepare:
    def prepare(step: Step, types: Sequence[Type]) -> Function:
        dtype = promote(step.verb, types)
        if dtype == "string":
            return elementwise(lambda a, b: function(order(a, b), 0), None)
        return elementwise(function, "uint8" if dtype == "bool" else dtype)

    return prepare


def _logical(stops: bool) -> Prepare:
    """Kleene's `and` (an operand that is False decides) and `or` (one that is True decides)."""
    function = tf.logical_or if stops else tf.logical_and

    def known(column: TensorColumn) -> Any:
        """The values, with nulls replaced by the value that does not decide."""
        if column.valid is None:
            return column.values
        return tf.where(column.valid, column.values, not stops)

    def apply(a: TensorColumn, b: TensorColumn) -> TensorColumn:
        values, valid = [known(a), known(b)], _valid([a, b])
        if valid is not None:
            decided = [tf.equal(value, stops) for value in values]
            valid = reduce(tf.logical_or, [valid, *decided])
        return TensorColumn(function(*values), valid, _lengths([a, b]))

    return lambda *_: apply


def _is_null(*_: Any) -> Function:
    def apply(a: TensorColumn) -> TensorColumn:
        if a.valid is None:
            return TensorColumn(guarded(tf.zeros(tf.shape(a.values), tf.bool)), None, a.lengths)
        return TensorColumn(tf.logical_not(a.valid), None, a.lengths)

    return apply


def _fill_null(step: Step, _: Sequence[Type]) -> Function:
    dtype = step.type.dtype

    def apply(a: TensorColumn, b: TensorColumn) -> TensorColumn:
        values, lengths = tf.cast(a.values, dtype), _lengths([a, b])
        if a.valid is None:
            return TensorColumn(values, None, lengths)
        values = tf.where(a.valid, values, tf.cast(b.values, dtype))
        valid = None if b.valid is None else tf.logical_or(a.valid, b.valid)
        return TensorColumn(values, valid, lengths)

    return apply


def _where(step: Step, _: Sequence[Type]) -> Function:
    dtype = step.type.dtype

    def apply(condition: TensorColumn, a: TensorColumn, b: TensorColumn) -> TensorColumn:
        values = tf.where(condition.values, tf.cast(a.values, dtype), tf.cast(b.values, dtype))
        valid = condition.valid
        if a.valid is not None or b.valid is not None:
            masks = [True if c.valid is None else c.valid for c in (a, b)]
            chosen = tf.where(condition.values, *masks)
            valid = chosen if valid is None else tf.logical_and(valid, chosen)
        return TensorColumn(values, valid, _lengths([condition, a, b]))

    return apply


def _cast(step: Step, types: Sequence[Type]) -> Function:
    have, want = DTYPES[types[0].dtype], DTYPES[step.type.dtype]
    if want.kind == "bool":
        return elementwise(_truth, None)
    if not want.is_integer or have.kind == "bool" or np.can_cast(have.numpy, want.numpy):
        return elementwise(lambda a: a, want.name)
    limits = np.iinfo(want.numpy)
    if not have.is_integer:
        return elementwise(lambda a: _saturate(a, limits), None)
    input_limits = np.iinfo(have.numpy)
    lower, upper = max(limits.min, input_limits.min), min(limits.max, input_limits.max)
    return elementwise(lambda a: tf.cast(_bounded(a, lower, upper), want.name), None)


def _truth(values: Any) -> Any:
    if values.dtype == tf.bool:
        return values
    truth = tf.not_equal(values, tf.zeros([], values.dtype))
    if values.dtype.is_floating:
        truth = tf.logical_and(truth, tf.logical_not(tf.math.is_nan(values)))
    return truth


def _saturate(values: Any, limits: np.iinfo[Any]) -> Any:
    """Floats as integers; a float cannot hold the largest int64, so that limit is treated separately."""
    top = tf.greater_equal(values, tf.constant(float(limits.max), values.dtype))
    outside = tf.logical_or(top, tf.math.is_nan(values))
    inside = tf.where(outside, tf.zeros([], values.dtype), values)
    whole = tf.cast(_bounded(inside, float(limits.min), None), limits.dtype.name)
    return tf.where(top, tf.constant(limits.max, limits.dtype.name), whole)


def _bounded(values: Any, lower: float | None, upper: float | None) -> Any:
    if lower is not None:
        values = tf.maximum(values, tf.constant(lower, values.dtype))
    return values if upper is None else tf.minimum(values, tf.constant(upper, values.dtype))


def _clip(step: Step, _: Sequence[Type]) -> Function:
    lower, upper = bounds(step)
    return elementwise(lambda values: _bounded(values, lower, upper), None)


def _bucketize(step: Step, types: Sequence[Type]) -> Function:
    boundaries: Column = step.parameters["boundaries"]
    dtype = promote("bucketize", [types[0], Type(table_dtype(boundaries).name)])
    edges = boundaries.array.astype(DTYPES[dtype].numpy)

    def count(values: Any) -> Any:
        # By the plain operation: tf.searchsorted fails for several columns without rows.
        reached = tf.raw_ops.UpperBound(
            sorted_inputs=tf.constant(edges[np.newaxis], dtype),
            values=tf.reshape(values, [1, tf.size(values)]),
            out_type=tf.int64,
        )
        reached = tf.reshape(reached, tf.shape(values))
        if values.dtype.is_floating:
            reached = tf.where(tf.math.is_nan(values), tf.zeros([], tf.int64), reached)
        return reached

    return elementwise(count, dtype)


PREPARE: Mapping[str, Prepare] = of_every_verb(
    "tensorflow",
    {
        "add": _arithmetic(tf.add),
        "subtract": _arithmetic(tf.subtract),
        "multiply": _arithmetic(tf.multiply),
        "minimum": _arithmetic(tf.minimum),
        "maximum": _arithmetic(tf.maximum),
        "floor_divide": whole_division("floor_divide"),
        "modulo": whole_division("modulo"),
        "negate": _arithmetic(_negate),
        "absolute": _arithmetic(_absolute),
        "divide": _real(_divide),
        "log1p": _transcendental(tf.math.log1p),
        "log": _transcendental(tf.math.log),
        "exp": _transcendental(tf.math.exp),
        "sin": _transcendental(tf.math.sin),
        "cos": _transcendental(tf.math.cos),
        "tanh": _transcendental(tf.math.tanh),
        "power": _transcendental(tf.math.pow),
        "sqrt": _real(tf.math.sqrt),
        "floor": _real(tf.math.floor),
        "ceil": _real(tf.math.ceil),
        "round": _real(tf.math.rint),
        "equal": _comparison(tf.equal),
        "not_equal": _comparison(tf.not_equal),
        "less": _ordering(tf.less),
        "less_equal": _ordering(tf.less_equal),
        "greater": _ordering(tf.greater),
        "greater_equal": _ordering(tf.greater_equal),
        "logical_and": _logical(stops=False),
        "logical_or": _logical(stops=True),
        "logical_xor": lambda *_: elementwise(tf.not_equal, None),
        # Grappler turns "not greater" into "less or equal", which is wrong for NaN.
        "logical_not": lambda *_: elementwise(lambda value: tf.logical_not(guarded(value)), None),
        "is_null": _is_null,
        "fill_null": _fill_null,
        "where": _where,
        "cast": _cast,
        "clip": _clip,
        "hash": hash_value,
        "fingerprint64": fingerprint,
        "fingerprint_cat64": lambda *_: elementwise(concatenated, None),
        "lookup": lookup,
        "gather": gather,
        "bucketize": _bucketize,
        "list_length": list_length,
        "list_slice": list_slice,
        "list_pad": list_pad,
        "repeat_as": repeat_as,
    },
)
