"""Frames of other libraries as Polars frames, column by column where not all of them can be read."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from .errors import WorkflowError, listed
from .expressions.types import ExpressionError
from .times import in_microseconds

# Raised by Polars and pyarrow at values that they cannot take; `PanicException` is no `Exception`.
UNREADABLE = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    pa.ArrowException,
    TypeError,
    ValueError,
    OverflowError,
    AttributeError,
)

# numpy's units of times that Polars has none of.
_COARSE = ("M8[s", "M8[m", "M8[h")

# What no column can be, and what to do about it.
_REFUSED = (
    *("period[", "interval[", "Sparse[", "complex", "timedelta64"),
    *("datetime64[Y", "datetime64[M", "datetime64[W"),
)
_REMEDIES = {
    "period": "Convert it in pandas: {column} = {column}.dt.to_timestamp().",
    "Sparse": "Convert it in pandas: {column} = {column}.sparse.to_dense().",
    "complex": "Take its real and its imaginary part as columns of their own: .real and .imag.",
    "timedelta64": 'Take a number of seconds: {column} / np.timedelta64(1, "s").',
    "datetime64": 'Take days: {column}.astype("datetime64[D]").',
}

# A frame, and the columns that it lacks: an error's text by the column's name.
Frame = tuple[pl.LazyFrame, dict[str, str]]


def read_frame(data: Any) -> Frame:
    """A frame, or a dict of columns, of any library.

    Args:
        data: a Polars or pandas frame, a dict of columns, an Arrow table, record batch or reader,
            or any object with `__arrow_c_stream__`, which is read once, here.

    Returns:
        the columns that Polars can hold, and why the others cannot be read.

    Raises:
        WorkflowError: the data is of another kind, or its columns do not make a table.

    Example:
        >>> frame, conflicts = read_frame({"userId": [7, 9], "note": [1, "x"]})
        >>> frame.collect_schema().names(), list(conflicts)
        (['userId'], ['note'])
    """
    if isinstance(data, pl.LazyFrame):
        return data, {}
    if isinstance(data, pl.DataFrame):
        return data.lazy(), {}
    if isinstance(data, Mapping):
        return _of_columns(dict(data))
    if (pandas := sys.modules.get("pandas")) and isinstance(data, pandas.DataFrame):
        return _of_pandas(data)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _of_arrow(data)
    raise _no_table(data)


def _no_table(data: Any) -> WorkflowError:
    return WorkflowError(
        "Expected parquet paths, a Polars or pandas frame, an Arrow table or stream, or a dict of "
        f"columns. Received: {data!r:.200}."
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
    refused = _refused({n: str(v.dtype) for n, v in columns.items() if isinstance(v, np.ndarray)})
    read, conflicts = _read(
        "the dict",
        [name for name in columns if name not in refused],
        lambda names: pl.DataFrame({name: _values(columns[name]) for name in names}),
    )
    return read, conflicts | refused


def _values(values: Any) -> Any:
    """Python's and numpy's times as Polars has them; of a list it would take any unit for another.

    Raises:
        TypeError: there are times with a zone and without, of which Polars would drop the zone.
    """
    if isinstance(values, np.ndarray):
        return in_microseconds(values) if values.dtype.str[1:-1] in _COARSE else values
    if not isinstance(values, list | tuple):
        return values
    if any(isinstance(value, np.datetime64) for value in values):
        return _values(np.array([np.datetime64("NaT") if v is None else v for v in values]))
    if len({v.tzinfo is None for v in values if isinstance(v, datetime)}) > 1:
        raise TypeError("it holds times with a zone and without")
    return values


def _of_pandas(frame: Any) -> Frame:
    _expect_distinct(list(frame.columns))
    refused = _refused({name: str(dtype) for name, dtype in frame.dtypes.items()})
    names = [name for name in frame.columns if name not in refused]
    read, conflicts = _read(
        "the pandas frame", names, lambda names: pl.DataFrame(pl.from_pandas(frame[names]))
    )
    return read, conflicts | refused


def _of_arrow(data: Any) -> Frame:
    try:
        table = pa.table(data)
    except UNREADABLE as error:  # a stream of values that are no rows, as a pandas series
        raise _no_table(data) from error
    _expect_distinct(table.column_names)
    refused = extension_errors(table.schema)
    names = [name for name in table.column_names if name not in refused]
    read, conflicts = _read(
        "the Arrow data", names, lambda names: pl.DataFrame(pl.from_arrow(table.select(names)))
    )
    return read, conflicts | refused


def extension_errors(schema: pa.Schema) -> dict[str, str]:
    """Why columns of extension types are not read, by their names.

    Polars would read the type's storage in its place: a pandas period as the number of days,
    months or years since 1970.

    Example:
        >>> field = pa.field("at", pa.int64(), metadata={"ARROW:extension:name": "pandas.period"})
        >>> list(extension_errors(pa.schema([field, ("n", pa.int64())])))
        ['at']
    """
    found = {field.name: _extension(field) for field in schema}
    return {name: extension_error(name, type_) for name, type_ in found.items() if type_}


def _extension(field: pa.Field) -> str:
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    name: bytes = (field.metadata or {}).get(b"ARROW:extension:name", b"")
    return name.decode(errors="replace")


def extension_error(name: str, type_: str) -> str:
    """The text for a column whose type only another library understands."""
    remedy = "Cast it to plain values first."
    for part, other in _REMEDIES.items():
        if part in type_:
            remedy = other.format(column=f"frame[{name!r}]")
    return (
        f"Expected column {name!r} as numbers, booleans, strings, dates or lists. "
        f"Received: {type_}. {remedy}"
    )


def _refused(types: Mapping[Any, str]) -> dict[Any, str]:
    """Why columns are not read, of those with types that Polars would misread or call by no name."""
    return {
        n: extension_error(n, type_) for n, type_ in types.items() if type_.startswith(_REFUSED)
    }


def _expect_distinct(names: Sequence[Any]) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise WorkflowError(
            f"Expected distinct names of columns. Received: {listed(map(repr, twice))} twice."
        )


def _read(what: str, names: Sequence[Any], read: Callable[[list[Any]], pl.DataFrame]) -> Frame:
    """Read all columns at once, or, where that fails, those that can be read."""
    try:
        return read(list(names)).lazy(), {}
    except UNREADABLE:
        conflicts = {name: text for name in names if (text := _conflict(what, name, read))}
    with polars_errors(f"The columns of {what} make no table"):
        return read([name for name in names if name not in conflicts]).lazy(), conflicts


def _conflict(what: str, name: Any, read: Callable[[list[Any]], pl.DataFrame]) -> str | None:
    try:
        read([name])
    except UNREADABLE as error:
        return (
            f"Column {name!r} of {what} cannot be read: {first_line(error)}. Give its values one "
            "type: numbers, booleans, strings, dates or lists of those."
        )
    return None


def first_line(error: BaseException) -> str:
    """An error's text without Polars' hints, which are for its own users.

    Example:
        >>> first_line(ValueError("no number."))
        'no number'
    """
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")


@contextmanager
def polars_errors(what: str) -> Iterator[None]:
    """Turn the errors of Polars and pyarrow at data that they cannot take into one of ours.

    Args:
        what: what cannot be done.

    Raises:
        WorkflowError: `what`, and the reason.
    """
    try:
        yield
    except UNREADABLE as error:
        if isinstance(error, WorkflowError | ExpressionError):
            raise
        raise WorkflowError(f"{what}: {first_line(error)}.") from error
