"""Groupby: one row for each key, from all rows that have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from workflow.expressions.polars.series import polars_dtype
from workflow.graph.selection import one_or_several
from workflow.operator.checks import require
from workflow.operator.frame_operator import FrameOperator
from workflow.operator.operator import Example
from workflow.schema.schema import ColumnSchema, Schema, Tags
from workflow.schema.tags import add_tags, computed_of

AGGREGATES = (
    "list",
    "first",
    "last",
    "count",
    "nunique",
    "mean",
    "sum",
    "std",
    "var",
    "median",
    "min",
    "max",
)
_COUNTS, _REAL = ("count", "nunique"), ("mean", "std", "var", "median")
# Aggregates that are values of the column.
_VALUES = ("list", "first", "last", "min", "max")


@dataclass(frozen=True)
class Groupby(FrameOperator):
    """Combine all rows with the same key into one, over the whole data: sessions of events.

    Makes the keys that are among the input columns, and `<column>_<aggregate>` for each other
    column. The rows are in the order of the keys, null last. Within a group rows are in the order
    of `sort_cols`, or else of the data.

    Aggregates: "list" (including nulls, in the order of the rows), "first" and "last" (of the rows
        in ascending order of `sort_cols`, as in NVTabular, regardless of `ascending`: first is the
        oldest event, last the newest; null if that row is null; among rows that are equal in
        `sort_cols` first takes the earliest in the data and last the latest, and the other way
        round if descending), "count" and "nunique" (of values that are not null, int32), "sum"
        (int64; uint64 for uint64, float64 for floats; integer overflow wraps around), "mean",
        "std", "var" (ddof 1), "median" (float32), "min", "max".
        Sums of floats may differ in the last bits each time. Results that infinities make
        undefined, such as the sum of both, are null. Strings,
        booleans, dates and times have no sum, mean, median, std or var; lists have "first", "last"
        and "count" (of rows) only. Aggregates that are values of the column ("list", "first",
        "last", "min", "max") keep its tags and properties, and its kind of date or time.

    A server does not group rows, so a workflow with this operator before a served column cannot be
    exported.

    Args:
        groupby_cols: the key's columns, among the input columns, or else of the data.
        sort_cols: the columns that order the rows of a group, among the input columns, or else of
            the data.
        aggs: one name or several for every column, or a mapping from column to name or names; other
            columns are not in the output.
        name_sep: separator between column and aggregate in the outputs' names.
        ascending: the order of `sort_cols` in lists; nulls come first, and last if it is
            descending.

    Example:
        >>> sessions = ["session", "time", "item"] >> Groupby(
        ...     "session", sort_cols="time", aggs={"item": ["list", "count"], "time": "first"}
        ... )
    """

    groupby_cols: str | Sequence[str]
    sort_cols: str | Sequence[str] | None = None
    aggs: str | Sequence[str] | Mapping[str, str | Sequence[str]] = "list"
    name_sep: str = "_"
    ascending: bool = True

    completed_by: ClassVar[tuple[str, ...]] = ("groupby_cols", "sort_cols")

    def _check_settings(self) -> None:
        for name in ("groupby_cols", "sort_cols"):
            object.__setattr__(self, name, one_or_several(getattr(self, name)))
        require(
            bool(self.groupby_cols), "Groupby needs column names in groupby_cols. Received: []."
        )
        aggs = self.aggs if isinstance(self.aggs, Mapping) else {"": self.aggs}
        named = {column: one_or_several(aggregates) for column, aggregates in aggs.items()}
        require(
            bool(named) and all(named.values()), f"Groupby needs aggs. Received: {self.aggs!r}."
        )
        for aggregate in (a for aggregates in named.values() for a in aggregates):
            require(
                aggregate in AGGREGATES,
                f"Groupby needs aggs among {', '.join(AGGREGATES)}. Received: {aggregate!r}.",
            )
        object.__setattr__(self, "aggs", named if isinstance(self.aggs, Mapping) else named[""])

    @classmethod
    def examples(cls) -> list[Example]:
        """Every aggregate, by one and two keys with nulls, sorted both ways."""
        rows = {
            "user": [7, 9, 7, None, 7, None],
            "day": ["a", "a", "b", "b", None, "b"],
            "time": [3, 1, 2, 5, 1, None],
            "price": [1.5, None, 2.0, 0.5, float("nan"), 2.0],
            "genres": [["x"], [], None, ["y", None], ["z"], ["x"]],
        }
        every = [a for a in AGGREGATES if a not in ("first", "last")]
        lists = {"genres": ["first", "last", "count"]}
        return [
            Example(cls("user", "time", {"price": every, "time": ["first", "last"]}), rows),
            Example(
                cls(["user", "day"], "time", {**lists, "price": "list"}, "-", ascending=False), rows
            ),
            Example(cls("day"), {"day": rows["day"], "time": rows["time"]}),
            Example(cls("user", "time", aggs=["list", "count"]), rows, left=["price", "day"]),
        ]

    def frame_schema(self, columns: Schema) -> Schema:
        """The keys and the aggregates."""
        for name in (*one_or_several(self.groupby_cols), *one_or_several(self.sort_cols)):
            require(
                not columns[name].is_list,
                f"Groupby takes no list as a key or for sorting. Received: {name!r}.",
            )
        schemas = [columns[name] for name in self._keys_made(columns)]
        for name, aggregate in self._chosen(columns):
            schemas.append(self._aggregate_schema(columns[name], aggregate))
        return Schema(schemas)

    def _keys_made(self, columns: Schema) -> list[str]:
        """The keys that are output columns: those left of `>>`."""
        own_columns = self.own_columns(columns)
        return [name for name in one_or_several(self.groupby_cols) if name in own_columns]

    def _chosen(self, columns: Schema) -> list[tuple[str, str]]:
        """The column of each output, and its aggregate."""
        if isinstance(self.aggs, Mapping):
            return [
                (columns[name].name, a)
                for name, aggs in self.aggs.items()
                for a in one_or_several(aggs)
            ]
        keys = one_or_several(self.groupby_cols)
        names = [name for name in self.own_columns(columns) if name not in keys]
        return [(name, aggregate) for name in names for aggregate in one_or_several(self.aggs)]

    def _aggregate_schema(self, column: ColumnSchema, aggregate: str) -> ColumnSchema:
        possible = _possible(column)
        require(
            aggregate in possible,
            f"Groupby cannot make {aggregate!r} of column {column.name!r}, {column}. "
            f"It can make {', '.join(possible)}.",
        )
        name = self._output(column.name, aggregate)
        if aggregate in _VALUES:
            # Ids stay ids, with their cardinality: a session of items needs an embedding of items.
            is_list = aggregate == "list" or column.is_list
            return column.with_(name=name, is_list=is_list, nullable=True)
        dtype = "int32" if aggregate in _COUNTS else "float32"
        dtype = _sum_dtype(column) if aggregate == "sum" else dtype
        like = computed_of(column)
        tags = add_tags(like.tags, (Tags.CONTINUOUS,))
        # A sum of infinities may be NaN, which is null in a column of floats.
        nullable = aggregate in _REAL or dtype == "float64"
        return like.with_(name=name, dtype=dtype, nullable=nullable, tags=tags)

    def groups_on_host(self, columns: Schema) -> bool:  # noqa: ARG002
        """Whether there are variances."""
        lists = self.aggs.values() if isinstance(self.aggs, Mapping) else [self.aggs]
        return any(a in ("std", "var") for aggs in lists for a in one_or_several(aggs))

    def transform_frame(self, frame: pl.LazyFrame, columns: Schema) -> pl.LazyFrame:
        """One row for each key."""
        keys = one_or_several(self.groupby_cols)
        if by := one_or_several(self.sort_cols):
            # Nulls count as the smallest value: first ascending, last descending.
            frame = frame.sort(
                by,
                descending=not self.ascending,
                nulls_last=not self.ascending,
                maintain_order=True,
            )
        aggregates = [
            _aggregate(columns[name], self._end_of(aggregate)).alias(self._output(name, aggregate))
            for name, aggregate in self._chosen(columns)
        ]
        grouped = frame.group_by(keys, maintain_order=True).agg(aggregates)
        return grouped.sort(keys, nulls_last=True, maintain_order=True)

    def _end_of(self, aggregate: str) -> str:
        """The end of the sorted rows at which an aggregate is; the opposite one if descending."""
        swapped = bool(self.sort_cols) and not self.ascending
        return (
            {"first": "last", "last": "first"}.get(aggregate, aggregate) if swapped else aggregate
        )

    def _output(self, name: str, aggregate: str) -> str:
        return f"{name}{self.name_sep}{aggregate}"

    def needs(self, columns: Schema) -> set[str]:  # noqa: ARG002
        """The keys, the sort columns, and the aggregated columns."""
        named = self.aggs if isinstance(self.aggs, Mapping) else {}
        return {*one_or_several(self.groupby_cols), *one_or_several(self.sort_cols), *named}


def _possible(column: ColumnSchema) -> Sequence[str]:
    """The aggregates that a column can have."""
    if column.is_list:
        return ("first", "last", "count")
    if column.time or column.info.kind in ("string", "bool"):
        return [aggregate for aggregate in AGGREGATES if aggregate not in ("sum", *_REAL)]
    return AGGREGATES


def _sum_dtype(column: ColumnSchema) -> str:
    if not column.info.is_integer:
        return "float64"
    return "uint64" if column.dtype == "uint64" else "int64"


def _aggregate(schema: ColumnSchema, aggregate: str) -> pl.Expr:
    column = pl.col(schema.name)
    if aggregate == "count":
        return (column.len() if schema.is_list else column.count()).cast(pl.Int32)
    if aggregate in ("first", "last", "min", "max"):
        made: pl.Expr = getattr(column, aggregate)()
        return made
    if aggregate == "list":
        return column
    if aggregate == "nunique":
        return column.drop_nulls().n_unique().cast(pl.Int32)
    if aggregate == "sum":
        return column.cast(polars_dtype(_sum_dtype(schema))).sum()
    value = column.cast(pl.Float64)
    real: pl.Expr = getattr(value, aggregate)()
    if aggregate in ("std", "var"):
        # The mean of equal values may be rounded, and then the values deviate from it.
        same = (value.min() == value.max()) & value.min().is_finite()
        real = pl.when(same & (value.count() > 1)).then(0.0).otherwise(real)
    # The median of no values is null; cuDF has no such rule.
    return pl.when(column.count() > 0).then(real).cast(pl.Float32)
