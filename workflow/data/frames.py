"""Frames of other libraries as Polars frames, read column by column if some columns cannot be read."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from workflow.errors import SERIES_ADVICE, WorkflowError, expect_no_interrupt, first_line, unread
from workflow.expressions.language.types import ExpressionError
from workflow.schema.names import listed
from workflow.schema.python_number import python_number
from workflow.schema.times import in_microseconds

# The first bytes of a zip archive.
ZIP = b"PK\x03\x04"
# Raised by Polars and pyarrow for unsupported values; `PanicException` is not an `Exception`.
UNREADABLE = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    pa.ArrowException,
    TypeError,
    ValueError,
    OverflowError,
    AttributeError,
    NameError,  # of the annotations of dataclasses, which Polars evaluates
)

# numpy's units of time that Polars lacks.
_COARSE = ("M8[s", "M8[m", "M8[h")

# Types that no column can have, and the remedy.
_REFUSED = (
    *("period[", "interval[", "Sparse[", "complex", "timedelta64", "float128", "void", "no rows"),
    *("datetime64[Y", "datetime64[M", "datetime64[W"),
)
_CATEGORY = "category of "
# Types of the elements that a list, or an array of objects, can hold.
_HELD = (
    bool,
    int,
    float,
    str,
    bytes,
    date,
    time,
    timedelta,
    Decimal,
    Mapping,
    np.generic,
    type(None),
)
_NOT_HELD = (np.complexfloating, np.void)
# The names of the types of missing values: pandas' NA and NaT, and numpy's masked.
_MISSING = frozenset({"NAType", "NaTType", "MaskedConstant"})
# Types that count as one kind in a list; a bool is not an int there, nor a datetime a date.
_KINDS: Mapping[type, tuple[type, ...]] = {
    bool: (bool, np.bool_),
    int: (int, np.integer),
    float: (float, np.floating),
    str: (str,),
    datetime: (datetime, np.datetime64),
    date: (date,),
}
_REMEDIES = {
    "period": "Convert it in pandas: {column} = {column}.dt.to_timestamp().",
    "interval": "Take its two ends as columns: {column}.array.left and .right.",
    "Sparse": "Convert it in pandas: {column} = {column}.sparse.to_dense().",
    "complex": "Use its real and its imaginary part as two columns: .real and .imag.",
    "float128": 'Round it: {column}.astype("float64").',
    "void": 'Take each of its fields as a column: {column}["field"].',
    "timedelta64": 'Take a number of seconds: {column} / np.timedelta64(1, "s").',
    "datetime64": 'Take days: {column}.astype("datetime64[D]").',
    "category": 'Convert it in pandas: {column} = {column}.astype("string").',
}

# Ways to the rows of tables that are not read as they are, by their packages and the names of their types.
_ROWS = {
    ("deltalake", "DeltaTable"): "polars.scan_delta(table)",
    ("pyarrow", "Dataset"): "polars.scan_pyarrow_dataset(dataset)",
    ("pyiceberg", "Table"): "polars.scan_iceberg(table)",
    ("pyiceberg", "DataScan"): "its rows, scan.to_arrow()",
}
_PLAIN = "numbers, booleans, strings, dates or lists of those."
# For text of a file in another encoding, and for Python's texts with surrogates.
NOT_UTF8 = "Its text was written in another encoding than UTF-8: decode its bytes by that one."
_IN_UTC = (
    'Convert its times to UTC, in pandas with .dt.tz_convert("UTC"); DatePart(time_zone=...) then takes '
    "the hours of a zone."
)

# A frame, and for each column that could not be read the text of its error.
Frame = tuple[pl.LazyFrame, dict[str, str]]


def read_frame(data: Any) -> Frame:
    """Read a frame of any library, or a dict of columns.

    Args:
        data: a Polars or pandas frame, a dict of columns, an Arrow table, record batch or reader,
            or any object with `__arrow_c_stream__`, which is read once, here.

    Returns:
        The columns that Polars can hold, and the reasons why others cannot be read.

    Raises:
        WorkflowError: the data is of another kind, or its columns do not form a table.

    Example:
        >>> frame, conflicts = read_frame({"userId": [7, 9], "note": [1, "x"]})
        >>> frame.collect_schema().names(), list(conflicts)
        (['userId'], ['note'])
    """
    if isinstance(data, pl.LazyFrame):
        return data, {}
    if isinstance(data, pl.DataFrame):
        return _without_objects(data, {}, data.__getitem__)
    if isinstance(data, Mapping):
        return _of_columns(dict(data))
    if (pandas := sys.modules.get("pandas")) and isinstance(data, pandas.DataFrame):
        return _of_pandas(data)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _of_arrow(data)
    raise _no_table(data)


def _no_table(data: Any) -> WorkflowError:
    received, remedy = f"{data!r:.200}", ""
    if isinstance(data, np.ndarray):
        received = f"a numpy array of shape {data.shape} and dtype {data.dtype}"
        remedy = " Give its columns names: {'userId': data[:, 0]}."
        if data.dtype.names:
            remedy = " Give its fields as columns: {name: data[name] for name in data.dtype.names}."
    elif isinstance(data, pl.Series):
        remedy = " Pass series.to_frame()."
    elif (pandas := sys.modules.get("pandas")) and isinstance(data, pandas.Series):
        remedy = SERIES_ADVICE
    else:
        kinds = ((t.__module__.partition(".")[0], t.__name__) for t in type(data).__mro__)
        remedy = next((f" Pass {_ROWS[kind]}." for kind in kinds if kind in _ROWS), "")
    return WorkflowError(
        "Expected paths of parquet, CSV or TSV, a Polars or pandas frame, an Arrow table or stream, or a dict of "
        f"columns. Received: {received}.{remedy}"
    )


def _of_columns(columns: dict[str, Any]) -> Frame:
    for name, values in columns.items():
        if not isinstance(name, str):
            raise WorkflowError(f"Expected names of columns as texts. Received: {name!r}.")
        if isinstance(values, Iterator):
            raise WorkflowError(
                f"Expected column {name!r} as a list, an array or a series. Received: {values!r:.100}, "
                "which can be read only once."
            )
    arrays = {name: v for name, v in columns.items() if isinstance(v, np.ndarray)}
    refused = _refused({name: _type_of(array) for name, array in arrays.items()})
    with polars_errors("The columns of the dict make no table"):
        tables = [*_tables_of(columns)]
    for table in tables:
        frame, conflicts = read_frame(table)
        refused |= conflicts
        columns |= frame.collect().to_dict()
    return _read(
        "the dict",
        columns,
        lambda names: pl.DataFrame({name: _values(columns[name]) for name in names}),
        refused,
        columns.__getitem__,
    )


def _tables_of(columns: Mapping[str, Any]) -> Iterator[Any]:
    """The columns of Arrow as a table, and those of pandas as a frame, whose checks then apply."""
    if arrow := {n: v for n, v in columns.items() if isinstance(v, pa.Array | pa.ChunkedArray)}:
        yield pa.table(arrow)
    if pandas := sys.modules.get("pandas"):
        kinds = (pandas.Series, pandas.Index, pandas.api.extensions.ExtensionArray)
        own = {n: pandas.Series(v) for n, v in columns.items() if isinstance(v, kinds)}
        if own:  # without their indexes, by which pandas would put rows together
            yield pandas.DataFrame({n: series.array for n, series in own.items()}, copy=False)


def _type_of(array: np.ndarray[Any, Any]) -> str:
    fields = f" of the fields {', '.join(array.dtype.names)}" if array.dtype.names else ""
    return f"{array.dtype.name}{fields}" if array.ndim else "no rows: an array without dimensions"


def _values(values: Any) -> Any:
    """A column of a dict as Polars reads it without loss; see `_listed`."""
    if isinstance(values, np.ma.MaskedArray):  # Polars would take the values below the mask
        return pa.array(_for_arrow(values)) if values.ndim == 1 else _listed(list(values))
    if isinstance(values, np.ndarray):
        values = np.asarray(values)  # of numpy's matrix, whose rows are matrices without end
        if values.dtype == object:
            return _listed(values.tolist())
        return in_microseconds(values) if values.dtype.str[1:-1] in _COARSE else values
    return _listed(values) if isinstance(values, list | tuple) else values


def _listed(values: Sequence[Any]) -> Any:
    """Python's and numpy's times as Polars' types, and numbers as the type that holds all of them.

    Polars would confuse the units of times, and take the type of the first number.

    Raises:
        TypeError: times with and without a zone, whose zone Polars would drop; numpy's complex numbers,
            whose imaginary part it would drop; or values of several types.
    """
    kinds = set(map(type, values))
    if _are_missing(kinds):
        return _listed(_without_missing(values))
    if any(issubclass(kind, _NOT_HELD) for kind in kinds):
        raise TypeError("it holds complex numbers, or records")
    if any(issubclass(kind, np.datetime64) for kind in kinds):
        _are_floats(kinds)  # raises for Python's dates beside numpy's times
        return _values(_array_of_times(values))
    if any(issubclass(kind, list | tuple | np.ndarray | pl.Series) for kind in kinds):
        return _lists(values)
    if _are_floats(kinds):
        _expect_exact(values)
        return pl.Series(values, dtype=pl.Float64)
    if datetime in map(_kind, kinds):
        _expect_one_sort(values)
    return list(map(python_number, values)) if _are_of_numpy(kinds) else values


def _lists(rows: Sequence[Any]) -> Any:
    """Lists of one type. Polars would cast all of them to the type of the first one: 2.5 to 2.

    Raises:
        TypeError: they hold values of several types, other than integers and floats.
    """
    rows = [_without_missing(row) if _are_missing(_types(row)) else row for row in rows]
    if any(len(row) for row in rows if isinstance(row, list | tuple | np.ndarray | pl.Series)):
        # numpy's empty array is one of floats, whatever the others hold.
        rows = [[] if isinstance(row, np.ndarray) and not row.size else row for row in rows]
    types = {type_ for row in rows for type_ in _types(row)}
    are_floats = _are_floats(types)
    if are_floats:
        _expect_exact(_elements(rows))
    elif {date, datetime} & set(map(_kind, types)):
        return _lists_of_times(rows, types)
    kinds = set(map(type, rows))
    if len(kinds) > 1 and kinds & {np.ndarray, pl.Series}:  # which Polars takes alone
        return pa.array(list(map(_for_arrow, rows)))
    if are_floats:
        return pl.Series(rows, dtype=pl.List(pl.Float64))
    return list(map(_of_python, rows)) if _are_of_numpy(types) else rows


def _are_missing(types: set[type]) -> bool:
    """Whether there are missing values of pandas, or of numpy's masks, among values of some types."""
    return any(type_.__name__ in _MISSING for type_ in types)


