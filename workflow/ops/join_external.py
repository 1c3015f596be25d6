"""JoinExternal: columns of another table, found by a key."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, ClassVar

import polars as pl

from workflow.checks import require
from workflow.data import Source
from workflow.expressions.column import Column
from workflow.expressions.series import column_schema, microseconds, to_column
from workflow.expressions.tree import Expression, where
from workflow.feature import Feature, Features
from workflow.inputs import with_integers
from workflow.operator import NOT_SAVED, Example, Operator, Partials, State
from workflow.schema import ColumnSchema, Schema
from workflow.times import unlike_times

from ._times import TIME, series_of, time_of, time_state


@dataclass(frozen=True)
class JoinExternal(Operator):
    """Add columns of an external table to each row, by a key: a left join.

    Args:
        df_ext: the table: a Polars or pandas frame, a dict of columns, or a path to parquet.
        on: the name of the key among the input columns.
        on_ext: the name of the key in the table, where it differs.
        columns_ext: the table's columns to add (the key may be among them, as NVTabular asks);
            by default all.
        drop_duplicates_ext: keep the first row of each key; without it a key that occurs twice
            is an error, since a row to be served has one answer.

    A key that the table does not have, or null, gives null, and an empty list in a list column.
    The input columns stay. Keys of integers may come as floats, as pandas makes them beside a
    missing one: NaN is null, and a fraction is in no table of integers. Keys that are times are
    found where both are of one kind: dates, times without a zone, or times with any zone, of which
    the moment counts.

    Raises:
        WorkflowError: keys of times of unlike kinds, or of times and numbers.

    Example:
        >>> movies = pl.DataFrame({"movieId": [1, 2], "genres": [["Comedy"], []]})
        >>> joined = ["movieId"] >> JoinExternal(movies, on="movieId")
    """

    df_ext: Any = dataclasses.field(repr=False, compare=False, metadata=NOT_SAVED)
    on: str
    on_ext: str | None = None
    columns_ext: Sequence[str] | None = None
    drop_duplicates_ext: bool = False

    learns: ClassVar[bool] = True

    def _check_settings(self) -> None:
        if self.columns_ext is not None:
            require(
                bool(self.columns_ext), "JoinExternal needs names in columns_ext. Received: []."
            )
            object.__setattr__(self, "columns_ext", list(dict.fromkeys(self.columns_ext)))

    @classmethod
    def examples(cls) -> list[Example]:
        """Tables of every kind of column; keys that are missing, null, or of another integer type."""
        movies = {
            "movie": [10, 20, None, 2**40],
            "genres": [["x", "y"], [], ["z"], None],
            "year": [1999, None, 3, 2001],
            "score": [0.5, float("nan"), 1.0, float("inf")],
            "title": ["a", "b", None, "é"],
        }
        shops = {"name": ["n", "s", "s"], "open": [True, False, None]}
        moments = [datetime(2024, 7, n, 12, tzinfo=UTC) for n in (1, 2)]
        days = {
            "day": [date(2024, 7, 1), date(2024, 7, 2)],
            "noon": moments,
            "noons": [moments, []],
        }
        keys = {"movie": [20, 10, 99, None, 2**40], "extra": [1.0, 2.0, None, 4.0, 5.0]}
        small = {"movie": pl.Series([20, 10, 99, None], dtype=pl.Int16)}
        floats = {"movie": [20.0, float("nan"), None, 10.5, 2.0**40, 2.0**63, -math.inf]}
        return [
            Example(cls(movies, on="movie"), keys, {"movie": [-1], "extra": [0.0]}),
            Example(cls(movies, on="movie", columns_ext=["movie", "genres"]), small),
            Example(cls(movies, on="movie", columns_ext=["year"]), floats),
            Example(cls(days, on="noon"), {"noon": [moments[1], None, moments[0]]}),
            Example(
                cls(shops, on="shop", on_ext="name", drop_duplicates_ext=True),
                {"shop": ["s", None, "n", "zz"]},
            ),
        ]

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:  # noqa: ARG002
        """Nothing is learnt from the data, only that the key is there."""
        require(
            self.on in columns,
            f"The key {self.on!r} is not among the input columns {', '.join(columns)}.",
        )
        return {}

    def merge(self, partials: Partials, columns: Schema) -> Partials:  # noqa: ARG002
        """Nothing to merge."""
        return partials

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:  # noqa: ARG002 - partials
        """The table's columns, the key as `key`, the others as `column.<name>`."""
        source = Source.of(self.df_ext)
        types, have = source.frame.collect_schema(), source.names
        key = self.on_ext or self.on
        names = [name for name in (self.columns_ext or have) if name != key]
        for name in (key, *names):
            require(
                name in have,
                f"The external table has no column {name!r}. It has: {', '.join(have)}.",
            )
        # Refuses structs and the like by their names.
        schema = Schema(column_schema(name, types[name]) for name in (key, *names) if name in types)
        with source.errors("The external table cannot be read"):
            table = source.select([key, *names]).sound().frame.collect()
        unlike = unlike_times(
            f"the key {key!r} of the external table", columns[self.on], schema[key]
        )
        require(not unlike, unlike)
        table = table.select(_numbers(column) for column in schema.columns)
        if table.schema[key].is_float():  # as pandas makes integers beside a missing one
            integers = Schema([ColumnSchema(key, "int64")])
            table = with_integers(table.lazy(), integers).collect()
        table = table.drop_nulls(key)
        if self.drop_duplicates_ext:
            table = table.unique(key, keep="first", maintain_order=True)
        twice = table.filter(pl.col(key).is_duplicated())[key]
        require(
            twice.is_empty(),
            f"{twice.n_unique()} keys of the external table occur more than once, "
            f"for example {twice.head(1).to_list()}. Set drop_duplicates_ext=True to keep the first row of each.",
        )
        table = table.with_columns(map(_nan_to_null, table.get_columns()))
        parts = {"key": key, **{f"column.{name}": name for name in names}}
        state = {part: to_column(table[name], compact_strings=True) for part, name in parts.items()}
        return state | time_state({part: schema[name].time for part, name in parts.items()})

    def lower(self, columns: Features, state: State) -> Features:
        """The input columns and, by the key's row in the table, the table's."""
        _expect_table(state)
        require(
            self.on in columns,
            f"The key {self.on!r} is not among the input columns {', '.join(columns)}.",
        )
        row = _row(columns[self.on].expression, state["key"])
        joined = dict(columns)
        for key, table in _tables(state).items():
            if key != "key":
                name = key.removeprefix("column.")
                require(
                    name not in columns,
                    f"Column {name!r} is in the data and in the external table. Leave it out of "
                    "columns_ext, or rename it in the table.",
                )
                joined[name] = Feature.of(name, row.gather(table), time=time_of(key, state))
        return joined

    @classmethod
    def from_config(cls, config: Mapping[str, Any], state: State) -> JoinExternal:
        """The operator, its table made of the state, so that it can be fitted again."""
        _expect_table(state)
        key = config["on_ext"] or config["on"]
        names = {k: key if k == "key" else k.removeprefix("column.") for k in _tables(state)}
        require(len(set(names.values())) == len(names), "The saved table has a column twice.")
        return cls(
            pl.DataFrame([series_of(k, state).alias(name) for k, name in names.items()]), **config
        )


