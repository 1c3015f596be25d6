"""Conversion between Polars series and numpy columns, and between their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from workflow.schema.column import Array, Column, Strings
from workflow.schema.dtypes import DTYPES, SchemaError
from workflow.schema.schema import DATE, NAIVE, ColumnSchema, Schema

if TYPE_CHECKING:
    import pyarrow as pa

# Our names for Polars' types.
_NAMES = {getattr(pl, info.polars): name for name, info in DTYPES.items()}

_REMEDIES: Mapping[Any, str] = {
    pl.Binary: '{column}.bin.encode("hex")',
    pl.Int128: "{column}.cast(polars.Int64, strict=False) makes null of integers beyond 64 bits, and "
    "polars.scan_csv(path, schema_overrides={{{name}: polars.String}}) reads them as text",
    pl.Decimal: "{column}.cast(polars.Float64)",
    pl.List: "{column}.list.eval(polars.element().explode(empty_as_null=False))",
    pl.Duration: "{column}.dt.total_seconds()",
    pl.Struct: "frame.unnest({name}) makes a column of each field",
    pl.Time: "{column}.dt.hour()",
}


def polars_dtype(dtype: str, *, is_list: bool = False) -> pl.DataType:
    """The Polars type of a column."""
    inner: pl.DataType = getattr(pl, DTYPES[dtype].polars)()
    return pl.List(inner) if is_list else inner


def column_schema(name: str, dtype: pl.DataType) -> ColumnSchema:
    """Our type for a Polars column; categories are strings, dates and times int64.

    Raises:
        SchemaError: a type that is not in the dtype table.
    """
    inner = dtype.inner if isinstance(dtype, pl.List | pl.Array) else dtype
    dtype_name = _NAMES.get(inner.base_type())
    if dtype_name is not None:
        return ColumnSchema(name, dtype_name, is_list=inner is not dtype)
    if inner in (pl.Categorical, pl.Enum):
        return ColumnSchema(name, "string", is_list=inner is not dtype)
    if inner == pl.Date or isinstance(inner, pl.Datetime):
        time = inner.time_zone or NAIVE if isinstance(inner, pl.Datetime) else DATE
        return ColumnSchema(name, "int64", is_list=inner is not dtype, time=time)
    raise SchemaError(
        f"Expected column {name!r} as numbers, booleans, strings, dates, or lists of them. "
        f"Received: {dtype}. {type_remedy(name, dtype)}"
    )


def type_remedy(name: str, dtype: pl.DataType) -> str:
    """Advice for a column of a type that no workflow takes."""
    inner: Any = dtype.inner if isinstance(dtype, pl.List | pl.Array) else dtype
    way = None if inner is not dtype and inner != pl.List else _REMEDIES.get(inner.base_type())
    if isinstance(inner, pl.Decimal) and way and not inner.scale:
        way = "{column}.cast(polars.Int64)"  # ids: a float makes one of two beyond 2**53
    if way is None:
        return "Cast it before it enters the workflow."
    return f"Convert it before, in Polars: {way.format(column=f'polars.col({name!r})', name=repr(name))}."


def microseconds(values: pl.Expr, *, is_list: bool = False) -> pl.Expr:
    """Dates and times of any unit as microseconds since 1970-01-01, in UTC if they have a zone.

    Fractions of a microsecond are rounded down. Times outside the range of int64 become null, as in
    `in_microseconds`. Integers are unchanged.
    """
    if is_list:
        return values.cast(pl.List(pl.Datetime("us")), strict=False).cast(pl.List(pl.Int64))
    # A strict cast panics at such a date, because its error message formats year, month and day.
    return values.cast(pl.Datetime("us"), strict=False).cast(pl.Int64)


def as_times(values: pl.Expr, time: str, *, is_list: bool = False) -> pl.Expr:
    """The inverse of `microseconds`: dates or times; numbers if `time` is empty.

    Args:
        values: int64.
        time: their kind, a value of `ColumnSchema.time`.
        is_list: whether they are in lists.
    """
    if not time:
        return values
    dtype = pl.Datetime("us", None if time in (DATE, NAIVE) else time)
    times = values.cast(pl.List(dtype) if is_list else dtype)
    if time == DATE:
        times = times.cast(pl.List(pl.Date) if is_list else pl.Date)
    return times


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
        series = to_lists(series, column.offsets())
    return series.alias(name)


def _strings_to_series(strings: Strings) -> pl.Series:
    import pyarrow as pa  # noqa: PLC0415 - only large vocabularies need it

    buffers = [
        None,
        pa.py_buffer(np.ascontiguousarray(strings.offsets)),
        pa.py_buffer(np.ascontiguousarray(strings.data)),
    ]
    return _from_arrow(pa.Array.from_buffers(pa.large_string(), len(strings), buffers))


def in_numpy(function: Callable[[Array], Array], values: pl.Series) -> pl.Series:
    """A numpy function of each number or boolean, null of null.

    Example:
        >>> in_numpy(np.sqrt, pl.Series([4.0, None])).to_list()
        [2.0, None]
    """
    if not values.null_count():
        return pl.Series(values.name, function(values.to_numpy()))
    filled = values.fill_null(False if values.dtype == pl.Boolean else 0)
    return pl.Series(values.name, function(filled.to_numpy())).set(values.is_null(), None)


def to_lists(elements: pl.Series, offsets: Array) -> pl.Series:
    """Elements as lists that start and end at the offsets."""
    import pyarrow as pa  # noqa: PLC0415

    # From a buffer: for a numpy array pyarrow checks whether it belongs to pandas, and imports it.
    ends = pa.Array.from_buffers(pa.int64(), len(offsets), [None, pa.py_buffer(offsets)])
    return _from_arrow(pa.LargeListArray.from_arrays(ends, elements.to_arrow()))


def relisted(elements: pl.Series, lists: pl.Series) -> pl.Series:
    """Elements as lists with the lengths of other lists, which are not null.

    Example:
        >>> relisted(pl.Series([1, 2, 3]), pl.Series([["a"], [], ["b", "c"]])).to_list()
        [[1], [], [2, 3]]
    """
    return to_lists(elements, list_offsets(lists)).alias(elements.name)


def list_elements(lists: pl.Series) -> pl.Series:
    """The elements of lists, none of them null, in sequence; a view for numbers.

    Example:
        >>> list_elements(pl.Series([[1, 2], [], [3]])).to_list()
        [1, 2, 3]
    """
    if not isinstance(lists.dtype, pl.List) or lists.dtype.inner == pl.String:
        return lists.explode(empty_as_null=False)
    return _from_arrow(lists.rechunk().to_arrow().flatten())


def list_offsets(lists: pl.Series) -> Array:
    """Starts of some lists, none of them null, among all elements, and the end.

    Example:
        >>> list_offsets(pl.Series([["a"], [], ["b", "c"]])).tolist()
        [0, 1, 1, 3]
    """
    lengths = lists.list.len().to_numpy()
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _from_arrow(array: pa.Array) -> pl.Series:
    # In a record batch: for a bare array Polars imports pyarrow.compute, which loads slowly.
    import pyarrow as pa  # noqa: PLC0415

    return pl.DataFrame(pa.RecordBatch.from_arrays([array], [""])).to_series()


def to_column(series: pl.Series, *, compact_strings: bool = False) -> Column:
    """A Polars series as a numpy column.

    Args:
        series: series of a type in the dtype table, or of lists of it.
        compact_strings: strings as `Strings`, for a program's constants, instead of objects.
    """
    if series.dtype in (pl.Categorical, pl.Enum):
        series = series.cast(pl.String)
    elif series.dtype in (pl.Date, pl.Datetime):
        series = pl.select(microseconds(pl.lit(series))).to_series()
    if isinstance(series.dtype, pl.Array):
        series = series.arr.to_list()
    if isinstance(series.dtype, pl.List):
        lengths = series.list.len().fill_null(0).cast(pl.Int64).to_numpy()
        elements = series.explode(empty_as_null=False, keep_nulls=False)
        inner = to_column(elements, compact_strings=compact_strings)
        return Column(inner.values, inner.valid, lengths)
    valid = series.is_not_null().to_numpy() if series.null_count() else None
    info = DTYPES[column_schema(series.name, series.dtype).dtype]
    if info.kind == "string":
        texts = series.fill_null("")
        return Column(to_strings(texts) if compact_strings else _objects(texts.to_list()), valid)
    values = series.fill_null(False if info.kind == "bool" else 0) if valid is not None else series
    return Column(values.to_numpy().astype(info.numpy, copy=False), valid)


def to_strings(series: pl.Series) -> Strings:
    """A Polars series of strings without nulls as bytes, without converting single strings."""
    # Not as Polars' string views: pyarrow, which would convert those to bytes, loads slowly.
    array = series.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    start, end = array.offset, array.offset + len(array) + 1
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int64)[start:end] if len(array) else np.zeros(1, np.int64)
    raw = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return Strings(raw[ends[0] : ends[-1]], ends - ends[0])


def _objects(texts: list[str]) -> Array:
    values = np.empty(len(texts), object)
    values[:] = texts
    return values


def schema_of(frame: pl.LazyFrame) -> Schema:
    """The schema of a frame."""
    return Schema(column_schema(name, dtype) for name, dtype in frame.collect_schema().items())