def _without_missing(values: Iterable[Any]) -> list[Any]:
    return [None if type(value).__name__ in _MISSING else value for value in values]


def _for_arrow(row: Any) -> Any:
    """A list as pyarrow takes it: in the byte order of this machine."""
    if isinstance(row, np.ndarray):
        return row.astype(row.dtype.newbyteorder("="), copy=False)
    return row.to_list() if isinstance(row, pl.Series) else row


def _lists_of_times(rows: Sequence[Any], types: set[type]) -> list[Any]:
    lists = [row for row in rows if isinstance(row, list | tuple)]
    _expect_one_sort(e for row in lists for e in row)
    if np.datetime64 in types and any(isinstance(e, np.datetime64) for row in lists for e in row):
        return _lists_of_numpys_times(rows)
    rows = [_times(row) for row in rows]
    kind = next((row.dtype for row in rows if isinstance(row, pl.Series)), None)
    if kind is None:
        return rows
    return [pl.Series(row, dtype=kind) if isinstance(row, list | tuple) else row for row in rows]


def _lists_of_numpys_times(rows: Sequence[Any]) -> list[Any]:
    """Lists of numpy's times. Polars would take their numbers, whatever their unit."""
    lengths = [0 if row is None else len(row) for row in rows]
    elements = [element for row in rows if row is not None for element in row]
    times, ends = pl.Series(_values(_array_of_times(elements))), np.cumsum(lengths).tolist()
    return [
        None if row is None else times[end - length : end]
        for row, length, end in zip(rows, lengths, ends, strict=True)
    ]


