"""Queries over one column that stream, and keep its different values at most."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl

from workflow.expressions.polars.series import microseconds
from workflow.schema.schema import ColumnSchema

from .column import PERCENTILES, ColumnInspection
from .frequencies import cumulative_shares, entropy, zipf_exponent
from .time_formats import time_formats

# More different values are counted in part: some 200 MB of integers.
MOST_VALUES = 10_000_000
_SAMPLE = 500_000
# So many of the most frequent texts show the format of all.
_MOST_FREQUENT = 20
_VALUE = pl.col("value")


def measure(
    frame: pl.LazyFrame, column: ColumnSchema, top: int, most_values: int = MOST_VALUES
) -> ColumnInspection:
    """Facts about a column of a frame.

    Args:
        frame: the data.
        column: the schema of the column.
        top: how many of the most frequent values are kept.
        most_values: the number of different values that are counted at most, approximately; of
            more, a part that a hash chooses.
    """
    rows = _rows(frame, column)
    # A null list is a null row, an empty one has no elements.
    nulls = int(_collect(rows.select(_VALUE.null_count())).item())
    values, lengths = rows, np.zeros(0, np.int64)
    if column.is_list:
        lists = rows.drop_nulls()
        lengths = _percentiles(_counts(lists.select(value=_VALUE.list.len().cast(pl.Int64))))
        values = lists.explode("value", empty_as_null=False)
    facts = _facts(values, column)
    finite_values = values.filter(_is_finite(column)) if column.info.kind == "float" else values
    finite_values = finite_values.drop_nulls()
    part, sample = _part(finite_values, facts["finite"], most_values)
    counts = _counts(finite_values, part)
    while part > 1 and counts.is_empty():  # of few values a hash may choose none
        part //= 2
        counts = _counts(finite_values, part)
    common = counts
    if part > 1:  # the most frequent values may not be in the part, but are in the sample
        common = _counts(
            finite_values.filter(_VALUE.is_in(sample["value"].head(max(top, 1)).implode()))
        )
    return ColumnInspection(
        name=column.name,
        dtype=column.dtype,
        is_list=column.is_list,
        time=column.time,
        nulls=nulls,
        null_elements=facts["nulls"] if column.is_list else 0,
        nans=facts["nans"],
        infinities=facts["infinities"],
        count=facts["finite"] + facts["infinities"],
        **_skew(counts, part, common, facts["finite"], top),
        is_whole=_is_whole(counts, column),
        formats=_formats(counts if part == 1 else sample, column),
        **{name: facts[name] for name in ("minimum", "maximum", "mean", "std")},
        quantiles=_quantiles(counts if part == 1 else sample, column),
        spread=_quantiles(counts.with_columns(count=pl.lit(1, pl.Int64)), column),
        lengths=lengths.tolist(),
    )


def _rows(frame: pl.LazyFrame, column: ColumnSchema) -> pl.LazyFrame:
    value = pl.col(column.name)
    dtype = frame.collect_schema()[column.name]
    if isinstance(dtype, pl.Array):
        value = value.arr.to_list()
    if column.is_time:
        value = microseconds(value, is_list=column.is_list)
    elif column.dtype == "string":
        value = value.cast(pl.List(pl.String) if column.is_list else pl.String)
    return frame.select(value=value)


def _is_finite(column: ColumnSchema) -> pl.Expr:
    return _VALUE.is_finite() if column.info.kind == "float" else _VALUE.is_not_null()


def _number(column: ColumnSchema) -> pl.Expr:
    """A finite number for each value, a string's length; null for booleans."""
    if column.info.kind == "bool":
        return pl.lit(None, pl.Float64)
    if column.info.kind == "string":
        return _VALUE.str.len_chars().cast(pl.Int64)
    return pl.when(_is_finite(column)).then(_VALUE) if column.info.kind == "float" else _VALUE


def _facts(values: pl.LazyFrame, column: ColumnSchema) -> dict[str, Any]:
    """Counts and moments of a column named "value"."""
    number, is_float = _number(column), column.info.kind == "float"
    zero = pl.lit(0)
    query = values.select(
        nulls=_VALUE.null_count(),
        nans=_VALUE.is_nan().sum() if is_float else zero,
        infinities=_VALUE.is_infinite().sum() if is_float else zero,
        finite=_is_finite(column).sum(),
        minimum=number.min(),
        maximum=number.max(),
        mean=number.cast(pl.Float64).mean(),
        std=number.cast(pl.Float64).std(),
    )
    row = _collect(query).row(0, named=True)
    # Of numbers near the ends of float64 the sums overflow, and JSON has no infinity.
    for name in ("mean", "std"):
        if row[name] is not None and not math.isfinite(row[name]):
            row[name] = None
    if row["minimum"] != row["maximum"] and not row["std"]:
        row["std"] = None  # Polars makes 0 of what overflows, by the order of its threads
    return row


