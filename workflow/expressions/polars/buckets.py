"""Polars expressions of the verbs that number values: `hash` and `bucketize`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from workflow.expressions.language.hashing import MULTIPLIERS, SHIFTS, hash_strings, seed_offset
from workflow.expressions.language.types import Type, promote, table_dtype
from workflow.expressions.program.program import Step
from workflow.schema.column import Column

from .series import polars_dtype, to_series, to_strings

# From here on a binary search is faster than a comparison with each boundary.
MANY_BOUNDARIES = 32


def hash_value(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`hash`: integers by Polars' own arithmetic, which wraps around as required."""
    (value,), seed = operands, step.parameters["seed"]
    if types[0].kind == "string":
        # By numpy on whole chunks: Polars exposes the bytes of a string only as a list for each
        # row, which takes six times as long.
        return value.map_batches(
            lambda series: _hash_series(series, seed), return_dtype=pl.Int64, is_elementwise=True
        )
    if types[0].dtype != "uint64":
        value = value.cast(pl.Int64).reinterpret(signed=False)
    bits = value + pl.lit(seed_offset(seed), pl.UInt64)
    for shift, multiplier in zip(SHIFTS, (*MULTIPLIERS, None), strict=True):
        bits = bits ^ (bits // pl.lit(1 << shift, pl.UInt64))
        bits = bits if multiplier is None else bits * pl.lit(multiplier, pl.UInt64)
    return (bits // pl.lit(2, pl.UInt64)).cast(pl.Int64)


def _hash_series(series: pl.Series, seed: int) -> pl.Series:
    hashes = pl.Series(series.name, hash_strings(to_strings(series.fill_null("")), seed))
    return pl.select(pl.when(series.is_not_null()).then(hashes)).to_series()


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