def _array_of_times(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Array of numpy's times in the finest of their units, missing ones as NaT.

    Raises:
        TypeError: there are times of Python or of pandas among them, which numpy does not join.
    """
    times = [None if v is None or v != v else v for v in values]  # noqa: PLR0124
    if not all(time is None or isinstance(time, np.datetime64) for time in times):
        raise TypeError("it holds times of numpy beside others")
    # NaT without a unit, which numpy deprecates, counts as one of microseconds.
    dtypes = {v.dtype for v in values if isinstance(v, np.datetime64)} - {np.dtype("M8")}
    return np.array(times, np.result_type(*(dtypes or {np.dtype("M8[us]")})))


def _are_floats(types: set[type]) -> bool:
    """Whether values mix float types, or floats and integers, where Polars would take the first type.

    Raises:
        TypeError: the values are of several types other than these.
    """
    types = types - {type(None)}
    kinds = {_kind(type_) for type_ in types}
    if len(types) > 1 and float in kinds <= {int, float}:
        return True
    if len(kinds) > 1:
        names = sorted(kind.__name__ for kind in kinds)
        raise TypeError(f"it holds values of several types: {', '.join(names)}")
    return False


def _expect_exact(values: Iterable[Any]) -> None:
    """Refuse integers beside floats that would become others."""
    for value in values:
        if isinstance(value, int | np.integer) and int(float(value)) != int(value):
            raise TypeError(f"it holds {value} beside floats, which hold no such number")


def _are_of_numpy(types: set[type]) -> bool:
    """Whether Polars would misread the type of numpy's values: of several types together, and of bools."""
    types = types - {type(None)}
    has_numpy = any(issubclass(type_, np.generic) for type_ in types)
    return has_numpy and (len(types) > 1 or np.bool_ in types)


def _of_python(row: Any) -> Any:
    """A list whose values are Python's."""
    if isinstance(row, list | tuple):
        return list(map(python_number, row))
    return row.tolist() if isinstance(row, np.ndarray) else row


def _times(row: Any) -> Any:
    """A list of times. Of numpy's times Polars would take the numbers, whatever their unit."""
    if isinstance(row, pl.Series) and row.dtype == pl.Datetime:
        return row.dt.cast_time_unit("us")
    if not isinstance(row, np.ndarray) or row.dtype == object:
        return row
    return pl.Series(row if _is_of_days(row) else in_microseconds(row))


def _is_of_days(row: np.ndarray[Any, Any]) -> bool:
    return bool(row.dtype == np.dtype("datetime64[D]"))


def _types(row: Any) -> set[type]:
    """The types of the elements of a list."""
    if isinstance(row, pl.Series):
        return {row.dtype.to_python()}
    if isinstance(row, np.ma.MaskedArray):
        return set(map(type, row))
    if isinstance(row, np.ndarray) and row.dtype != object:
        return {date if _is_of_days(row) else row.dtype.type}
    return set(map(type, row)) if isinstance(row, list | tuple | np.ndarray) else {type(row)}


def _kind(type_: type) -> type:
    """Python's type for a type of another library; any other type stands for itself."""
    return next((kind for kind, types in _KINDS.items() if issubclass(type_, types)), type_)


def _expect_one_sort(values: Iterable[Any]) -> None:
    if len({v.tzinfo is None for v in values if isinstance(v, datetime)}) > 1:
        raise TypeError("it holds times with a zone and without")


def _of_pandas(frame: Any) -> Frame:
    _expect_distinct(list(frame.columns))
    refused = _refused({name: _pandas_type(dtype) for name, dtype in frame.dtypes.items()})
    made, conflicts = _read(
        "the pandas frame",
        frame.columns,
        lambda names: _from_pandas(frame[names]),
        refused,
        frame.__getitem__,
    )
    return made, {str(name): text for name, text in conflicts.items()}


def _pandas_type(dtype: Any) -> str:
    categories = getattr(dtype, "categories", None)
    return str(dtype) if categories is None else f"{_CATEGORY}{categories.dtype}"


def _from_pandas(frame: Any) -> pl.DataFrame:
    objects = {str(n): n for n, dtype in frame.dtypes.items() if str(dtype) == "object"}
    mixed = {name: own for name, own in objects.items() if _holds_misread_arrays(frame[own])}
    try:
        table = _converted(frame, mixed)
    except OverflowError:  # pyarrow's integers of Python's end at 2**63
        table = _converted(frame, objects)
    # Polars takes a column of None alone for strings; without a type of its own, it gets that of the fit.
    for name, own in objects.items():
        if getattr(table[name].dtype, "inner", table[name].dtype).is_temporal():
            _expect_one_time(frame[own])
    untyped = [name for name in objects if table[name].null_count() == table.height]
    return table.with_columns(pl.col(untyped).cast(pl.Null))


def _converted(frame: Any, as_dict: Mapping[str, Any]) -> pl.DataFrame:
    """A pandas frame of which some columns, by the texts of their names, are read as those of a dict."""
    others = frame.drop(columns=[*as_dict.values()])
    swapped = {n: t.newbyteorder("=") for n, t in others.dtypes.items() if _is_swapped(t)}
    table = pl.DataFrame(pl.from_pandas(others.astype(swapped) if swapped else others))
    table.columns = [str(name) for name in others.columns]  # it renames one whose name is empty
    table = table.with_columns(pl.Series(n, _of_objects(frame[o])) for n, o in as_dict.items())
    return table.select(str(name) for name in frame.columns)


def _is_swapped(dtype: Any) -> bool:
    """Whether values are in the byte order of another machine, as in files of HDF5 and FITS."""
    return isinstance(dtype, np.dtype) and not dtype.isnative


def _holds_misread_arrays(column: Any) -> bool:
    """Whether rows are arrays beside lists or arrays of another dtype, in another byte order, or with masks.

    Pyarrow makes floats of integers beside an empty array, ends the process for floats behind times, and
    takes the values below a mask.
    """
    sorts = {
        row.dtype if isinstance(row, np.ndarray) else list
        for row in column
        if isinstance(row, np.ndarray | list | tuple)
    }
    masked = any(isinstance(row, np.ma.MaskedArray) for row in column)
    return masked or len(sorts) > 1 or any(map(_is_swapped, sorts))


def _of_objects(column: Any) -> Any:
    """The rows as those of a dict, in which a missing value is None."""
    missing = column.isna()
    return _listed([None if none else row for row, none in zip(column, missing, strict=True)])


def _expect_one_time(values: Iterable[Any]) -> None:
    """Refuse dates beside times, which pyarrow would cut to days, and times with and without a zone."""
    times = [v for v in _elements(list(values)) if not isinstance(v, float | None)]
    _are_floats(set(map(type, times)))  # raises for dates beside times
    _expect_one_sort(times)


def _of_arrow(data: Any) -> Frame:
    is_reader = isinstance(data, pa.RecordBatchReader)
    try:
        table = data.read_all() if is_reader else pa.table(data)
    except Exception as error:
        # A stream of values that are not rows, such as a pandas series.
        if isinstance(error, UNREADABLE) and not is_reader:
            raise _no_table(data) from error
        # What makes the stream has raised it, such as DuckDB, or a generator behind a reader.
        raise WorkflowError(
            f"The stream of a {type(data).__name__} cannot be read: {first_line(error)}."
        ) from error
    if not table.num_rows and isinstance(data, pa.RecordBatchReader | Iterator):
        raise WorkflowError(
            f"Expected rows. Received: none from a {type(data).__name__}, which can be read once. "
            "If it was read before, make it again, or keep its rows: table = reader.read_all()."
        )
    _expect_distinct(table.column_names)
    refused = extension_errors(table.schema)
    return _read(
        "the Arrow data",
        table.column_names,
        lambda names: _from_arrow(table.select(names)),
        refused,
    )


def _from_arrow(table: pa.Table) -> pl.DataFrame:
    # Polars mistakes the nulls among arrays of a slice; lists hold the same.
    types = [
        pa.list_(t.value_type) if pa.types.is_fixed_size_list(t) else t for t in table.schema.types
    ]
    lists = pa.schema(f.with_type(t) for f, t in zip(table.schema, types, strict=True))
    frame = pl.DataFrame(pl.from_arrow(table.cast(lists)))
    frame.columns = table.column_names  # Polars renames a column whose name is empty
    return frame


def extension_errors(schema: pa.Schema) -> dict[str, str]:
    """Reasons why columns of extension types are not read, by name.

    Polars would read the type's storage instead: a pandas period as the number of days, months or
    years since 1970.

    Example:
        >>> field = pa.field("at", pa.int64(), metadata={"ARROW:extension:name": "pandas.period"})
        >>> list(extension_errors(pa.schema([field, ("n", pa.int64())])))
        ['at']
    """
    extensions = {field.name: _extension(field) for field in schema}
    return {name: extension_error(name, type_) for name, type_ in extensions.items() if type_}


def _extension(field: pa.Field) -> str:
    type_ = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if isinstance(type_, pa.BaseExtensionType):
        return str(type_.extension_name)
    name: bytes = (field.metadata or {}).get(b"ARROW:extension:name", b"")
    return name.decode(errors="replace")


def extension_error(name: str, type_: str) -> str:
    """The error text for a column whose type only another library understands."""
    remedy = "Cast it to plain values first."
    for part, template in _REMEDIES.items():
        if part in type_:
            remedy = template.format(column=f"frame[{name!r}]")
    return (
        f"Expected column {name!r} as numbers, booleans, strings, dates or lists. "
        f"Received: {type_}. {remedy}"
    )


def _refused(types: Mapping[Any, str]) -> dict[Any, str]:
    """Reasons why columns are not read, for types that Polars would misread or cannot name."""
    return {
        n: extension_error(n, type_)
        for n, type_ in types.items()
        if type_.removeprefix(_CATEGORY).startswith(_REFUSED)
    }


def _expect_distinct(names: Sequence[Any]) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise WorkflowError(
            f"Expected distinct names of columns. Received: {listed(map(repr, twice))} twice."
        )


def _read(
    what: str,
    names: Iterable[Any],
    read: Callable[[list[Any]], pl.DataFrame],
    refused: dict[Any, str],
    values: Callable[[Any], Iterable[Any]] = lambda _: (),
) -> Frame:
    """Read all columns at once, or, if that fails, those that can be read.

    Args:
        what: the data, for messages.
        names: names of its columns.
        read: makes a frame of some of them.
        refused: reasons why some are not read, by name.
        values: Python values of a column, if the data has them.
    """
    names = [name for name in names if name not in refused]
    try:
        return _without_objects(_with_sound_texts(read(names)), refused, values)
    except UNREADABLE as error:
        expect_no_interrupt(error)
        conflicts = {n: text for n in names if (text := _conflict(what, n, read, values))}
    with polars_errors(f"The columns of {what} make no table"):
        frame = read([name for name in names if name not in conflicts])
    return _without_objects(frame, refused | conflicts, values)


def _with_sound_texts(frame: pl.DataFrame) -> pl.DataFrame:
    """The same frame, if its texts are UTF-8: pyarrow reads files without a check, and Polars takes its arrays."""
    for series in frame.get_columns():
        if _is_text(series.dtype):
            for chunk in series.get_chunks():
                chunk.to_arrow(compat_level=pl.CompatLevel.newest()).validate(full=True)
    return frame


def _is_text(dtype: Any) -> bool:
    inner = getattr(dtype, "inner", None)
    return dtype in (pl.String, pl.Categorical, pl.Enum) if inner is None else _is_text(inner)


def _without_objects(
    frame: pl.DataFrame, refused: dict[Any, str], values: Callable[[Any], Iterable[Any]]
) -> Frame:
    """A frame without columns of Python objects, which no query can read."""
    objects = [name for name, dtype in frame.schema.items() if _is_object(dtype)]
    reasons = {n: _not_held(n, values(n)) or extension_error(n, "objects") for n in objects}
    return frame.drop(objects).lazy(), refused | reasons


def _is_object(dtype: Any) -> bool:
    inner = getattr(dtype, "inner", None)
    return dtype == pl.Object if inner is None else _is_object(inner)


def _conflict(
    what: str,
    name: Any,
    read: Callable[[list[Any]], pl.DataFrame],
    values: Callable[[Any], Iterable[Any]],
) -> str | None:
    try:
        _with_sound_texts(read([name]))
    except UNREADABLE as error:
        reason = f"Column {name!r} of {what} cannot be read: {first_line(error)}."
        if isinstance(error, UnicodeError) or is_not_utf8(error):
            return f"{reason} {NOT_UTF8}"
        advice = _IN_UTC if _is_of_zone(error) else f"Give its values one type: {_PLAIN}"
        return _not_held(name, values(name)) or f"{reason} {advice}"
    return None


def is_not_utf8(error: BaseException) -> bool:
    """Whether Polars or pyarrow met bytes that are not UTF-8 in a column of texts."""
    return re.search("invalid utf-?8", str(error), re.IGNORECASE) is not None


def _is_of_zone(error: BaseException) -> bool:
    """Whether Polars lacks a zone, such as +05:30; it knows offsets of whole hours, and names."""
    return "time zone" in str(error)


def type_error(schema: pa.Schema) -> str | None:
    """The error text for the first column of a file whose type Polars lacks, if there is one.

    Polars then reads none of the file's columns.

    Example:
        >>> type_error(pa.schema([("n", pa.int64())])) is None
        True
        >>> type_error(pa.schema([("at", pa.timestamp("us", "+05:30"))]))[:63]
        "Polars cannot read its column 'at', timestamp[us, tz=+05:30], a"
    """
    for field in schema:
        try:
            pl.from_arrow(pa.nulls(1, field.type))
        except UNREADABLE as error:
            text = f"Polars cannot read its column {field.name!r}, {field.type}, and so none of the others"
            return f"{text}. {_IN_UTC}" if _is_of_zone(error) else text
    return None


def is_held(dtype: pl.DataType) -> bool:
    """Whether a column can have a type that a file names: Polars has no decimals of 50 digits.

    Example:
        >>> is_held(pl.Decimal(38, 2)), is_held(pl.List(pl.Decimal(50, 2)))
        (True, False)
    """
    try:
        pl.Series(dtype=dtype)
    except pl.exceptions.PolarsError:
        return False
    return True


def _not_held(name: Any, values: Iterable[Any]) -> str | None:
    """The error text for the first value that no column can have, if there is one."""
    # A dict may have one value for all rows.
    for row, value in enumerate(values if isinstance(values, Iterable) else [values]):
        for element in _elements(value):
            if isinstance(element, _NOT_HELD) or not isinstance(element, _HELD):
                return extension_error(name, f"{type(element).__name__} in row {row}")
    return None


def _elements(value: Any) -> Iterator[Any]:
    if type(value).__name__ in _MISSING:
        return
    if isinstance(value, list | tuple | np.ndarray | pl.Series):
        # The rows of a matrix are matrices, and those of an array without dimensions none.
        for element in np.asarray(value).ravel() if isinstance(value, np.ndarray) else value:
            yield from _elements(element)
    else:
        yield value


def zip_advice(path: object, start: bytes) -> str | None:
    """The reason why a file is not read, if its first bytes are those of a zip archive."""
    return f"it is a zip archive. Unpack it first: unzip {path}." if start == ZIP else None


@contextmanager
def polars_errors(what: str) -> Iterator[None]:
    """Turn the errors of Polars and pyarrow about unsupported data into one of ours.

    Args:
        what: the failed action, for the message.

    Raises:
        WorkflowError: `what`, and the reason.
    """
    try:
        yield
    except UNREADABLE as error:
        if isinstance(error, WorkflowError | ExpressionError):
            raise
        expect_no_interrupt(error)
        raise WorkflowError(f"{what}: {unread(error)}.") from error
