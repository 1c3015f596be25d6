"""Columns from Polars."""

from __future__ import annotations

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from serving.inputs.cast import cast, conversion, refused
from serving.inputs.times import expect_time
from workflow.expressions.polars.series import column_schema, microseconds
from workflow.schema.column import Array, Column
from workflow.schema.dtypes import DTYPES
from workflow.schema.schema import NAIVE, time_name
from workflow.wire.format import WireColumn


def from_polars(column: WireColumn, series: pl.Series) -> Column:
    """A column from a Polars series; categoricals are sent as strings, NaN among integers is null.

    Raises:
        DtypeError: lists where scalars are expected or vice versa, or a dtype or value that the
            column cannot hold.
    """
    if isinstance(series.dtype, pl.Array):
        series = series.arr.to_list()
    if isinstance(series.dtype, pl.List) != column.is_list and series.dtype != pl.Null:
        raise refused(column, series.dtype)
    if column.layout == "scalar":
        values, valid = _flat(column, series)
        return Column(values, valid)
    if series.dtype == pl.Null:
        series = series.cast(pl.List(pl.Null))
    lengths = series.list.len().fill_null(0).to_numpy().astype(np.int64)
    # Null rows and empty ones are equivalent.
    values, valid = _flat(column, series.explode(empty_as_null=False, keep_nulls=False))
    return Column(values, valid, lengths)


def _flat(column: WireColumn, series: pl.Series) -> tuple[Array, Array | None]:
    dtype = series.dtype
    if isinstance(dtype, (pl.Categorical, pl.Enum, pl.Binary)):
        try:
            series = series.cast(pl.String)
        except PolarsError:
            raise refused(column, f"{dtype} that is not UTF-8") from None
    elif column.time and isinstance(dtype, (pl.Date, pl.Datetime)):
        time = column_schema(column.name, dtype).time
        expect_time(column, time, time_name(time))
        series = pl.select(microseconds(pl.lit(series))).to_series()
        return _values(series)
    elif dtype.is_temporal():
        raise refused(column, dtype, conversion(column, NAIVE))
    elif (
        not (dtype.is_numeric() or dtype in (pl.Boolean, pl.String, pl.Null)) or dtype.is_decimal()
    ):
        received = pl.List(dtype) if column.is_list else dtype
        raise refused(column, received, "Convert the column first.")
    elif dtype in (pl.Int128, pl.UInt128):
        series = _of_64_bits(column, series)
    elif dtype.is_float() and DTYPES[column.dtype].is_integer:
        series = series.fill_nan(None)
    if series.dtype == pl.Null:
        return _values(series.cast(getattr(pl, DTYPES[column.dtype].polars)))
    values, valid = _values(series)
    return cast(column, values, valid), valid


def _values(series: pl.Series) -> tuple[Array, Array | None]:
    """The values of a series, zero or "" for null, and a mask of values that are not null."""
    valid = series.is_not_null().to_numpy() if series.null_count() else None
    zero = "" if series.dtype == pl.String else False if series.dtype == pl.Boolean else 0
    return (series if valid is None else series.fill_null(zero)).to_numpy(), valid


def _of_64_bits(column: WireColumn, series: pl.Series) -> pl.Series:
    """Convert integers of types that numpy lacks, which Polars uses for large ones, to 64 bits."""
    smallest = series.min()
    narrow = pl.Int64 if isinstance(smallest, int) and smallest < 0 else pl.UInt64
    try:
        return series.cast(narrow)
    except PolarsError:
        raise refused(column, f"{series.dtype} with a value out of range") from None
