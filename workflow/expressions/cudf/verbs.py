"""Polars expressions of verbs for cuDF's engine, where it lacks the usual ones or gets them wrong."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import polars as pl

from workflow.expressions.language.types import Type, promote
from workflow.expressions.polars.series import polars_dtype, to_series
from workflow.expressions.polars.tables import only_null
from workflow.expressions.program.program import Program, Step
from workflow.expressions.tables.cuckoo import as_int64
from workflow.schema.column import Column, Strings

_INT64_MAX = 2**63 - 1
# Threads that sort keys.
_MOST_THREADS = 16


def modulo(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`modulo` by the quotient: cuDF's own result for large integers comes from overflowing sums."""
    dtype = polars_dtype(promote(step.verb, types))
    a, b = (operand.cast(dtype) for operand in operands)
    return a - (a // b) * b


def divide(step: Step, _: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`divide`: cuDF divides by a scalar as by a column, so the usual workaround is not needed."""
    a, b = (operand.cast(polars_dtype(step.type.dtype)) for operand in operands)
    return a / b


def log1p(step: Step, _: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`log1p` with its digits near 0, where cuDF takes the logarithm of a rounded sum.

    Source: Kahan, in the manual of the HP-15C, 1982: the quotient restores what the sum lost.
    """
    value = operands[0].cast(pl.Float64)
    total = value + 1.0
    near = total.log() * (value / (total - 1.0))
    logarithm = pl.when(total == 1.0).then(value).when(total == np.inf).then(total).otherwise(near)
    return logarithm.cast(polars_dtype(step.type.dtype))


def gather(step: Step, _: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`gather`; a missing row takes an added one, null or an empty list.

    cuDF cannot fill null lists, and fails where all positions are null.
    """
    table: Column = step.parameters["table"]
    (position,), rows = operands, table.derived("with a missing row", lambda: _and_missing(table))
    if rows.null_count() == len(rows):
        return only_null(position, rows.dtype)
    inside = (position >= 0) & (position < table.rows)
    return pl.lit(rows).gather(pl.when(inside).then(position.cast(pl.Int64)).otherwise(table.rows))


def _and_missing(table: Column) -> pl.Series:
    rows = to_series(table)
    return pl.concat([rows, pl.Series([[] if table.is_list else None], dtype=rows.dtype)])


def lookup(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`lookup` by binary search, with the least data for the GPU: each query copies literals to it."""
    keys: Column = step.parameters["keys"]
    value, wide = operands[0], types[0].dtype == "uint64"
    if not isinstance(keys.values, Strings):
        value = _as_int64(value, wide=wide, wide_keys=keys.values.dtype == np.uint64)
    position = _find(value, *_sorted_keys(step, types[0]), step.parameters["missing"])
    return pl.when(operands[0].is_not_null()).then(position.cast(polars_dtype(step.type.dtype)))


def sort_tables(program: Program) -> None:
    """Sort the keys of all lookups, in threads, so that each finds its own when it is compiled."""
    lookups = [step for step in program.steps if step.verb == "lookup"]
    types = [program.steps[step.operands[0]].type for step in lookups]
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        list(pool.map(_sorted_keys, lookups, types))


def _sorted_keys(step: Step, value: Type) -> tuple[pl.Series, pl.Series]:
    """The keys of a lookup that are in the values' range, in order, and the position of each."""
    keys: Column = step.parameters["keys"]
    first, missing = step.parameters["first"], step.parameters["missing"]
    small = max(abs(first) + keys.rows, abs(missing)) < 2**31
    wide = value.dtype == "uint64"
    return keys.derived(
        ("in order", first, small, wide), lambda: _in_order(keys, first, small=small, wide=wide)
    )


def _in_order(keys: Column, first: int, *, small: bool, wide: bool) -> tuple[pl.Series, pl.Series]:
    positions = np.arange(first, first + keys.rows, dtype=np.int32 if small else np.int64)
    if isinstance(keys.values, Strings):
        return _sorted(to_series(keys), pl.Series(positions))
    selection: Any = slice(None)
    if keys.values.dtype == np.uint64 and not wide:
        selection = keys.values <= np.uint64(_INT64_MAX)
    numbers = as_int64(keys.values[selection])
    order = np.argsort(numbers)  # in this thread, while Polars would wait for the other columns'
    return pl.Series(numbers[order]), pl.Series(positions[selection][order])


def _as_int64(value: pl.Expr, *, wide: bool, wide_keys: bool) -> pl.Expr:
    """Integers as int64, null if they cannot be keys."""
    if wide and wide_keys:
        return value.reinterpret(signed=True)
    if wide:  # cuDF's cast wraps around, and never makes a null
        value = pl.when(value <= _INT64_MAX).then(value)
    return value.cast(pl.Int64)


def find(value: pl.Expr, keys: pl.Series, results: pl.Series, missing: int) -> pl.Expr:
    """The result for the key that each value equals, or `missing`. Null equals no key.

    A join needs its keys as a list, of which cudf-polars makes Python objects.

    Args:
        value: values of the keys' type.
        keys: distinct, and not null.
        results: the result of each key.
        missing: the result for a value that is not a key.
    """
    return _find(value, *_sorted(keys, results), missing)


def _sorted(keys: pl.Series, results: pl.Series) -> tuple[pl.Series, pl.Series]:
    order = keys.arg_sort()
    return keys.gather(order), results.gather(order)


def _find(value: pl.Expr, keys: pl.Series, results: pl.Series, missing: int) -> pl.Expr:
    """The result of `find`, for sorted keys."""
    if len(keys) == 0:
        return pl.lit(missing, results.dtype)
    place = pl.lit(keys).search_sorted(value, side="left").clip(None, len(keys) - 1)
    hit = pl.lit(keys).gather(place) == value
    return pl.when(hit).then(pl.lit(results).gather(place)).otherwise(missing)
