"""DatePart: year, month, hour and the like of dates and times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from workflow.checks import require
from workflow.expressions.tree import Expression, where
from workflow.feature import Feature, Features
from workflow.operator import Example, Operator, State
from workflow.schema import Tags

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
UNITS: Mapping[str, int] = {"us": 1, "ms": 1_000, "s": _SECOND, "D": _DAY}


class _Calendar:
    """The parts of times, as expressions; what several parts need is computed once.

    Days are counted in eras of 400 years, 146,097 days, and within an era in years that begin on
    1 March, so that the leap day is a year's last.

    Source: Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days, 2013.
    """

    def __init__(self, time: Expression, unit: int) -> None:
        self._time, self._unit = time, unit

    def of_day(self, length: int, count: int) -> Expression:
        """Which of the `count` intervals of a length in microseconds it is."""
        if self._unit >= length * count:
            return self._time * 0
        return self._time // (length // self._unit) % count

    @cached_property
    def days(self) -> Expression:
        """Days since 1970-01-01."""
        return self._time // (_DAY // self._unit)

    @cached_property
    def _since_march(self) -> Expression:
        """Days since a 1 March that begins an era, fewer than two eras.

        The days are reduced first, since adding the 719,468 days from 1 March of the year 0 to
        1970 would wrap round at the end of int64.
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


# Each part: how it is computed, and its least and greatest value where these are few.
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
    """Take dates and times apart: `<column>_<part>`, int32, for each part.

    Columns of dates and times are read as microseconds since 1970-01-01 UTC, so hours are hours of
    UTC. The calendar is the Gregorian one, also before it was introduced. Null stays null. Of a
    list each element is taken apart. The parts but for the year have a `cardinality`; a year that
    int32 does not hold is the nearest that it does.

    Args:
        parts: of "year", "quarter" (1 to 4), "month" (1 to 12), "day" (1 to 31), "dayofyear" (1 to
            366), "weekday" (0 is Monday, as in Python), "hour", "minute" and "second".
        unit: what a column of integers counts since 1970-01-01 UTC: "s", "ms", "us" or "D", days.

    Raises:
        WorkflowError: an unknown part or unit, a column that holds neither times nor integers, or
            a column of dates with another unit than "us".

    Example:
        >>> rated = ["timestamp"] >> DatePart(["weekday", "hour"], unit="s")
    """

    parts: Sequence[str] = ("year", "month", "day", "weekday")
    unit: str = "us"

    def _check_settings(self) -> None:
        known = bool(self.parts) and all(part in _PARTS for part in self.parts)
        require(
            known and len({*self.parts}) == len(self.parts),
            f"DatePart takes a list of {', '.join(_PARTS)}, each once. Received: {self.parts!r}.",
        )
        require(
            self.unit in UNITS,
            f"DatePart takes unit as one of {', '.join(UNITS)}. Received: {self.unit!r}.",
        )

    @classmethod
    def examples(cls) -> list[Example]:
        """Times of each unit, before 1970, on leap days and at the ends of int64, and lists."""
        micros = {"at": [0, -1, 951_782_400_000_000, None, 1_709_251_199_999_999]}
        seconds = {"at": [[1_709_164_800, None], [], None, [-2_203_891_201]]}
        return [
            Example(cls(), micros, {"at": [2**63 - 1, -(2**63)]}),
            Example(cls(list(_PARTS)), micros),
            Example(cls(["weekday", "hour", "dayofyear"], unit="s"), seconds),
            Example(cls(["second", "month"], unit="ms"), micros),
            Example(
                cls(["year", "weekday", "day", "hour"], unit="D"),
                {"at": [0, -141_428, 19_782, None]},
                {"at": [2**63 - 1, -(2**63)]},
            ),
        ]

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """The parts of each column."""
        made: Features = {}
        for name, feature in columns.items():
            self._expect_times(feature)
            time = feature.expression.cast("int64")
            calendar = _Calendar(time, UNITS[self.unit])
            for part in self.parts:
                function, limits = _PARTS[part]
                value = function(calendar).cast("int32")
                made[f"{name}_{part}"] = _feature(f"{name}_{part}", value, feature, limits)
        return made

    def _expect_times(self, feature: Feature) -> None:
        column = feature.schema
        require(
            column.info.is_integer,
            "DatePart needs dates, times or integers that count from 1970-01-01. "
            f"Received: column {column.name!r}, {column}.",
        )
        require(
            not column.is_time or self.unit == "us",
            f"Column {column.name!r} holds dates, which are read in microseconds. "
            f"Leave unit at 'us'. Received: {self.unit!r}.",
        )


def _feature(
    name: str, value: Expression, source: Feature, limits: tuple[int, int] | None
) -> Feature:
    if limits is None:
        return Feature.of(name, value, source.schema)
    least, most = limits
    facts = {"cardinality": most + 1, "domain": {"min": least, "max": most}}
    return Feature.of(name, value, source.schema, tags=(Tags.CATEGORICAL,), properties=facts)