def _row(key: Expression, keys: Column) -> Expression:
    """The row of each key in the table, -1 or null where there is none.

    Floats are what pandas makes of integers beside a missing one.
    """
    if key.type.kind != "float" or keys.array.dtype.kind not in "iu":
        return key.lookup(keys)
    whole = key.cast("int64")
    # A fraction is no key, nor is 2**63, at which the cast ends. NaN equals nothing.
    is_key = (whole.cast(key.type.dtype) == key) & (key < 2.0**63)
    return where(is_key, whole.lookup(keys), -1)


def _tables(state: State) -> State:
    return {name: column for name, column in state.items() if not name.startswith(TIME)}


def _numbers(column: ColumnSchema) -> pl.Expr:
    """A column as it is served: times as what they count, of which two may be one."""
    value = pl.col(column.name)
    made = microseconds(value, is_list=column.is_list) if column.time else value
    return made.alias(column.name)


def _nan_to_null(series: pl.Series) -> pl.Series:
    if series.dtype.is_float():
        return series.fill_nan(None)
    if isinstance(series.dtype, pl.List) and series.dtype.inner.is_float():
        return series.list.eval(pl.element().fill_nan(None))
    return series


def _expect_table(state: State) -> None:
    tables = _tables(state)
    named = all(name == "key" or name.startswith("column.") for name in tables)
    known = tables.keys() >= {name.removeprefix(TIME) for name in state.keys() - tables.keys()}
    require(
        named and known and "key" in state and len({c.rows for c in tables.values()}) == 1,
        f"Expected the state of a table, its key and columns of as many rows. Received: {', '.join(state)}.",
    )
