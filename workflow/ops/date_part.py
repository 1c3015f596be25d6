"""DatePart: year, month, hour and other parts of dates and times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from workflow.expressions.language.tree import Expression, where
from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, State
from workflow.operator.operator import Example, Operator
from workflow.schema.column import Column
from workflow.schema.schema import DATE, NAIVE, ColumnSchema, Tags

from ._zones import expect_offsets, offsets_of

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
UNITS: Mapping[str, int] = {"us": 1, "ms": 1_000, "s": _SECOND, "D": _DAY}


class _Calendar:
    """The parts of times, as expressions; subexpressions that parts share are computed once.

    Days are counted in eras of 400 years, 146,097 days, and within an era in years that begin on
    1 March, so that the leap day is a year's last.

    Source: Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days, 2013.
    """

    def __init__(self, time: Expression, unit: int) -> None:
        self._time, self._unit = time, unit

    def of_day(self, length: int, count: int) -> Expression:
        """Index of the interval, among `count` in a day, each with a length in microseconds."""
        if self._unit >= length * count:
            return self._time * 0
        return self._time // (length // self._unit) % count

    @cached_property
    def days(self) -> Expression:
        """Days since 1970-01-01."""
        return self._time // (_DAY // self._unit)

    @cached_property
    def _since_march(self) -> Expression:
        """Days since the start of an era on 1 March, fewer than two eras.

        The days are reduced first, since adding the 719,468 days from 1 March of the year 0 to 1970
        would overflow at the end of int64.
        """
        return self.days % 146_097 + 719_468 % 146_097

    @cached_property
    def _era(self) -> Expression:
        return self.days // 146_097 + 719_468 // 146_097 + self._since_march // 146_097

    @cached_property
    def _day_of_era(self) -> Expression:
        return self._since_march % 146_097

    @cached_property
    def _year_of_era(self) -> Expression:
        day = self._day_of_era
        return (day - day // 1_460 + day // 36_524 - day // 146_096) // 365

    @cached_property
    def _day_of_year(self) -> Expression:
        """Days since 1 March."""
        year = self._year_of_era
        return self._day_of_era - (year * 365 + year // 4 - year // 100)

    @cached_property
    def _months(self) -> Expression:
        """Months since March."""
        return (self._day_of_year * 5 + 2) // 153

    @cached_property
    def year(self) -> Expression:
        """The year."""
        year = self._era * 400 + self._year_of_era
        return year + (self._months > 9).cast("int64")

    @cached_property
    def month(self) -> Expression:
        """The month, from 1."""
        return (self._months + 2) % 12 + 1

    @cached_property
    def day(self) -> Expression:
        """The day of the month, from 1."""
        return self._day_of_year - (self._months * 153 + 2) // 5 + 1

    @cached_property
    def dayofyear(self) -> Expression:
        """The day of the year, from 1."""
        year = self._year_of_era
        leap = (year % 4 == 0) & ((year % 100 != 0) | (year == 0))
        since_march = self._day_of_year + 60 + leap.cast("int64")
        return where(self._months > 9, self._day_of_year - 305, since_march)


# For each part: its expression, and its least and greatest value if these are few.
_PARTS: Mapping[str, tuple[Callable[[_Calendar], Expression], tuple[int, int] | None]] = {
    "year": (lambda c: c.year, None),
    "quarter": (lambda c: (c.month + 2) // 3, (1, 4)),
    "month": (lambda c: c.month, (1, 12)),
    "day": (lambda c: c.day, (1, 31)),
    "dayofyear": (lambda c: c.dayofyear, (1, 366)),
    "weekday": (lambda c: (c.days % 7 + 3) % 7, (0, 6)),
    "hour": (lambda c: c.of_day(3_600 * _SECOND, 24), (0, 23)),
    "minute": (lambda c: c.of_day(60 * _SECOND, 60), (0, 59)),
    "second": (lambda c: c.of_day(_SECOND, 60), (0, 59)),
}


@dataclass(frozen=True)
class DatePart(Operator):
    """Split dates and times into parts: `<column>_<part>`, int32, for each part.

    Times with a zone have the hours of that zone, as in Polars and pandas, or of `time_zone`; new
    data may have another zone, but the parts remain those of the zone in `fit`. Times without a
    zone have the hours that they show. The calendar is the Gregorian one, also before its
    introduction. Null stays null. Each element of a list is split. All parts except the year have a
    `cardinality`; a year outside int32 becomes the nearest one inside.

    Args:
        parts: any of "year", "quarter" (1 to 4), "month" (1 to 12), "day" (1 to 31), "dayofyear" (1
            to 366), "weekday" (0 is Monday, as in Python), "hour", "minute" and "second".
        unit: the unit of integers that count from 1970-01-01 UTC: "s", "ms", "us" or "D", days. Not
            for columns of dates and times.
        time_zone: the zone of the parts, such as "America/New_York"; by default the zone of the
            column, and UTC for integers. Summer time follows Polars until 2100; after that it is
            standard time all year.
        zone_offsets: the offsets of zones from UTC, in seconds, each with the second since
            1970-01-01 UTC from which it applies: `{"Asia/Tokyo": [[0, 32400]]}`. By default those
            of Polars; a saved workflow stores the offsets in use when it was saved.

    Raises:
        WorkflowError: an unknown part, unit or zone; a column that holds neither times nor
            integers; integers without a unit, or times with one; a time zone for dates or for times
            without a zone, which are not moments.

    Example:
        >>> rated = ["timestamp"] >> DatePart(["weekday", "hour"], unit="s")
        >>> local = ["departure"] >> DatePart(["hour"], time_zone="America/New_York")
    """

    parts: Sequence[str] = ("year", "month", "day", "weekday")
    unit: str | None = None
    time_zone: str | None = None
    zone_offsets: Mapping[str, Sequence[Sequence[int]]] | None = None

    def _check_settings(self) -> None:
        known = bool(self.parts) and all(part in _PARTS for part in self.parts)
        require(
            known and len({*self.parts}) == len(self.parts),
            f"DatePart takes a list of {', '.join(_PARTS)}, each once. Received: {self.parts!r}.",
        )
        require(
            self.unit is None or self.unit in UNITS,
            f"DatePart takes unit as one of {', '.join(UNITS)}. Received: {self.unit!r}.",
        )
        require(
            self.unit != "D" or self.time_zone is None,
            f'DatePart takes no time_zone with unit "D": days have none. Received: {self.time_zone!r}.',
        )
        for zone, offsets in (self.zone_offsets or {}).items():
            expect_offsets(zone, offsets)
        if self.time_zone is not None:
            self._offsets(self.time_zone)

    @classmethod
    def examples(cls) -> list[Example]:
        """Times of each unit, before 1970, on leap days and at the ends of int64, and lists."""
        micros = {"at": [0, -1, 951_782_400_000_000, None, 1_709_251_199_999_999]}
        seconds = {"at": [[1_709_164_800, None], [], None, [-2_203_891_201]]}
        # An hour that occurs twice, and the second before an hour that is skipped.
        edges = [1_730_611_800, 1_730_615_400, None, 1_710_053_999, 1_710_054_000, -5_000_000_000]
        aware = {
            "at": pl.from_epoch(pl.Series(edges))
            .dt.replace_time_zone("UTC")
            .dt.convert_time_zone("America/New_York")
        }
        return [
            Example(cls(unit="us"), micros, {"at": [2**63 - 1, -(2**63)]}),
            Example(cls(list(_PARTS), unit="us"), micros),
            Example(cls(["weekday", "hour", "dayofyear"], unit="s"), seconds),
            Example(cls(["second", "month"], unit="ms"), micros),
            Example(
                cls(["year", "weekday", "day", "hour"], unit="D"),
                {"at": [0, -141_428, 19_782, None]},
                {"at": [2**63 - 1, -(2**63)]},
            ),
            Example(cls(["hour", "day"], "s", "America/New_York"), {"at": edges}),
            Example(cls(["hour", "minute"], "s", "Asia/Kolkata"), seconds),
            Example(cls(["hour"], "us", "Etc/GMT+3"), micros),
            Example(cls(list(_PARTS)), aware),
        ]

    def id_columns(self, columns: Iterable[str]) -> list[str]:
        """The columns, if they count in a unit."""
        return [] if self.unit is None else self.own_columns(columns)

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """The parts of each column."""
        outputs: Features = {}
        for name, feature in columns.items():
            self._expect_times(feature)
            calendar = _Calendar(self._local(feature), self._unit)
            for part in self.parts:
                function, limits = _PARTS[part]
                value = function(calendar).cast("int32")
                outputs[f"{name}_{part}"] = _feature(f"{name}_{part}", value, feature, limits)
        return outputs

    def to_config(self, columns: Features) -> dict[str, Any]:
        """The settings, and the offsets of the zones in the settings and the columns."""
        zones = {zone for feature in columns.values() if (zone := self._zone(feature.schema))}
        offsets = {zone: self._offsets(zone) for zone in sorted(zones)}
        return {**super().to_config(columns), "zone_offsets": offsets or None}

    def _local(self, feature: Feature) -> Expression:
        """The time on a clock in the zone, in the unit since 1970-01-01."""
        time, zone = feature.expression.cast("int64"), self._zone(feature.schema)
        if zone is None:
            return time
        starts, offsets = np.array(self._offsets(zone), np.int64).T * (_SECOND // self._unit)
        if len(offsets) == 1:
            return time + int(offsets[0])
        # The first offset applies to all earlier times as well.
        period = time.bucketize(Column(starts[1:].copy()))
        return time + period.gather(Column(offsets.copy())).fill_null(0)

    @property
    def _unit(self) -> int:
        """The unit in microseconds."""
        return UNITS[self.unit or "us"]

    def _zone(self, column: ColumnSchema) -> str | None:
        """The zone whose hours are wanted; None if the column's values show them already."""
        column_zone = None if column.time in ("", DATE, NAIVE) else column.time
        zone = self.time_zone or column_zone
        return None if zone == "UTC" else zone

    def _offsets(self, zone: str) -> Sequence[Sequence[int]]:
        return (self.zone_offsets or {}).get(zone) or offsets_of(zone)

    def _expect_times(self, feature: Feature) -> None:
        column = feature.schema
        advice = (
            " Parse it first, with .str.to_datetime() in Polars."
            if column.dtype == "string"
            else ""
        )
        require(
            column.info.is_integer,
            "DatePart needs dates, times or integers that count from 1970-01-01. "
            f"Received: column {column.name!r}, {column}.{advice}",
        )
        require(
            bool(column.time) or self.unit is not None,
            f"DatePart needs unit, one of {', '.join(map(repr, UNITS))}: the unit in which column "
            f"{column.name!r} counts from 1970-01-01. Received: {column}.",
        )
        require(
            not column.time or self.unit is None,
            f"DatePart takes unit for integers alone, and column {column.name!r} is {column}. "
            f"Leave it out. Received: {self.unit!r}.",
        )
        require(
            column.time not in (DATE, NAIVE) or self.time_zone is None,
            f"DatePart finds the hours of {self.time_zone!r} only for times with a known zone. "
            f"Received: column {column.name!r}, {column}. Set the zone of its hours with "
            ".dt.replace_time_zone(zone) in Polars, or leave time_zone out.",
        )


def _feature(
    name: str, value: Expression, source: Feature, limits: tuple[int, int] | None
) -> Feature:
    if limits is None:
        return Feature.of(name, value, source.schema)
    least, most = limits
    facts = {"cardinality": most + 1, "domain": {"min": least, "max": most}}
    return Feature.of(name, value, source.schema, tags=(Tags.CATEGORICAL,), properties=facts)
