"""Dates and times of different kinds: the intention is unknown, so the user has to state it."""

from __future__ import annotations

import numpy as np

from .column import Array
from .schema import DATE, NAIVE, ColumnSchema, are_alike_times, time_name

_NAIVE_AS_ZONE = (
    "Say which zone its hours are of: .dt.replace_time_zone({zone!r}) in Polars, "
    ".dt.tz_localize({zone!r}) in pandas."
)
_ZONE_AS_NAIVE = (
    "Take the hours of the zone that was meant: .dt.convert_time_zone({zone!r})"
    ".dt.replace_time_zone(None) in Polars, .dt.tz_convert({zone!r}).dt.tz_localize(None) in pandas."
)
# The most microseconds of numpy's units from milliseconds on.
_DAY = 86_400_000_000
_LONGEST = {"Y": 366 * _DAY, "M": 31 * _DAY, "W": 7 * _DAY, "D": _DAY, "h": _DAY // 24}
_LONGEST |= {"m": 60_000_000, "s": 1_000_000, "ms": 1_000}
_DATE_AS_TIME = "A date has no hour. Send the times, or .cast(pl.Datetime) where midnight is meant."
_TIME_AS_DATE = "Cut the hours off: .dt.date() in Polars, .dt.date in pandas."
_TIME_AS_NUMBER = (
    'Count it in the unit of the numbers, such as .dt.epoch("s") in Polars, '
    '.dt.as_unit("s").astype("int64") in pandas.'
)
_TIME_AS_TEXT = "Write it in the form of the texts: .dt.to_string(format) in Polars, .dt.strftime(format) in pandas."
_NUMBER_AS_TIME = (
    'Say what it counts: pl.from_epoch(column, "s") in Polars, '
    'pandas.to_datetime(column, unit="s") in pandas.'
)
_TEXT_AS_TIME = "Parse it: .str.to_datetime() in Polars, pandas.to_datetime(column) in pandas."
_TEXT_AS_DATE = "Parse it: .str.to_date() in Polars, pandas.to_datetime(column).dt.date in pandas."


def remedy(wanted: str, received: str, dtype: str = "int64") -> str:
    """Advice for values that do not compare, if either are dates or times.

    Args:
        wanted: what is expected, a value of `ColumnSchema.time`.
        received: what came, likewise.
        dtype: dtype of those of the two that are not times, if any.

    Returns:
        "" if neither are times, or if they compare.

    Example:
        >>> remedy("date", "naive")
        'Cut the hours off: .dt.date() in Polars, .dt.date in pandas.'
    """
    if are_alike_times(wanted, received):
        return ""
    if not received:
        parsed = _TEXT_AS_DATE if wanted == DATE else _TEXT_AS_TIME
        return parsed if dtype == "string" else _NUMBER_AS_TIME
    by_kind = {
        "": _TIME_AS_TEXT if dtype == "string" else _TIME_AS_NUMBER,
        DATE: _TIME_AS_DATE,
        NAIVE: _DATE_AS_TIME if received == DATE else _ZONE_AS_NAIVE.format(zone=received),
    }
    other = _DATE_AS_TIME if received == DATE else _NAIVE_AS_ZONE.format(zone=wanted)
    return by_kind.get(wanted, other)


def unlike_times(what: str, wanted: ColumnSchema, received: ColumnSchema) -> str:
    """The reason why values do not compare with a column, with advice.

    Args:
        what: a name for the values, for the message.
        wanted: the column.
        received: schema of the values.

    Returns:
        "" if they compare.
    """
    if are_alike_times(wanted.time, received.time):
        return ""
    have, want = (time_name(c.time) or c.dtype for c in (received, wanted))
    if wanted.time:
        advice = remedy(wanted.time, received.time, received.dtype)
    else:
        advice = f"Column {wanted.name!r}: {remedy(received.time, '', wanted.dtype)}"
    return f"Expected {what} as {want}, like column {wanted.name!r}. Received: {have}. {advice}"


def in_microseconds(values: Array) -> Array:
    """An array of `datetime64` of any unit as microseconds.

    Args:
        values: shape (N,).

    Returns:
        Shape (N,), `datetime64[us]`; finer units are rounded down, and values out of range are NaT,
        where numpy's own cast wraps around or, from 2.5 on, raises OverflowError.

    Example:
        >>> in_microseconds(np.array([7, 2**60]).view("datetime64[s]"))
        array(['1970-01-01T00:00:07.000000',                        'NaT'],
              dtype='datetime64[us]')
    """
    unit, count = np.datetime_data(values.dtype)
    if unit in _LONGEST:
        last = (2**63 - 1) // (_LONGEST[unit] * count)
        numbers, values = values.view(np.int64), values.copy()
        values[(numbers < -last) | (numbers > last)] = np.datetime64("NaT", "us")
    return values.astype("datetime64[us]")
