"""Tables of dates and times in a state, which stores microseconds and the kind of time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from workflow.expressions.polars.series import as_times, to_series
from workflow.operator.checks import require
from workflow.operator.feature import State
from workflow.operator.operator import Operator
from workflow.schema.column import Column, Strings
from workflow.schema.schema import DATE, NAIVE, Schema

from ._zones import expect_zone

TIME = "time."


def expect_no_times(operator: Operator, columns: Schema) -> None:
    """Refuse dates and times as ids of a table without any: what they count would be looked up.

    Raises:
        WorkflowError: names the operator and the column.
    """
    for column in columns.columns:
        require(
            not column.time,
            f"{operator.label} needs ids as integers or strings. Received: column {column.name!r}, "
            f"{column}. Make texts of it and of the ids before, with .dt.to_string() in Polars.",
        )


def time_state(times: Mapping[str, str]) -> dict[str, Column]:
    """State entries for the kinds of the times in these tables; none for other tables.

    Args:
        times: a value of `ColumnSchema.time` for each table.
    """
    return {f"{TIME}{name}": Column(Strings.of([time])) for name, time in times.items() if time}


def time_of(name: str, state: State) -> str:
    """The kind of the times in a table of a state, a value of `ColumnSchema.time`.

    Raises:
        WorkflowError: the state has an invalid entry, as a file may.
    """
    column = state.get(f"{TIME}{name}")
    if column is None:
        return ""
    require(
        isinstance(column.values, Strings) and column.rows == 1 and column.valid is None,
        f"Expected the kind of the times of {name!r}. Received: {column.values!r:.200}.",
    )
    time = str(column.array[0])
    if time not in (DATE, NAIVE):
        expect_zone(time)
    table = state.get(name)
    require(
        table is not None and table.array.dtype == np.int64,
        f"Expected the times of {name!r} as int64.",
    )
    return time


def series_of(name: str, state: State) -> pl.Series:
    """A table of a state as a series, with microseconds converted to times.

    Raises:
        WorkflowError: the state has no kind of times.
    """
    series = to_series(state[name])
    time = time_of(name, state)
    return pl.select(as_times(pl.lit(series), time, is_list=series.dtype == pl.List)).to_series()
