"""Tables to fit to and new ones to transform, drawn by a seed: every kind of column, easy and hard."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import polars as pl

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - times of no zone

# The columns of every table; what is in brackets is the dtype of a list's elements.
DTYPES: dict[str, Any] = {
    "user": pl.Int64(),
    "city": pl.String(),
    "flag": pl.Boolean(),
    "small": pl.Int8(),
    "short": pl.UInt16(),
    "wide": pl.Int64(),
    "large": pl.UInt64(),
    "price": pl.Float64(),
    "ratio": pl.Float32(),
    "at": pl.Datetime("us"),
    "on": pl.Date(),
    "there": pl.Datetime("us", "America/New_York"),
    "items": pl.List(pl.Int64()),
    "tags": pl.List(pl.String()),
    "marks": pl.List(pl.Boolean()),
    "scores": pl.List(pl.Float64()),
    "rating": pl.Float64(),
    "bought": pl.Boolean(),
    # Equal to `user`, so that a second column shares its values.
    "friend": pl.Int64(),
}

WORDS = ["", " ", "a", "A", "b", "aa", "Z", "é", "e\u0301", "ß", "日本", "\U0001f600", "a b", "~"]
REALS = [0.0, -0.0, 0.1, -0.5, 1.5, 2.25, -3.0, 7.125, 100.5, 1e8, 1e8 + 1, 1e-12]
SPECIAL = [math.nan, math.inf, -math.inf, -0.0, 1e-300, 5e-324, 1e15]


@dataclass(frozen=True)
class Shape:
    """Settings of drawn tables.

    Attributes:
        rows: of the table to fit to.
        new_rows: how many more there are in the table to transform.
        nulls: how likely a value, a list or an element of a list is null.
        distinct: how many values a column has.
        weights: how often the values occur: "uniform", "equal" (ties) or "skewed".
        values: "plain", or at the "limits" of the dtypes, or the floats that are "special".
        longest: the length of the longest list.
        empty: how likely a list is empty.
    """

    name: str
    rows: int = 150
    new_rows: int = 60
    nulls: float = 0.1
    distinct: int = 20
    weights: str = "uniform"
    values: str = "plain"
    longest: int = 5
    empty: float = 0.2


SHAPES = [
    Shape("plain", rows=200, nulls=0.0),
    Shape("nulls", rows=300, nulls=0.35),
    Shape("ties", rows=120, distinct=12, weights="equal"),
    Shape("one_row", rows=1, new_rows=5, nulls=0.0),
    Shape("one_row_of_nulls", rows=1, new_rows=0, nulls=1.0),
    Shape("all_null", rows=40, nulls=1.0),
    Shape("constant", rows=60, distinct=1),
    Shape("skewed", rows=500, distinct=200, weights="skewed"),
    Shape("limits", values="limits", distinct=6),
    Shape("special", values="special"),
    Shape("long_lists", rows=50, nulls=0.3, longest=40, empty=0.4),
]


@dataclass(frozen=True, eq=False)
class Table:
    """A table as the definitions speak of it: no NaN and no list that is null (decision 5).

    Attributes:
        rows: the raw table, with NaN and lists that are null.
    """

    rows: pl.DataFrame

    @cached_property
    def columns(self) -> dict[str, list[Any]]:
        """The values of each column as Python has them."""
        return {s.name: [_missing(v, s.dtype) for v in s.to_list()] for s in self.rows}

    @cached_property
    def dtypes(self) -> dict[str, str]:
        """The dtype of each column, of the elements where it holds lists."""
        return {name: dtype_name(dtype) for name, dtype in self.rows.schema.items()}

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]

    def __len__(self) -> int:
        return self.rows.height

    def is_list(self, name: str) -> bool:
        """Whether a column holds lists."""
        return isinstance(self.rows.schema[name], pl.List)

    def elements(self, name: str) -> list[Any]:
        """The values of a column, or those of all of its lists, null among them."""
        rows = self[name]
        return [value for row in rows for value in row] if self.is_list(name) else rows

    def each(self) -> Iterator[dict[str, Any]]:
        """The rows."""
        for number in range(len(self)):
            yield {name: values[number] for name, values in self.columns.items()}


def dtype_name(dtype: pl.DataType) -> str:
    """A dtype as the schema of a workflow names it; that of times as it is written."""
    inner = dtype.inner if isinstance(dtype, pl.List) else dtype
    if inner.is_temporal():
        return "int64"
    name = str(inner).lower()
    return "bool" if name == "boolean" else name


def _missing(value: Any, dtype: pl.DataType) -> Any:
    if isinstance(dtype, pl.List):
        return [_missing(element, dtype.inner) for element in value or []]
    return None if isinstance(value, float) and math.isnan(value) else value


def microseconds(time: dt.datetime | dt.date) -> int:
    """A time as it is written: microseconds since 1970, in UTC where it has a zone."""
    if not isinstance(time, dt.datetime):
        time = dt.datetime.combine(time, dt.time())
    return (time - EPOCH.replace(tzinfo=time.tzinfo and dt.UTC)) // dt.timedelta(microseconds=1)


def per_element(table: Table, name: str, function: Any) -> list[Any]:
    """A function of each value, or of each element of each list."""
    if table.is_list(name):
        return [[function(element) for element in row] for row in table[name]]
    return [function(value) for value in table[name]]


@dataclass(eq=False)
class _Drawing:
    """The values that the columns of one shape are drawn from."""

    shape: Shape
    random: random.Random
    pools: dict[str, list[Any]] = field(default_factory=dict)

    def table(self, rows: int, *, unseen: bool) -> Table:
        """A table; with `unseen` half of its values are none of the others'."""
        columns = {}
        for name, dtype in DTYPES.items():
            inner = dtype.inner if isinstance(dtype, pl.List) else dtype
            source = "user" if name == "friend" else name
            values = self._values(source, inner, max(rows, 1), unseen=unseen)
            if isinstance(dtype, pl.List):
                values = [self._list(values) for _ in values]
            values = values[:rows]
            nulls = (self.random.random() < self.shape.nulls for _ in values)
            drawn = [None if null else value for null, value in zip(nulls, values, strict=True)]
            columns[name] = pl.Series(name, drawn, dtype)
        return Table(pl.DataFrame(columns))

    def _values(self, name: str, dtype: Any, count: int, *, unseen: bool) -> list[Any]:
        pool = self.pools.setdefault(name, self._pool(name, dtype, self.shape.values))
        if self.shape.weights == "equal" and not unseen:
            drawn = (pool * (count // len(pool) + 1))[:count]
            self.random.shuffle(drawn)
        else:
            weights = [1 / (n + 1) for n in range(len(pool))]
            skewed = self.shape.weights == "skewed"
            drawn = self.random.choices(pool, weights if skewed else None, k=count)
        if unseen:
            others = self._pool(name, dtype, "plain" if self.shape.values == "plain" else "limits")
            drawn = [self.random.choice([v, self.random.choice(others)]) for v in drawn]
        return drawn

    def _list(self, values: Sequence[Any]) -> list[Any]:
        length = self.random.randint(1, self.shape.longest)
        if self.random.random() < self.shape.empty:
            return []
        drawn = self.random.choices(values, k=length)
        return [None if self.random.random() < self.shape.nulls / 2 else v for v in drawn]

    def _pool(self, name: str, dtype: Any, values: str) -> list[Any]:
        return list(
            dict.fromkeys(self._value(name, dtype, values) for _ in range(self.shape.distinct))
        )

    def _value(self, name: str, dtype: Any, values: str) -> Any:
        choose = self.random.choice
        if dtype == pl.Boolean:
            return choose([True, False])
        if dtype == pl.String:
            return choose(WORDS) + choose(WORDS) * (values == "limits") * 20
        if dtype.is_float():
            return self._real(dtype, "rating" if name == "rating" else values)
        if dtype.is_temporal():
            return self._time(dtype, values)
        return self._integer(dtype, values)

    def _real(self, dtype: Any, values: str) -> float:
        real = self.random.choice(SPECIAL if values == "special" else REALS)
        if values == "limits":
            real = 1e15 * self.random.uniform(-1, 1)
        elif values == "rating":
            real = self.random.randint(0, 10) / 2
        return float(pl.Series([real], dtype=dtype).item())

    def _time(self, dtype: Any, values: str) -> dt.datetime | dt.date:
        if dtype == pl.Datetime and dtype.time_zone:
            micros = self.random.randint(0, 2**51)
            return EPOCH.replace(tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)
        span = 2**60 if values == "limits" else 2**52
        time = EPOCH + dt.timedelta(microseconds=self.random.randint(-span // 20, span // 10))
        return time.date() if dtype == pl.Date else time

    def _integer(self, dtype: Any, values: str) -> int:
        low, high = (pl.select(e).item() for e in (dtype.min(), dtype.max()))
        if values != "limits":
            return self.random.randint(max(low, -50), min(high, self.shape.distinct * 3))
        return self.random.choice([low, low + 1, 0, 1, high // 2, high - 1, high])


@cache
def drawn(shape: Shape, seed: int = 0) -> tuple[Table, Table]:
    """A table to fit to, and one to transform: the same rows, and new ones behind them."""
    drawing = _Drawing(shape, random.Random(f"{shape.name} {seed}"))  # noqa: S311
    train = drawing.table(shape.rows, unseen=False)
    new = drawing.table(shape.new_rows, unseen=True)
    return train, Table(pl.concat([train.rows, new.rows]))