def _part(values: pl.LazyFrame, count: int, most: int) -> tuple[int, pl.DataFrame]:
    """The reciprocal of the share of different values to count, and counts in a sample of rows.

    The number of different values grows at most in proportion to the rows, so that a sample
    limits it.
    """
    if count <= most:
        return 1, pl.DataFrame()
    # A fixed pattern of rows would meet a pattern in the data.
    row = (pl.col("row").cast(pl.UInt64) * 0x9E37_79B9) % 2**32
    is_sampled = row < 2**32 * min(1.0, _SAMPLE / count)
    sample = _counts(values.with_row_index("row").filter(is_sampled).select("value"))
    sample_rows = int(sample["count"].sum())
    return -(-count * sample.height // (max(sample_rows, 1) * most)), sample


def _counts(values: pl.LazyFrame, part: int = 1) -> pl.DataFrame:
    """The different values and their counts, the most frequent first, ties by value."""
    if part > 1:
        values = values.filter(_VALUE.hash(0) % part == 0)
    counted = values.group_by("value").agg(count=pl.len().cast(pl.Int64))
    return _collect(counted).sort("count", "value", descending=[True, False])


def _collect(query: pl.LazyFrame) -> pl.DataFrame:
    return query.collect(engine="streaming")


def _skew(
    counts: pl.DataFrame, part: int, common: pl.DataFrame, values: int, top: int
) -> dict[str, Any]:
    estimated, number = part > 1, counts["count"].to_numpy()
    repeated = max(int((number > 1).sum()) * part, int((common["count"] > 1).sum()))
    # An estimate may exceed the number of values, where few are equal.
    distinct = min(len(number) * part, values) if repeated else values
    stands_for = distinct / max(len(number), 1)
    ranks, shares = cumulative_shares(number, stands_for) if len(number) else ([], [])
    if estimated:
        ranks, shares = _with_first(ranks, shares, int(common["count"][0]) / values)
    return {
        "distinct": distinct,
        "once": max(distinct - repeated, 0),
        "is_estimated": estimated,
        "entropy": min(entropy(number) + np.log2(part), np.log2(values)) if len(number) else 0.0,
        "zipf": zipf_exponent(number),
        "common": [list(row) for row in common.head(top).iter_rows()],
        "ranks": ranks,
        "shares": shares,
    }


def _is_whole(counts: pl.DataFrame, column: ColumnSchema) -> bool:
    if column.info.kind == "float":
        return bool(counts.select(_VALUE.eq(_VALUE.floor()).all()).item())
    return column.info.kind in ("int", "uint")


def _formats(counts: pl.DataFrame, column: ColumnSchema) -> list[str]:
    return time_formats(counts["value"].head(_MOST_FREQUENT)) if column.dtype == "string" else []


def _with_first(
    ranks: list[int], shares: list[float], first: float
) -> tuple[list[int], list[float]]:
    """Cumulative shares that begin with that of the most frequent value."""
    if ranks[0] == 1:
        return ranks, shares
    return [1, *ranks], [first, *(max(share, first) for share in shares[:-1]), 1.0]


def _quantiles(counts: pl.DataFrame, column: ColumnSchema) -> list[Any]:
    if column.info.kind == "bool" or counts.is_empty():
        return []
    found: list[Any] = _percentiles(counts.select(_number(column).alias("value"), "count")).tolist()
    return found


def _percentiles(counts: pl.DataFrame) -> np.ndarray[Any, Any]:
    """The percentiles 0 to 100, each a value that occurs (numpy's method "inverted_cdf").

    Args:
        counts: of values, of which some may be equal.
    """
    ordered = counts.sort("value")
    ends = ordered["count"].cum_sum().to_numpy()
    if not len(ends):
        return np.zeros(0, np.int64)
    # Integers: a product of fractions may pass a count by its last digit.
    places = -(-np.arange(PERCENTILES, dtype=object) * int(ends[-1]) // (PERCENTILES - 1))
    at = np.searchsorted(ends, np.maximum(places.astype(np.int64), 1))
    return ordered["value"].to_numpy()[at]
