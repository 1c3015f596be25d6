"""Dates and times in the model's form: microseconds since 1970-01-01, int64.

As in training: a date has to be a date, a time without a zone such a time, and for a time with a
zone the moment counts. Any other conversion would change the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np

from serving.inputs.cast import refused
from workflow.schema.column import Array
from workflow.schema.schema import DATE, NAIVE, are_alike_times, time_name
from workflow.schema.times import in_microseconds, remedy
from workflow.wire.format import WireColumn

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS = {"D": DATE, **dict.fromkeys(("h", "m", "s", "ms", "us", "ns"), NAIVE)}


def from_datetimes(column: WireColumn, values: Array, time: str = "") -> tuple[Array, Array | None]:
    """An array of `datetime64` as microseconds, and a mask without NaT and times out of range.

    Args:
        column: the expected column.
        values: shape (N,).
        time: the kind of times, if the dtype does not determine it: the name of a zone, for times
            in UTC.

    Raises:
        DtypeError: the column holds times of another kind.

    Example:
        >>> days = np.array(["1970-01-02", "NaT"], "datetime64[D]")
        >>> from_datetimes(WireColumn("day", "int64", time="date"), days)[1].tolist()
        [True, False]
    """
    time = time or _KINDS.get(np.datetime_data(values.dtype)[0], "")
    expect_time(column, time, time_name(time) or str(values.dtype))
    microseconds = in_microseconds(values)
    valid = ~np.isnat(microseconds)
    return microseconds.astype(np.int64), None if valid.all() else valid


def from_values(column: WireColumn, values: Sequence[Any]) -> tuple[Array, Array | None]:
    """Dates or times of Python, numpy or pandas as microseconds, and a mask of present values.

    Raises:
        DtypeError: a value is not a time, or is of another kind than the column's.

    Example:
        >>> from_values(WireColumn("day", "int64", time="date"), [date(1970, 1, 2)])[0].tolist()
        [86400000000]
    """
    microseconds = np.zeros(len(values), np.int64)
    valid = np.ones(len(values), bool)
    for row, value in enumerate(values):
        if _is_missing(value):
            valid[row] = False
        else:
            microseconds[row] = _microseconds(column, value, row)
    return microseconds, None if valid.all() else valid


def _is_missing(value: Any) -> bool:
    """Whether it is None, NaN, NaT, out of range or pandas' NA, without importing pandas."""
    if isinstance(value, np.datetime64):
        return bool(np.isnat(in_microseconds(np.array(value))))
    if isinstance(value, (float, datetime)):
        return bool(value != value)  # noqa: PLR0124
    return value is None or type(value).__name__ == "NAType"


def _microseconds(column: WireColumn, value: Any, row: int) -> int:
    time = time_of(value)
    place = "element" if column.is_list else "row"
    expect_time(
        column,
        time,
        f"{value!r:.80} ({time_name(time) or type(value).__name__}) in {place} {row}",
        "string" if isinstance(value, str) else "int64",
    )
    if isinstance(value, np.datetime64):
        return int(value.astype("datetime64[us]").astype(np.int64))
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // timedelta(microseconds=1)
    return (value.toordinal() - _EPOCH.toordinal()) * 86_400_000_000


def time_of(value: Any) -> str:
    """The kind of a date or time, UTC for any zone, since the moment counts; "" of other values."""
    if isinstance(value, np.datetime64):
        return _KINDS.get(np.datetime_data(value.dtype)[0], "")
    if isinstance(value, datetime):
        return NAIVE if value.tzinfo is None else "UTC"
    return DATE if isinstance(value, date) else ""


def expect_time(column: WireColumn, time: str, received: str, dtype: str = "int64") -> None:
    """Refuse times of another kind than the column's.

    Args:
        column: the expected column, of times.
        time: the kind of the received times, "" if they are not times.
        received: a description of them, for the message.
        dtype: their dtype, if they are not times.

    Raises:
        DtypeError: includes how to convert them.
    """
    if not time or not are_alike_times(column.time, time):
        raise refused(column, received, remedy(column.time, time, dtype))
