"""JoinGroupby: statistics of a group of rows, beside every row of the group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar

import numpy as np
import polars as pl

from workflow.expressions.polars.series import to_column
from workflow.graph.selection import one_or_several
from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, Keyed, OfRows, Partials, Selectable, State
from workflow.operator.operator import Example, Operator
from workflow.schema.column import Column
from workflow.schema.schema import Schema, Tags
from workflow.schema.tags import computed_of

from . import _group_table as tables
from ._grouping import Keys, grouped
from ._moments import KEYS, merged_moments, moments, variance
from ._times import time_of, time_state

STATS = ("count", "sum", "mean", "std", "var", "min", "max")


@dataclass(frozen=True)
class JoinGroupby(Operator):
    """Add statistics of the group of each row, computed from the data in `fit`.

    Makes `<columns>_count`, and `<columns>_<cont>_<stat>` for each of `cont_cols`; the input
    columns themselves are not among the outputs. Groups of columns, `[["userId", "genre"],
    "userId"]`, are one key together. Null is a group like any other. A group that did not occur in
    `fit` has count 0 and null for every other statistic, so put FillMissing after it before a
    network. A row's own values are in its statistics: of a label use TargetEncoding.

    Keys are integers, booleans or strings, and `cont_cols` numbers or booleans. Nulls, NaN and
    infinities in `cont_cols` do not count. `count` is the number of rows, int32; `sum`, `mean`,
    `std` and `var` (ddof 1, null for fewer than two values) are float32, computed in float64; `min`
    and `max`, the only statistics of dates and times, keep the column's dtype and kind of time.

    Args:
        cont_cols: the columns to describe: names, or a node of the graph.
        stats: any of "count", "sum", "mean", "std", "var", "min", "max".
        name_sep: separator between the parts of an output's name.

    Source: the variances of parts are merged after Chan, Golub and LeVeque, 1979 (see Normalize).

    Example:
        >>> described = ["userId"] >> JoinGroupby(["price"], stats=["count", "mean"])
    """

    cont_cols: str | Sequence[str | Selectable] | Selectable | None = None
    stats: str | Sequence[str] = ("count",)
    name_sep: str = "_"

    learns: ClassVar[bool] = True
    takes_groups: ClassVar[bool] = True
    takes_ids: ClassVar[bool] = True
    depends_on: ClassVar[str | None] = "cont_cols"

    def _check_settings(self) -> None:
        stats = one_or_several(self.stats)
        require(
            bool(stats) and all(stat in STATS for stat in stats),
            f"JoinGroupby needs stats among {', '.join(STATS)}. Received: {self.stats!r}.",
        )
        object.__setattr__(self, "stats", list(dict.fromkeys(stats)))
        require(
            self.cont_cols is not None or stats == ["count"],
            f"JoinGroupby needs cont_cols, for which it computes {', '.join(stats)}. Received: None.",
        )

    @classmethod
    def examples(cls) -> list[Example]:
        """Every statistic, of one and several columns, by one and several keys."""
        rows = {
            "user": [7, 7, 9, None, 9, 7, None, -(2**60)],
            "city": ["a", "b", "a", None, "b", "a", "", None],
            "price": [1e8, 1e8 + 2, None, 3.0, float("nan"), float("inf"), 1.0, 0.5],
            "clicks": pl.Series([1, None, 3, 4, 5, 6, 7, 255], dtype=pl.UInt8),
        }
        unseen = {
            "user": [1, None, 7],
            "city": ["zz", "a", "b"],
            "price": [None] * 3,
            "clicks": [None] * 3,
        }
        noons = {"user": [7, 9, 7], "at": [datetime(y, 2, 9, 12, tzinfo=UTC) for y in (1999, 2, 1)]}
        pair = [["user", "city"], "city"]
        return [
            Example(cls(), rows, unseen, left=["user", "city"]),
            Example(cls(["price", "clicks"], stats=STATS), rows, unseen, left=["user"]),
            Example(cls("clicks", stats=["max", "mean"], name_sep="-"), rows, unseen, left=pair),
            Example(cls("at", stats=["min", "max"]), noons, left=["user"]),
        ]

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:
        """Counts and moments by group."""
        groups, described = self.groups(columns), self.dependency_names()
        tables.expect_keys("JoinGroupby", groups, columns)
        for name in described:
            require(name in columns, f"Column {name!r} of cont_cols is not in the data to fit to.")
            column = columns[name]
            require(
                column.info.kind != "string" and not column.is_list,
                f"JoinGroupby describes numbers and booleans. Received: column {name!r}, {column}.",
            )
            require(
                not column.time or {"min", "max", "count"}.issuperset(self.stats),
                f"JoinGroupby makes min and max of times. Received: {', '.join(self.stats)} of column "
                f"{name!r}, {column}.",
            )
        stats = [pl.len().cast(pl.Int64).alias("rows")]
        for n in range(len(described)):
            finite = pl.col(_described(n))
            stats += [*moments(finite, f"{n}."), finite.cast(pl.Float64).sum().alias(f"{n}.sum")]
        rows = self._rows(frame, columns)
        return {prefix: query.group_by(keys).agg(stats) for prefix, (query, keys) in rows.items()}

    def _rows(self, frame: pl.LazyFrame, columns: Schema) -> dict[str, Keys]:
        """The rows of each group's table, and the names of its keys."""
        values = [
            _finite(pl.col(name), columns[name].info.kind).alias(_described(n))
            for n, name in enumerate(self.dependency_names())
        ]
        return {
            prefix: (
                frame.select(*tables.key_columns(group), *values),
                tables.key_names(group),
            )
            for prefix, group in tables.tables_of(self.groups(columns)).items()
        }

    def tables_of_rows(self, frame: pl.LazyFrame, columns: Schema) -> Mapping[str, OfRows]:
        """All tables with sums."""
        rows = self._rows(frame, columns) if self.dependency_names() else {}
        return {
            prefix: (query, partial(self._described_by, keys))
            for prefix, (query, keys) in rows.items()
        }

    def _described_by(self, keys: Sequence[str], rows: pl.DataFrame) -> pl.DataFrame:
        """The result of the query for some rows, in their order."""
        with_spread = not {"std", "var"}.isdisjoint(self.stats)
        with_ends = with_spread or not {"min", "max"}.isdisjoint(self.stats)
        # Each takes as long as a sum, or twice as long.
        functions = ["count", "sum", *["variance"] * with_spread]
        aggregates, columns = [("row", "count")], [pl.col("row_count").alias("rows")]
        none = pl.lit(None, pl.Float64)
        for n in range(len(self.dependency_names())):
            value, real = _described(n), f"{n}.real"
            rows = rows.with_columns(pl.col(value).cast(pl.Float64).alias(real))
            aggregates += [(real, function) for function in functions]
            aggregates += [(value, "min"), (value, "max")] if with_ends else []
            count, total = pl.col(f"{real}_count").cast(pl.Float64), pl.col(f"{real}_sum")
            squares = pl.col(f"{real}_variance") * count if with_spread else none
            low, high = (pl.col(f"{value}_{end}") if with_ends else none for end in ("min", "max"))
            moments = zip(KEYS, (count, total / count, squares, low, high), strict=True)
            columns += [moment.alias(f"{n}.{key}") for key, moment in moments]
            columns.append(total.fill_null(0.0).alias(f"{n}.sum"))
        table = grouped(rows.with_columns(row=pl.lit(value=True)), keys, aggregates)
        return table.select(*keys, *columns)

    def groups_on_host(self, columns: Schema) -> bool:  # noqa: ARG002
        """Whether there are variances."""
        return not {"std", "var"}.isdisjoint(self.stats)

    def merge(self, partials: Partials, columns: Schema) -> Partials:
        """The moments of all parts together."""
        # Columns in the order of `partial`, since a merged table may be merged again with partials.
        merged = [pl.col("rows").sum()]
        for n in range(len(self.dependency_names())):
            merged += [*merged_moments(f"{n}."), pl.col(f"{n}.sum").sum()]

        def merge(keys: Sequence[str], parts: pl.DataFrame) -> pl.DataFrame:
            return parts.group_by(keys).agg(merged)

        return tables.merge_groups(partials, self.groups(columns), merge)

    def keyed_tables(self, columns: Schema) -> Mapping[str, Keyed]:
        """All tables."""
        return tables.keyed_groups(self.groups(columns))

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:
        """The table of each group."""
        state: dict[str, Column] = {}
        for prefix, group in tables.tables_of(self.groups(columns)).items():
            keys, table = tables.keys_state(prefix, group, partials[prefix])
            state |= keys
            for key, (stat, number) in self._tables().items():
                state[f"{prefix}.{key}"] = to_column(_statistic(table, stat, number))
                if stat in ("min", "max"):
                    time = columns[self.dependency_names()[number]].time
                    state |= time_state({f"{prefix}.{key}": time})
        return state

    def _tables(self) -> dict[str, tuple[str, int]]:
        """The tables of a group: the statistic of each, and the index of its column."""
        statistics = {"count": ("count", 0)} if "count" in self.stats else {}
        for number in range(len(self.dependency_names())):
            statistics |= {f"column{number}.{s}": (s, number) for s in self.stats if s != "count"}
        return statistics

    def lower(self, columns: Features, state: State) -> Features:
        """The statistics of each row's group."""
        groups, described = self.groups(columns), self.dependency_names()
        tables.expect_keys("JoinGroupby", groups, columns)
        statistics = self._tables()
        tables.check_tables(state, tables.tables_of(groups), list(statistics))
        outputs: Features = {}
        for prefix, group in tables.tables_of(groups).items():
            size = state[f"{prefix}.{next(iter(statistics))}"].rows
            row = tables.find_row(prefix, group, columns, state, size)
            # Clients do not send cont_cols, so their schemas may be unknown here.
            like = computed_of(*(columns[name].schema for name in group))
            for key, (stat, number) in statistics.items():
                parts = [*group, stat] if stat == "count" else [*group, described[number], stat]
                name = self.name_sep.join(parts)
                require(
                    name not in outputs, f"JoinGroupby makes two columns {name!r}. Set name_sep."
                )
                value = row.gather(state[f"{prefix}.{key}"])
                outputs[name] = Feature.of(
                    name,
                    value.fill_null(0) if stat == "count" else value,
                    like,
                    tags=(Tags.CONTINUOUS,),
                    time=time_of(f"{prefix}.{key}", state),
                )
        return outputs

    def restrict(self, state: State, columns: Schema, names: Iterable[str]) -> Iterator[State]:
        """The tables of the remaining groups."""
        yield tables.restrict_groups(state, self.groups(columns), names)


def _described(number: int) -> str:
    return f"{number}.finite"


def _finite(column: pl.Expr, kind: str) -> pl.Expr:
    """The finite values, and null for others: cuDF cannot filter within a group."""
    return pl.when(column.is_finite()).then(column) if kind == "float" else column


def _statistic(table: pl.DataFrame, stat: str, number: int) -> pl.Series:
    if stat == "count":
        return table["rows"].clip(0, np.iinfo(np.int32).max).cast(pl.Int32)
    if stat in ("min", "max"):
        return table[f"{number}.{stat}"]
    values = {
        "sum": pl.col(f"{number}.sum"),
        "mean": pl.col(f"{number}.mean"),
        "var": variance(f"{number}."),
        "std": variance(f"{number}.").sqrt(),
    }
    return table.select(values[stat].cast(pl.Float32)).to_series()
