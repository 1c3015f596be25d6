"""Polars expressions of the verbs that number values: hashes, fingerprints and `bucketize`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import polars as pl

from workflow.expressions.language.fingerprints import (
    CAT_MULTIPLIER,
    SHIFT,
    fingerprint_strings,
    fingerprint_values,
)
from workflow.expressions.language.hashing import MULTIPLIERS, SHIFTS, hash_strings, seed_offset
from workflow.expressions.language.types import Type, promote, table_dtype
from workflow.expressions.program.program import Step
from workflow.schema.column import Array, Column, Strings

from .series import in_numpy, polars_dtype, to_series, to_strings

# From here on a binary search is faster than a comparison with each boundary.
MANY_BOUNDARIES = 32


def hash_value(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`hash`: integers by Polars' own arithmetic, which wraps around as required."""
    (value,), seed = operands, step.parameters["seed"]
    if types[0].kind == "string":
        return _of_strings(value, lambda texts: hash_strings(texts, seed), pl.Int64)
    bits = _bits(value, types[0]) + pl.lit(seed_offset(seed), pl.UInt64)
    for shift, multiplier in zip(SHIFTS, (*MULTIPLIERS, None), strict=True):
        bits = bits ^ (bits // pl.lit(1 << shift, pl.UInt64))
        bits = bits if multiplier is None else bits * pl.lit(multiplier, pl.UInt64)
    return (bits // pl.lit(2, pl.UInt64)).cast(pl.Int64)


def fingerprint(_: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`fingerprint64`."""
    (value,) = operands
    if types[0].kind == "string":
        return _of_strings(value, fingerprint_strings, pl.UInt64)
    return value.map_batches(
        partial(in_numpy, fingerprint_values), return_dtype=pl.UInt64, is_elementwise=True
    )


def concatenate(_: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`fingerprint_cat64`, the formula of `fingerprints.concatenate`."""
    factor, divisor = (pl.lit(n, pl.UInt64) for n in (CAT_MULTIPLIER, 1 << SHIFT))
    first, second = (_bits(o, t) for o, t in zip(operands, types, strict=True))

    def mixed(bits: pl.Expr) -> pl.Expr:
        return bits ^ (bits // divisor)

    both = first ^ factor ^ (mixed(second * factor) * factor)
    return mixed(mixed(both * factor) * factor)


def _bits(value: pl.Expr, type_: Type) -> pl.Expr:
    return value if type_.dtype == "uint64" else value.cast(pl.Int64).reinterpret(signed=False)


def _of_strings(
    value: pl.Expr, function: Callable[[Strings], Array], dtype: type[pl.DataType]
) -> pl.Expr:
    """A number of each string, by numpy on whole chunks.

    Polars exposes the bytes of a string only as a list for each row, which takes six times as long.
    """

    def of_series(series: pl.Series) -> pl.Series:
        numbers = pl.Series(series.name, function(to_strings(series.fill_null(""))))
        return pl.select(pl.when(series.is_not_null()).then(numbers)).to_series()

    return value.map_batches(of_series, return_dtype=dtype, is_elementwise=True)


def bucketize(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`bucketize`."""
    # Polars' own search_sorted does not stream: it needs the whole column.
    return _bucketize(
        step,
        types,
        operands[0],
        lambda edges, value: value.map_batches(
            lambda series: _search(edges, series), return_dtype=pl.Int64, is_elementwise=True
        ),
    )


def bucketize_by_search(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`bucketize` for an engine that cannot call Python and has the whole column anyway."""
    return _bucketize(
        step,
        types,
        operands[0],
        lambda edges, value: pl.lit(edges).search_sorted(value, side="right").cast(pl.Int64),
    )


def _bucketize(
    step: Step,
    types: Sequence[Type],
    value: pl.Expr,
    search: Callable[[pl.Series, pl.Expr], pl.Expr],
) -> pl.Expr:
    boundaries: Column = step.parameters["boundaries"]
    dtype = polars_dtype(promote("bucketize", [types[0], Type(table_dtype(boundaries).name)]))
    value, edges = value.cast(dtype), to_series(boundaries).cast(dtype)
    if len(edges) > MANY_BOUNDARIES:
        count = search(edges, value)
    else:
        reached = [(value >= edge).cast(pl.Int64) for edge in edges]
        count = pl.sum_horizontal(pl.lit(0, pl.Int64), *reached)
    if dtype.is_float():
        count = pl.when(value.is_nan()).then(0).otherwise(count)
    return pl.when(value.is_not_null()).then(count)


def _search(edges: pl.Series, series: pl.Series) -> pl.Series:
    # Without nulls, since numpy would convert integers with nulls to floats.
    values = series.fill_null(0).to_numpy()
    return pl.Series(series.name, np.searchsorted(edges.to_numpy(), values, side="right"))
