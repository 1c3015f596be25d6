"""Each verb in numpy: a function from a step to a function over columns.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...schema.column import Array, Column
from ...schema.dtypes import DTYPES
from ..language.fingerprints import concatenate, fingerprint_values
from ..language.hashing import hash_values
from ..language.types import Type, promote
from ..language.verbs import of_every_verb
from ..program.program import Step
from .elementwise import Function, elementwise, joint_lengths, joint_valid
from .lists import list_length, list_pad, list_slice, repeat_as
from .tables import bucketize, gather, lookup


def _arithmetic(function: Callable[..., Array]) -> Callable[[Step, Sequence[Type]], Function]:
    return lambda step, types: elementwise(function, promote(step.verb, types))


def _whole_division(function: Callable[..., Array]) -> Callable[[Step, Sequence[Type]], Function]:
    def prepare(step: Step, types: Sequence[Type]) -> Function:
        divide = elementwise(function, step.type.dtype)
        if types[1].value:
            return divide

        def apply(a: Column, b: Column) -> Column:
            made = divide(a, b)
            defined = np.broadcast_to(b.array != 0, made.array.shape)
            valid = defined if made.valid is None else defined & made.valid
            return Column(made.values, valid, made.lengths)

        return apply

    return prepare


def _hash(step: Step, _: Sequence[Type]) -> Function:
    return elementwise(lambda values: hash_values(values, step.parameters["seed"]), None)


def _concatenate(first: Array, second: Array) -> Array:
    """Fingerprints of arrays: numpy would compute with a constant of no dimension in floats."""
    made: Array = concatenate(np.atleast_1d(first), np.atleast_1d(second))
    return made.reshape(np.broadcast_shapes(first.shape, second.shape))


def _real(function: Callable[..., Array]) -> Callable[[Step, Sequence[Type]], Function]:
    return lambda step, _: elementwise(function, step.type.dtype)


def _transcendental(function: Callable[..., Array]) -> Callable[[Step, Sequence[Type]], Function]:
    """Computed in float64 and rounded once: libraries differ by several ulp in float32."""

    def prepare(step: Step, _: Sequence[Type]) -> Function:
        dtype = DTYPES[step.type.dtype].numpy
        return elementwise(lambda *a: function(*a).astype(dtype, copy=False), "float64")

    return prepare


def _comparison(function: Callable[..., Array]) -> Callable[[Step, Sequence[Type]], Function]:
    return lambda step, types: elementwise(
        lambda a, b: function(a, b).astype(bool, copy=False), promote(step.verb, types)
    )


def _logical(stops: bool) -> Callable[[Step, Sequence[Type]], Function]:
    """Kleene's `and` (an operand that is False decides) and `or` (one that is True decides)."""
    function = np.logical_or if stops else np.logical_and

    def apply(a: Column, b: Column) -> Column:
        valid = joint_valid([a, b])
        if valid is not None:
            decided = [(c.array == stops) & (True if c.valid is None else c.valid) for c in (a, b)]
            valid = valid | decided[0] | decided[1]
            # The values at nulls must not decide, so they become the neutral value.
            values = [
                c.array if c.valid is None else np.where(c.valid, c.array, not stops)
                for c in (a, b)
            ]
            return Column(function(*values), valid, joint_lengths([a, b]))
        return Column(function(a.array, b.array), None, joint_lengths([a, b]))

    return lambda *_: apply


def _is_null(*_: Any) -> Function:
    def apply(a: Column) -> Column:
        values = np.zeros(a.array.shape, bool) if a.valid is None else ~a.valid
        return Column(values, None, a.lengths)

    return apply


def _fill_null(step: Step, _: Sequence[Type]) -> Function:
    dtype = DTYPES[step.type.dtype].numpy

    def apply(a: Column, b: Column) -> Column:
        if a.valid is None:
            return Column(a.array.astype(dtype, copy=False), None, a.lengths)
        # numpy 1 would give a float64 constant the dtype of a float32 column, so both are cast
        # first.
        kept, fill = (c.array.astype(dtype, copy=False) for c in (a, b))
        values = np.where(a.valid, kept, fill)
        valid = None if b.valid is None else a.valid | b.valid
        return Column(values, valid, joint_lengths([a, b]))

    return apply


def _where(step: Step, _: Sequence[Type]) -> Function:
    dtype = DTYPES[step.type.dtype].numpy

    def apply(condition: Column, a: Column, b: Column) -> Column:
        values = np.where(
            condition.array, a.array.astype(dtype, copy=False), b.array.astype(dtype, copy=False)
        )
        valid = condition.valid
        if a.valid is not None or b.valid is not None:
            true = np.True_
            chosen: Array = np.where(
                condition.array,
                true if a.valid is None else a.valid,
                true if b.valid is None else b.valid,
            )
            valid = chosen if valid is None else valid & chosen
        return Column(values, valid, joint_lengths([condition, a, b]))

    return apply


