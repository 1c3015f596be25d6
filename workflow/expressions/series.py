"""Polars series to numpy columns and back, and their types in our terms."""

from __future__ import annotations

import numpy as np
import polars as pl

from workflow.schema import DTYPES, ColumnSchema, Schema, SchemaError

from .column import Array, Column, Strings


def polars_dtype(dtype: str, *, is_list: bool = False) -> pl.DataType:
    """The Polars type of a column."""
    inner: pl.DataType = getattr(pl, DTYPES[dtype].polars)()
    return pl.List(inner) if is_list else inner


def column_schema(name: str, dtype: pl.DataType) -> ColumnSchema:
    """What a Polars column is in our terms; categories are strings.

    Raises:
        SchemaError: a type that the dtype table does not have.
    """
    inner = dtype.inner if isinstance(dtype, pl.List | pl.Array) else dtype
    for info in DTYPES.values():
        if inner == getattr(pl, info.polars):
            return ColumnSchema(name, info.name, is_list=inner is not dtype)
    if inner in (pl.Categorical, pl.Enum):
        return ColumnSchema(name, "string", is_list=inner is not dtype)
    raise SchemaError(
        f"Expected column {name!r} as numbers, booleans, strings, or lists of them. Received: {dtype}. "
        "Cast it before it enters the workflow, for example a date with .dt.timestamp('us')."
    )


def to_series(column: Column, name: str = "") -> pl.Series:
    """A numpy column as a Polars series."""
    if isinstance(column.values, Strings):
        series = _strings_to_series(column.values)
    elif column.values.dtype == object:
        series = pl.Series(column.values.tolist(), dtype=pl.String)
    else:
        series = pl.Series(column.values)
    if column.valid is not None:
        valid = pl.Series(column.valid)
        series = pl.select(pl.when(valid).then(series)).to_series()
    if column.lengths is not None:
        series = _to_lists(series, column.offsets())
    return series.alias(name)


def _strings_to_series(strings: Strings) -> pl.Series:
    import pyarrow as pa  # noqa: PLC0415 - only large vocabularies need it

    buffers = [
        None,
        pa.py_buffer(np.ascontiguousarray(strings.offsets)),
        pa.py_buffer(np.ascontiguousarray(strings.data)),
    ]
    array = pa.Array.from_buffers(pa.large_string(), len(strings), buffers)
    return pl.Series(pl.from_arrow(array))


def _to_lists(elements: pl.Series, offsets: Array) -> pl.Series:
    import pyarrow as pa  # noqa: PLC0415

    return pl.Series(
        pl.from_arrow(pa.LargeListArray.from_arrays(pa.array(offsets), elements.to_arrow()))
    )


def to_column(series: pl.Series, *, compact_strings: bool = False) -> Column:
    """A Polars series as a numpy column.

    Args:
        series: of a type that the dtype table has, or lists of it.
        compact_strings: strings as `Strings`, for a program's constants, instead of objects.
    """
    if series.dtype in (pl.Categorical, pl.Enum):
        series = series.cast(pl.String)
    if isinstance(series.dtype, pl.Array):
        series = series.arr.to_list()
    if isinstance(series.dtype, pl.List):
        lengths = series.list.len().fill_null(0).cast(pl.Int64).to_numpy()
        elements = series.filter(series.list.len() > 0).explode(empty_as_null=False)
        inner = to_column(elements, compact_strings=compact_strings)
        return Column(inner.values, inner.valid, lengths)
    valid = series.is_not_null().to_numpy() if series.null_count() else None
    info = DTYPES[column_schema(series.name, series.dtype).dtype]
    if info.kind == "string":
        texts = series.fill_null("").to_list()
        return Column(Strings.of(texts) if compact_strings else _objects(texts), valid)
    values = series.fill_null(False if info.kind == "bool" else 0) if valid is not None else series
    return Column(values.to_numpy().astype(info.numpy, copy=False), valid)


def _objects(texts: list[str]) -> Array:
    values = np.empty(len(texts), object)
    values[:] = texts
    return values


def schema_of(frame: pl.LazyFrame) -> Schema:
    """The schema of a frame."""
    return Schema(column_schema(name, dtype) for name, dtype in frame.collect_schema().items())
