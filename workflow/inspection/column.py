"""Facts about one column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import polars as pl

from workflow.schema.schema import DATE, NAIVE, time_name

# Percentiles 0 to 100.
PERCENTILES = 101
Number = int | float


@dataclass(frozen=True)
class ColumnInspection:
    """Facts about a column. Of a list column, values are the elements of all rows.

    Values are those that are neither null nor NaN. Dates and times are int64, as in `ColumnSchema`.
    Numbers are the finite values; for strings their lengths in characters.

    Attributes:
        name: the column's name.
        dtype: the dtype of a value.
        is_list: whether each row holds a list.
        time: the kind of dates or times, as in `ColumnSchema.time`.
        nulls: rows that are null.
        null_elements: elements of lists that are null.
        nans: values that are NaN.
        infinities: values that are infinite.
        count: the number of values.
        distinct: the number of different values.
        once: the number of values that occur once.
        is_estimated: whether `distinct`, `once` and all that is derived from counts, `entropy` to
            `shares`, and `quantiles`, were estimated from a part of the values. The values of
            `common` are then the most frequent ones of a sample, counted in all rows.
        entropy: entropy of the values in bits; log2(distinct) if all are equally frequent.
        zipf: the exponent s if the value of rank r were drawn with a probability proportional to
            r**-s, by maximum likelihood; 0 if all values are equally frequent. None with fewer than
            two different values.
        common: pairs of a value and its count, the most frequent first.
        is_whole: whether the values are numbers without a fraction.
        formats: the formats of dates or times, as `str.to_datetime` of Polars has them, that read the
            most frequent texts.
        ranks: some ranks, ascending, of which the last is `distinct`.
        shares: for each of them, the share of values of this rank and of those before it.
        minimum: the least number, or None.
        maximum: the greatest number, or None.
        mean: the mean of the numbers, or None, as where their sum is beyond float64.
        std: their standard deviation (ddof 1), or None, as where their squares are beyond float64.
        quantiles: their percentiles 0 to 100, each a value that occurs; empty without numbers.
        spread: the same of the different values, each counted once.
        lengths: percentiles 0 to 100 of the lengths of lists that are not null.
    """

    name: str
    dtype: str
    is_list: bool
    time: str
    nulls: int
    null_elements: int
    nans: int
    infinities: int
    count: int
    distinct: int
    once: int
    is_estimated: bool
    entropy: float
    zipf: float | None
    common: Sequence[Sequence[bool | int | float | str]]
    is_whole: bool
    formats: Sequence[str]
    ranks: Sequence[int]
    shares: Sequence[float]
    minimum: Number | None
    maximum: Number | None
    mean: float | None
    std: float | None
    quantiles: Sequence[Number]
    spread: Sequence[Number]
    lengths: Sequence[int]

    @property
    def type(self) -> str:
        """The readable name of its type, such as "list[int64]" or "date"."""
        inner = time_name(self.time) or self.dtype
        return f"list[{inner}]" if self.is_list else inner

    @property
    def commonest(self) -> float:
        """The share of values that are the most frequent one."""
        return self.shares[0] if self.shares else 0.0

    @property
    def is_unique(self) -> bool:
        """Whether no value occurs twice."""
        return self.count > 1 and self.once == self.count

    def readable(self, number: Number | None) -> str:
        """A number of the column as a short text: grouped digits, a date, or a time in the column's zone.

        Example:
            >>> from workflow import inspect_dataset
            >>> column = inspect_dataset({"price": [0.5, 12345.678]}).columns[0]
            >>> column.readable(column.maximum)
            '12,345.7'
        """
        if number is None:
            return ""
        if self.time:
            return _as_time(int(number), self.time)
        if isinstance(number, float) and not number.is_integer():
            return f"{number:,.6g}"
        return f"{int(number):,}" if abs(number) < 1e15 else f"{number:.6g}"


def _as_time(microseconds: int, kind: str) -> str:
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
        if kind not in ("", DATE, NAIVE):
            moment = _local(moment, kind)
    except (OverflowError, ValueError):  # Python's years end at 9999
        return f"{microseconds:.6g} us"
    return str(date(*moment.timetuple()[:3]) if kind == DATE else moment.strftime("%Y-%m-%d %H:%M"))


def _local(moment: datetime, zone: str) -> datetime:
    """The time on the clocks of a zone, by the zones of Polars: the machine may have none."""
    times = pl.Series([moment], dtype=pl.Datetime("us", "UTC"))
    try:
        local: datetime = times.dt.convert_time_zone(zone).dt.replace_time_zone(None).item()
    except pl.exceptions.PolarsError:  # a saved inspection names a zone of another time
        return moment
    return local