def _cast(step: Step, types: Sequence[Type]) -> Function:
    have, want = DTYPES[types[0].dtype], DTYPES[step.type.dtype]
    if want.kind == "bool":
        return elementwise(lambda a: (a != 0) & (a == a), None)  # noqa: PLR0124 - NaN is 0
    if not want.is_integer or have.kind == "bool" or np.can_cast(have.numpy, want.numpy):
        return elementwise(lambda a: a, want.name)
    limits = np.iinfo(want.numpy)
    if have.is_integer:
        own = np.iinfo(have.numpy)
        # As arrays: with few values numpy takes longer to find the type of a Python number, above
        # all in np.clip, than to compute.
        lower = np.array(max(limits.min, own.min), have.numpy)
        upper = np.array(min(limits.max, own.max), have.numpy)
        return elementwise(
            lambda a: np.minimum(np.maximum(a, lower), upper).astype(want.numpy), None
        )
    return elementwise(lambda a: _saturate(a, limits), None)


def _saturate(values: Array, limits: np.iinfo[Any]) -> Array:
    """Floats as integers; a float cannot hold the largest int64, so that limit is treated separately."""
    top = values >= float(limits.max)
    inside = np.where(top | (values != values), 0, values)  # noqa: PLR0124 - NaN is 0
    whole = np.maximum(inside, float(limits.min)).astype(limits.dtype)
    return np.where(top, limits.dtype.type(limits.max), whole)


def _clip(step: Step, _: Sequence[Type]) -> Function:
    lower, upper = bounds(step)
    dtype = DTYPES[step.type.dtype].numpy

    def clip(values: Array) -> Array:
        values = values if lower is None else np.maximum(values, dtype.type(lower))
        return values if upper is None else np.minimum(values, dtype.type(upper))

    return elementwise(clip, None)


def bounds(step: Step) -> tuple[Any, Any]:
    """The bounds of a clip in the column's dtype; bounds outside an integer type move to its limit."""
    info = DTYPES[step.type.dtype]
    lower, upper = step.parameters["lower"], step.parameters["upper"]
    if info.kind == "float":
        return lower, upper
    limits = np.iinfo(info.numpy)
    return (
        None if lower is None else _whole(lower, math.ceil, limits),
        None if upper is None else _whole(upper, math.floor, limits),
    )


def _whole(bound: float, rounded: Callable[[float], int], limits: np.iinfo[Any]) -> int:
    if math.isinf(bound):
        return int(limits.max if bound > 0 else limits.min)
    return min(max(rounded(bound), int(limits.min)), int(limits.max))


PREPARE: Mapping[str, Callable[[Step, Sequence[Type]], Function]] = of_every_verb(
    "numpy",
    {
        "add": _arithmetic(np.add),
        "subtract": _arithmetic(np.subtract),
        "multiply": _arithmetic(np.multiply),
        "minimum": _arithmetic(np.minimum),
        "maximum": _arithmetic(np.maximum),
        "floor_divide": _whole_division(np.floor_divide),
        "modulo": _whole_division(np.remainder),
        "negate": _arithmetic(np.negative),
        "absolute": _arithmetic(np.absolute),
        "divide": _real(np.divide),
        "log1p": _transcendental(np.log1p),
        "log": _transcendental(np.log),
        "exp": _transcendental(np.exp),
        "sin": _transcendental(np.sin),
        "cos": _transcendental(np.cos),
        "tanh": _transcendental(np.tanh),
        "power": _transcendental(np.power),
        "sqrt": _real(np.sqrt),
        "floor": _real(np.floor),
        "ceil": _real(np.ceil),
        "round": _real(np.rint),
        "equal": _comparison(np.equal),
        "not_equal": _comparison(np.not_equal),
        "less": _comparison(np.less),
        "less_equal": _comparison(np.less_equal),
        "greater": _comparison(np.greater),
        "greater_equal": _comparison(np.greater_equal),
        "logical_and": _logical(stops=False),
        "logical_or": _logical(stops=True),
        "logical_xor": lambda *_: elementwise(np.logical_xor, None),
        "logical_not": lambda *_: elementwise(np.logical_not, None),
        "is_null": _is_null,
        "fill_null": _fill_null,
        "where": _where,
        "cast": _cast,
        "clip": _clip,
        "hash": _hash,
        "fingerprint64": lambda *_: elementwise(fingerprint_values, None),
        "fingerprint_cat64": lambda *_: elementwise(_concatenate, "uint64"),
        "lookup": lookup,
        "gather": gather,
        "bucketize": bucketize,
        "list_length": list_length,
        "list_slice": list_slice,
        "list_pad": list_pad,
        "repeat_as": repeat_as,
    },
)
