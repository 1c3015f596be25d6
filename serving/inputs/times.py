"""Dates and times as a model takes them: microseconds since 1970-01-01 UTC, int64."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np

from workflow.expressions.column import Array

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def from_datetimes(values: Array) -> tuple[Array, Array | None]:
    """An array of `datetime64` of any unit in UTC as microseconds, and where it is not NaT.

    Example:
        >>> from_datetimes(np.array(["1970-01-02", "NaT"], "datetime64[D]"))[1].tolist()
        [True, False]
    """
    valid = ~np.isnat(values)
    return values.astype("datetime64[us]").astype(np.int64), None if valid.all() else valid


def from_python(value: Any) -> Any:
    """A date or time of Python or numpy as microseconds, anything else as it is; without a zone it is UTC.

    Example:
        >>> from_python(date(1970, 1, 2))
        86400000000
    """
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else value.astype("datetime64[us]").astype(np.int64)
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value.toordinal() - _EPOCH.toordinal()) * 86_400_000_000
    return value
