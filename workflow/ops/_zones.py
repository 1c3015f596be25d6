"""Time zones as tables of offsets, so that a server needs no time zone database."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import polars as pl

from workflow.errors import WorkflowError
from workflow.operator.checks import require
from workflow.schema.column import Array

Offsets = Sequence[Sequence[int]]

_DAY = 86_400
# Before 1840 clocks followed the sun, and Polars knows the rules of zones up to 2100.
_YEARS = ("1840-01-01", "2101-01-01")
# No offset of any zone has been in force for less than six days.
_STEP = _DAY
# Beyond the years that int64 microseconds can represent.
_FAR = 2**44


@lru_cache(maxsize=64)
def offsets_of(zone: str) -> Offsets:
    """The offsets of a time zone from UTC, according to Polars.

    Args:
        zone: its name.

    Returns:
        Seconds since 1970-01-01 UTC and the offset in seconds that applies from then on, ascending.

    Raises:
        WorkflowError: there is no such zone.

    Example:
        >>> offsets_of("Asia/Kolkata")[-1]
        [-764145000, 19800]
    """
    expect_zone(zone)
    first, last = np.array(_YEARS, "datetime64[s]").astype(np.int64).tolist()
    moments = np.arange(first, last, _STEP)
    offsets = _offsets(moments, zone)
    change = np.flatnonzero(offsets[1:] != offsets[:-1])
    # The second from which an offset applies is after `before` and not after `since`.
    before, since, held = moments[change], moments[change + 1], offsets[change + 1]
    while np.any(since - before > 1):
        middle = (before + since) // 2
        is_new = _offsets(middle, zone) == held
        before, since = np.where(is_new, before, middle), np.where(is_new, middle, since)
    starts = [first, *since.tolist()]
    return [list(pair) for pair in zip(starts, [int(offsets[0]), *held.tolist()], strict=True)]


def _offsets(moments: Array, zone: str) -> Array:
    utc = pl.Series(moments * 1_000).cast(pl.Datetime("ms", "UTC"))
    local = utc.dt.convert_time_zone(zone).dt.replace_time_zone(None)
    seconds: Array = local.cast(pl.Int64).to_numpy() // 1_000 - moments
    return seconds


def expect_zone(zone: str) -> None:
    """Refuse a text that is not the name of a time zone.

    Raises:
        WorkflowError: Polars knows no such zone.
    """
    try:
        pl.Series([0]).cast(pl.Datetime("us", "UTC")).dt.convert_time_zone(zone)
    except pl.exceptions.PolarsError:
        raise WorkflowError(
            'Expected the name of a time zone, such as "America/New_York" or "UTC". '
            f"Received: {zone!r:.100}."
        ) from None


def expect_offsets(zone: str, offsets: Offsets) -> None:
    """Refuse invalid offsets of a time zone, as a file may contain.

    Raises:
        WorkflowError: they do not ascend, or are of a day or more.
    """
    pairs = bool(offsets) and all(len(pair) == 2 for pair in offsets)
    starts = [pair[0] for pair in offsets] if pairs else []
    require(
        pairs
        and all(one < other for one, other in pairwise(starts))
        and all(abs(since) < _FAR and abs(offset) < _DAY for since, offset in offsets),
        "DatePart takes zone_offsets as [[second since 1970-01-01 UTC, offset in seconds], ...], "
        f"ascending, of less than a day. Received: {offsets!r:.200} for {zone!r}.",
    )
