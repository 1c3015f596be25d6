"""The verbs in Polars expressions for cuDF's engine, where it lacks or gets wrong the usual ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from workflow.expressions.language.types import Type, promote
from workflow.expressions.polars.interpreter import VERBS
from workflow.expressions.polars.series import polars_dtype, to_series
from workflow.expressions.program.program import Step
from workflow.expressions.tables.cuckoo import as_int64
from workflow.schema.column import Column, Strings

_INT64_MAX = 2**63 - 1


def modulo(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`modulo` by way of the quotient: what cuDF computes of large integers is of wrapped sums."""
    dtype = polars_dtype(promote(step.verb, types))
    a, b = (operand.cast(dtype) for operand in operands)
    return a - (a // b) * b


def divide(step: Step, _: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`divide`: cuDF divides by one value as by many, and needs nothing to keep it from doing else."""
    a, b = (operand.cast(polars_dtype(step.type.dtype)) for operand in operands)
    return a / b


def log1p(step: Step, _: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`log1p` with its digits near 0, where cuDF takes the logarithm of a rounded sum.

    Source: Kahan, in the manual of the HP-15C, 1982: what the sum lost, the quotient puts back.
    """
    value = operands[0].cast(pl.Float64)
    total = value + 1.0
    near = total.log() * (value / (total - 1.0))
    made = pl.when(total == 1.0).then(value).when(total == np.inf).then(total).otherwise(near)
    return made.cast(polars_dtype(step.type.dtype))


def gather(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`gather`; where there is no row of lists it takes one that is empty, as cuDF fills no lists."""
    table: Column = step.parameters["table"]
    if not table.is_list:
        return VERBS["gather"](step, types, operands)
    (position,), lists = operands, table.derived("with an empty list", lambda: _and_empty(table))
    inside = (position >= 0) & (position < table.rows)
    row = pl.when(inside).then(position.cast(pl.Int64)).otherwise(table.rows)
    return pl.lit(lists).gather(row)


def _and_empty(table: Column) -> pl.Series:
    lists = to_series(table)
    return pl.concat([lists, pl.Series([[]], dtype=lists.dtype)])


def lookup(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`lookup` by a binary search, for which least goes to the GPU: it takes literals anew each time."""
    keys: Column = step.parameters["keys"]
    first, missing = step.parameters["first"], step.parameters["missing"]
    small = max(abs(first) + keys.rows, abs(missing)) < 2**31
    value, wide = operands[0], types[0].dtype == "uint64"
    if not isinstance(keys.values, Strings):
        value = _as_int64(value, wide=wide, wide_keys=keys.values.dtype == np.uint64)
    known, positions = keys.derived(
        ("in order", first, small, wide), lambda: _in_order(keys, first, small=small, wide=wide)
    )
    found = _find(value, known, positions, missing)
    return pl.when(operands[0].is_not_null()).then(found.cast(pl.Int64))


def _in_order(keys: Column, first: int, *, small: bool, wide: bool) -> tuple[pl.Series, pl.Series]:
    """The keys that values can be, in order, and the position of each."""
    positions = np.arange(first, first + keys.rows, dtype=np.int32 if small else np.int64)
    if isinstance(keys.values, Strings):
        return _sorted(to_series(keys), pl.Series(positions))
    kept: Any = slice(None)
    if keys.values.dtype == np.uint64 and not wide:
        kept = keys.values <= np.uint64(_INT64_MAX)
    return _sorted(pl.Series(as_int64(keys.values[kept])), pl.Series(positions[kept]))


def _as_int64(value: pl.Expr, *, wide: bool, wide_keys: bool) -> pl.Expr:
    """Integers as int64, null where they can be no key."""
    if wide and wide_keys:
        return value.reinterpret(signed=True)
    if wide:  # cuDF's cast wraps round, and never makes a null
        value = pl.when(value <= _INT64_MAX).then(value)
    return value.cast(pl.Int64)


def find(value: pl.Expr, keys: pl.Series, results: pl.Series, missing: int) -> pl.Expr:
    """The result for the key that each value is, or `missing`. Null is no key.

    A join needs its keys as a list, of which cudf-polars makes Python objects.

    Args:
        value: of the keys' type.
        keys: distinct, and not null.
        results: of each key.
        missing: of a value that is no key.
    """
    return _find(value, *_sorted(keys, results), missing)


def _sorted(keys: pl.Series, results: pl.Series) -> tuple[pl.Series, pl.Series]:
    order = keys.arg_sort()
    return keys.gather(order), results.gather(order)


def _find(value: pl.Expr, keys: pl.Series, results: pl.Series, missing: int) -> pl.Expr:
    """As `find`, of keys in order."""
    if len(keys) == 0:
        return pl.lit(missing, results.dtype)
    place = pl.lit(keys).search_sorted(value, side="left").clip(None, len(keys) - 1)
    hit = pl.lit(keys).gather(place) == value
    return pl.when(hit).then(pl.lit(results).gather(place)).otherwise(missing)
