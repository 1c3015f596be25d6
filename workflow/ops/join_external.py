"""JoinExternal: columns of another table, looked up by a key."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, ClassVar

import polars as pl

from workflow.data.sources import Source
from workflow.errors import WorkflowError
from workflow.expressions.language.tree import Expression, where
from workflow.expressions.polars.series import column_schema, microseconds, to_column
from workflow.graph.input_schema import with_integers
from workflow.graph.selection import one_or_several
from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, Partials, State
from workflow.operator.operator import NOT_SAVED, Example, Operator
from workflow.schema.column import Column
from workflow.schema.names import did_you_mean, listed
from workflow.schema.schema import ColumnSchema, Schema
from workflow.schema.times import unlike_times

from ._group_table import (
    find_row,
    key_names,
    key_rows,
    key_state_names,
    keys_state,
    look_up,
)
from ._times import TIME, series_of, time_of, time_state

# Prefix of the keys' names in a state.
KEY = "table"


@dataclass(frozen=True)
class JoinExternal(Operator):
    """Add columns of an external table to each row, by one key or several: a left join.

    Args:
        df_ext: the table: a Polars or pandas frame, a dict of columns, or a path to parquet.
        on: the name of the key among the input columns, or the names of several.
        on_ext: their names in the table, in the same order, if they differ.
        columns_ext: the table's columns to add (the keys may be among them, as in NVTabular); by
            default all.
        drop_duplicates_ext: keep the first row of each key; otherwise a repeated key is an error,
            since a served row has one answer.
        storage_options: how to connect to the object store of a path such as s3://bucket/key, as in
            `Workflow.fit`; not saved.

    A key that is not in the table, or is null (even one of several), gives null, or an empty list in a
    list column. A list column may be the only key: each of its elements is joined. The input columns
    stay. Integer keys may come as floats, which pandas makes of them beside a missing value: NaN is
    null, and a fraction is an error; in a key that the workflow computes, a fraction matches nothing.
    Keys that are times match within one kind: dates, times without a zone, or times with a zone, of
    which the moment counts and not the zone.

    Raises:
        WorkflowError: keys of different kinds, such as numbers and strings, or times with and without a
            zone; or a key that is not a whole number, with its row.

    Example:
        >>> movies = pl.DataFrame({"movieId": [1, 2], "genres": [["Comedy"], []]})
        >>> joined = ["movieId"] >> JoinExternal(movies, on="movieId")
    """

    df_ext: Any = dataclasses.field(repr=False, compare=False, metadata=NOT_SAVED)
    on: str | Sequence[str]
    on_ext: str | Sequence[str] | None = None
    columns_ext: Sequence[str] | None = None
    drop_duplicates_ext: bool = False
    storage_options: Mapping[str, Any] | None = dataclasses.field(
        default=None, repr=False, compare=False, metadata=NOT_SAVED
    )

    learns: ClassVar[bool] = True

    def _check_settings(self) -> None:
        keys, table_keys = self._keys
        require(
            bool(keys) and len(set(keys)) == len(keys) == len(table_keys) == len(set(table_keys)),
            "JoinExternal needs distinct names in on, and as many in on_ext. "
            f"Received: on={self.on!r}, on_ext={self.on_ext!r}.",
        )
        if self.columns_ext is not None:
            require(
                bool(self.columns_ext), "JoinExternal needs names in columns_ext. Received: []."
            )
            object.__setattr__(self, "columns_ext", list(dict.fromkeys(self.columns_ext)))

    @property
    def _keys(self) -> tuple[list[str], list[str]]:
        """The names of the keys among the input columns and in the table."""
        keys = one_or_several(self.on)
        return keys, one_or_several(self.on_ext) or keys

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
        hours = {"origin": ["x", "x", "y", None], "at": [1, 2, 1, 1], "wind": [0.5, None, 2.5, 9.0]}
        keys = {"movie": [20, 10, 99, None, 2**40], "extra": [1.0, 2.0, None, 4.0, 5.0]}
        small = {"movie": pl.Series([20, 10, 99, None], dtype=pl.Int16)}
        return [
            Example(cls(movies, on="movie"), keys, {"movie": [-1], "extra": [0.0]}),
            Example(cls(movies, on="movie", columns_ext=["movie", "genres"]), small),
            Example(
                cls(movies, on="movie", columns_ext=["year"]), {"movie": [20, None, 10, 2**40]}
            ),
            Example(
                cls(hours, on=["place", "at"], on_ext=["origin", "at"]),
                {"place": ["x", "y", "x", None, "z"], "at": [1, 1, 2, 1, 1], "n": [1.0] * 5},
                {"place": ["y"], "at": [None], "n": [2.0]},
            ),
            Example(cls(days, on="noon"), {"noon": [moments[1], None, moments[0]]}),
            Example(
                cls(shops, on="shop", on_ext="name", drop_duplicates_ext=True),
                {"shop": ["s", None, "n", "zz"]},
            ),
        ]

    def id_columns(self, columns: Iterable[str]) -> list[str]:
        """The keys."""
        names = self._keys[0]
        return [name for name in columns if name in names]

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:  # noqa: ARG002
        """Nothing to learn from the data; checks that the keys are there."""
        self._expect_keys(columns)
        return {}

    def _expect_keys(self, columns: Schema | Features) -> list[str]:
        keys = self._keys[0]
        missing = [key for key in keys if key not in columns]
        require(
            not missing,
            f"The key {listed(map(repr, missing))} is not among the input columns {listed(columns)}."
            + did_you_mean(missing, columns),
        )
        return keys

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:  # noqa: ARG002 - partials
        """The table's columns as `column.<name>`, in the order of the rows that the keys find."""
        source = Source.of(self.df_ext, storage_options=self.storage_options)
        keys = self._keys[1]
        types, have = source.frame.collect_schema(), source.names
        names = [name for name in (self.columns_ext or have) if name not in keys]
        for name in (*keys, *names):
            require(
                name in have,
                f"The external table has no column {name!r}. It has: {listed(have)}."
                + did_you_mean([name], have),
            )
        # Refuses structs and similar types, with the column's name.
        schema = Schema(column_schema(n, types[n]) for n in (*keys, *names) if n in types)
        with source.errors("The external table cannot be read"):
            table = source.select([*keys, *names]).sound().frame.collect()
        for data_key, key in zip(self._keys[0], keys, strict=True):
            where = f"the key {key!r} of the external table"
            unlike = unlike_times(where, columns[data_key], schema[key])
            require(not unlike, unlike)
            _expect_alike(columns[data_key], schema[key])
        table = table.select(_numbers(column) for column in schema.columns)
        table = self._distinct(_with_whole_keys(table, keys).drop_nulls(keys), keys)
        table = table.with_columns(map(_nan_to_null, table.get_columns()))
        named = dict(zip(keys, key_names(keys), strict=True))
        # Unique names, since names of keys and columns may clash.
        keyed = table.select(row=pl.int_range(pl.len()), **{k: n for n, k in named.items()})
        state, rows = keys_state(KEY, keys, keyed)
        parts = {f"column.{name}": name for name in names}
        # Lists of strings take long to gather.
        ordered = table if rows["row"].is_sorted() else table[rows["row"]]
        state = dict(state) | {
            p: to_column(ordered[n], compact_strings=True) for p, n in parts.items()
        }
        times = {f"{KEY}.{k}": schema[n].time for n, k in named.items()}
        return state | time_state(times | {p: schema[n].time for p, n in parts.items()})

    def _distinct(self, table: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
        """The table with each key once."""
        if self.drop_duplicates_ext:
            return table.unique(keys, keep="first", maintain_order=True)
        if table.n_unique(subset=keys) == table.height:
            return table
        twice = table.select(keys).filter(pl.struct(keys).is_duplicated())
        example = list(twice.row(0))
        require(
            False,
            f"{twice.unique().height} keys of the external table occur more than once, for example "
            f"{example}. Set drop_duplicates_ext=True to keep the first row of each.",
        )
        return table

    def lower(self, columns: Features, state: State) -> Features:
        """The input columns and, at the row that the keys find, the table's columns."""
        keys = self._expect_keys(columns)
        rows = _expect_table(state, keys)
        if len(keys) == 1:  # a null key finds no row
            row = _look_up(columns[keys[0]].expression, state[key_state_names(KEY, keys)[0]], 0, -1)
        else:
            row = find_row(KEY, keys, columns, state, rows, _look_up)
        joined = dict(columns)
        for part, table in state.items():
            if part.startswith("column."):
                name = part.removeprefix("column.")
                require(
                    name not in columns,
                    f"Column {name!r} is in the data and in the external table. Leave it out of "
                    "columns_ext, or rename it in the table.",
                )
                joined[name] = Feature.of(name, row.gather(table), time=time_of(part, state))
        return joined

    @classmethod
    def from_config(cls, config: Mapping[str, Any], state: State) -> JoinExternal:
        """The operator, with its table restored from the state, so that it can be fitted again."""
        keys = one_or_several(config["on_ext"] or config["on"])
        _expect_table(state, keys)
        columns = {
            name: series_of(f"{KEY}.{part}", state).gather(places)
            for name, part, places in zip(
                keys, key_names(keys), key_rows(KEY, keys, state), strict=True
            )
        }
        for part in (part for part in state if part.startswith("column.")):
            name = part.removeprefix("column.")
            require(name not in columns, "The saved table has a column twice.")
            columns[name] = series_of(part, state)
        return cls(pl.DataFrame(columns), **config)


def _look_up(key: Expression, keys: Column, first: int, missing: int) -> Expression:
    """The position of each key among those of the table.

    Keys that the workflow computes may be floats.
    """
    if key.type.kind != "float":
        return look_up(key, keys, first, missing)
    whole = key.cast("int64")
    # A fraction is not a key, nor is 2**63, at which the cast saturates. NaN equals nothing.
    is_key = (whole.cast(key.type.dtype) == key) & (key < 2.0**63)
    return where(is_key, look_up(whole, keys, first, missing), missing)


def _with_whole_keys(table: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The table with keys as integers, which pandas converts to floats beside a missing value."""
    integers = Schema(ColumnSchema(key, "int64") for key in keys if table.schema[key].is_float())
    try:
        return with_integers(table.lazy(), integers).collect() if integers else table
    except WorkflowError as error:
        raise WorkflowError(
            f"JoinExternal takes no floats as keys, except whole numbers. In the external table: {error} "
            "Round the keys of both to integers, or convert them to texts."
        ) from error


def _expect_alike(column: ColumnSchema, key: ColumnSchema) -> None:
    """Refuse keys of another kind than the data's, which would match nothing."""
    number = ("int", "uint", "float")
    have, want = ("number" if c.info.kind in number else c.info.kind for c in (key, column))
    require(
        have == want,
        f"Expected the key {key.name!r} of the external table as {column.dtype}, like column {column.name!r}. "
        f"Received: {key.dtype}. Cast one of them before: .cast(pl.String) or .cast(pl.Int64) in Polars.",
    )


def _numbers(column: ColumnSchema) -> pl.Expr:
    """A column as it is served: times as counts in microseconds, where distinct times may be equal."""
    value = pl.col(column.name)
    made = microseconds(value, is_list=column.is_list) if column.time else value
    return made.alias(column.name)


def _nan_to_null(series: pl.Series) -> pl.Series:
    if isinstance(series.dtype, pl.Array):
        series = series.arr.to_list()
    if series.dtype.is_float():
        return series.fill_nan(None)
    if isinstance(series.dtype, pl.List) and series.dtype.inner.is_float():
        return series.list.eval(pl.element().fill_nan(None))
    return series


def _expect_table(state: State, keys: Sequence[str]) -> int:
    """The number of rows of the table in a state."""
    needed = key_state_names(KEY, keys)
    columns = [name for name in state if name.startswith("column.")]
    times = {f"{TIME}{name}" for name in (*needed, *columns)}
    require(
        set(needed) <= state.keys() <= {*needed, *columns, *times},
        f"Expected the state of a table, its keys and columns of as many rows. Received: {', '.join(state)}.",
    )
    rows = state[needed[-1]].rows
    require(
        all(state[name].rows == rows for name in columns),
        f"Expected columns of {rows} rows, as many as the table has keys. "
        f"Received: {listed(f'{name} of {state[name].rows}' for name in columns)}.",
    )
    return rows
