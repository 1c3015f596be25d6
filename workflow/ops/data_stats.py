"""DataStats: statistics of the columns of a data set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import ClassVar

import numpy as np
import polars as pl

from workflow.expressions.polars.series import as_times, to_column
from workflow.graph.fitted_graph import FittedGraph
from workflow.graph.operator_node import OperatorNode
from workflow.operator.checks import expect_state, require
from workflow.operator.feature import Features, Keyed, OfRows, Partials, State
from workflow.operator.operator import Example, Operator
from workflow.schema.column import Column
from workflow.schema.schema import ColumnSchema, Schema, time_name

from ._moments import merged, moments, moments_of, variance

RANGE, MOMENTS = "range.", "moments."


@dataclass(frozen=True)
class Statistics:
    """Statistics of a column; of a list column, of the elements of its rows.

    Attributes:
        dtype: the column's dtype; "date", "datetime[us]" and the like if it holds times.
        cardinality: the number of distinct values, without null; None for floats.
        min: the least value, a date or datetime for times; for strings, the least length in
            characters. None without values.
        max: the greatest value, or length.
        mean: mean of values, or of lengths; for times in microseconds since 1970-01-01. None
            without values.
        std: their standard deviation (ddof 1); None with fewer than two values.
        per_nan: the percentage of values that are null or NaN.
    """

    dtype: str
    cardinality: int | None
    min: float | date | None
    max: float | date | None
    mean: float | None
    std: float | None
    per_nan: float


@dataclass(frozen=True)
class DataStats(Operator):
    """Learn the statistics of each column; values pass through.

    `DataStats.read(workflow)` returns them after `fit`, and after a saved workflow is loaded.
    Distinct values are counted exactly, so all distinct integers and strings are in memory during
    `fit`. Infinities count as values.

    Source: the variances of parts are merged after Chan, Golub and LeVeque, 1979 (see Normalize).

    Example:
        >>> from workflow import Workflow
        >>> workflow = Workflow(["age"] >> DataStats()).fit({"age": [31, 7, None, 7]})
        >>> DataStats.read(workflow)["age"]
        Statistics(dtype='int64', cardinality=2, min=7, max=31, mean=15.0, std=13.8..., per_nan=25.0)
    """

    learns: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> list[Example]:
        """Columns of every kind."""
        rows = {
            "age": [31, None, 7, 7],
            "wide": pl.Series([2**64 - 1, 0, 1, None], dtype=pl.UInt64),
            "price": [1e8, 1e8 + 2, None, float("nan")],
            "city": ["", "日本", None, "a"],
            "flag": [True, None, False, True],
            "genres": [["x", None], [], None, ["yy"]],
            "none": pl.Series([None] * 4, dtype=pl.Float32),
        }
        return [Example(cls(), rows)]

    @staticmethod
    def read(workflow: FittedGraph) -> dict[str, Statistics]:
        """Statistics of each column, by name.

        Args:
            workflow: a fitted workflow.

        Raises:
            WorkflowError: the workflow is not fitted, or has no DataStats.
        """
        statistics: dict[str, Statistics] = {}
        for number, node in enumerate(workflow.nodes):
            if isinstance(node, OperatorNode) and isinstance(node.operator, DataStats):
                state = workflow.states[number]
                for name, feature in workflow.made[node].columns.items():
                    statistics[name] = _statistics(feature.schema, state)
        require(
            bool(statistics),
            "The workflow has no DataStats: ['age'] >> ops.DataStats() learns them.",
        )
        return statistics

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:
        """The moments of floats, and the count of each other value."""
        partials = {}
        for column in columns.columns:
            values = _values(frame, column)
            facts = [pl.len().cast(pl.Int64).alias("rows"), *moments(pl.col("value"))]
            partials[column.name] = values.select(facts) if _is_real(column) else _counts(values)
        return partials

    def tables_of_rows(self, frame: pl.LazyFrame, columns: Schema) -> Mapping[str, OfRows]:
        """The moments of floats."""
        real = (column for column in columns.columns if _is_real(column))
        return {column.name: (_values(frame, column), _moments) for column in real}

    def groups_on_host(self, columns: Schema) -> bool:
        """Whether there are lists, whose nulls are counted."""
        return any(column.is_list for column in columns.columns)

    def counted_lists(self, columns: Schema) -> Mapping[str, tuple[str, str]]:
        """All except columns of floats."""
        counted = (c for c in columns.columns if c.is_list and not _is_real(c))
        return {column.name: (column.name, "value") for column in counted}

    def keyed_tables(self, columns: Schema) -> Mapping[str, Keyed]:
        """The counts of values."""
        return {c.name: Keyed(("value",)) for c in columns.columns if not _is_real(c)}

    def merge(self, partials: Partials, columns: Schema) -> Partials:
        """The moments and the counts of all parts together."""
        return {
            name: merged(parts, pl.col("rows").sum())
            if _is_real(columns[name])
            else parts.group_by("value").agg(pl.col("count").sum())
            for name, parts in partials.items()
        }

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:
        """Range and moments of each column."""
        state: dict[str, Column] = {}
        for name, table in partials.items():
            real = _is_real(columns[name])
            deviation = {"std": variance().sqrt(), "cardinality": pl.lit(None, pl.Float64)}
            facts = table.with_columns(**deviation) if real else _of_counts(table)
            ends = pl.concat([facts["min"], facts["max"]]).drop_nulls()
            state[f"{RANGE}{name}"] = to_column(ends)
            numbers = [facts[key].cast(pl.Float64) for key in _MOMENTS]
            state[f"{MOMENTS}{name}"] = to_column(pl.concat(numbers))
        return state

    def lower(self, columns: Features, state: State) -> Features:
        """The columns, unchanged."""
        expect_state(state, [f"{kind}{name}" for name in columns for kind in (RANGE, MOMENTS)])
        for name in columns:
            ends, moments = state[f"{RANGE}{name}"], state[f"{MOMENTS}{name}"]
            require(
                ends.rows in (0, 2) and moments.rows == len(_MOMENTS) and _plain(ends, moments),
                f"Expected a range and {len(_MOMENTS)} moments for column {name!r}.",
            )
        return dict(columns)

    def restrict(self, state: State, columns: Schema, names: Iterable[str]) -> Iterator[State]:  # noqa: ARG002
        """Statistics of the remaining columns."""
        rest = set(names)
        yield {key: column for key, column in state.items() if key.partition(".")[2] in rest}


_MOMENTS = ("rows", "values", "cardinality", "mean", "std")


def _is_real(column: ColumnSchema) -> bool:
    return column.info.kind == "float"


def _plain(ends: Column, moments: Column) -> bool:
    numbers = ends.array.dtype.kind in "iufb" and moments.array.dtype == np.float64
    return numbers and not ends.is_list and not moments.is_list


def _values(frame: pl.LazyFrame, column: ColumnSchema) -> pl.LazyFrame:
    values = frame.select(value=pl.col(column.name))
    if column.is_list:
        values = values.explode("value", empty_as_null=False)
    return values.select(pl.col("value").fill_nan(None)) if _is_real(column) else values


def _moments(values: pl.DataFrame) -> pl.DataFrame:
    rows = pl.Series("rows", [values.height], pl.Int64)
    ends = pl.col("min", "max").cast(values.dtypes[0])
    made = moments_of(values, finite=False).with_columns(ends)
    return pl.DataFrame([rows, *made.get_columns()])


def _counts(values: pl.LazyFrame) -> pl.LazyFrame:
    return values.group_by("value").agg(count=pl.len().cast(pl.Int64))


def _of_counts(table: pl.DataFrame) -> pl.DataFrame:
    """The same statistics, from the count of each value, including null."""
    value = pl.col("value")
    measured = value.str.len_chars().cast(pl.Int64) if table["value"].dtype == pl.String else value
    # In a fixed order, and by numpy, so that sums are equal each time.
    counts = table.filter(value.is_not_null()).sort("value").with_columns(measured)
    count, real = (counts[name].cast(pl.Float64).to_numpy() for name in ("count", "value"))
    values = int(counts["count"].sum())
    mean = float(np.sum(real * count)) / values if values else None
    spread = None if mean is None else float(np.sum(count * (real - mean) ** 2))
    std = None if spread is None or values < 2 else (spread / (values - 1)) ** 0.5
    return counts.select(
        rows=pl.lit(table["count"].sum(), pl.Int64),
        values=values,
        cardinality=pl.len(),
        min=value.min(),
        max=value.max(),
        mean=pl.lit(mean, pl.Float64),
        std=pl.lit(std, pl.Float64),
    )


def _statistics(column: ColumnSchema, state: State) -> Statistics:
    ends = pl.Series(state[f"{RANGE}{column.name}"].array)
    known = pl.select(as_times(pl.lit(ends), column.time)).to_series()
    least, greatest = known.to_list() or (None, None)
    moments = state[f"{MOMENTS}{column.name}"]
    valid = [True] * len(_MOMENTS) if moments.valid is None else moments.valid.tolist()
    have = zip(moments.array.tolist(), valid, strict=True)
    rows, values, cardinality, mean, std = (n if known else None for n, known in have)
    missing = (rows or 0) - (values or 0)
    return Statistics(
        time_name(column.time) or column.dtype,
        None if cardinality is None else int(cardinality),
        least,
        greatest,
        mean,
        std,
        100 * missing / rows if rows else 0.0,
    )
