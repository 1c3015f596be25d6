"""Vocabularies that a user provides instead of learning them from data."""

from __future__ import annotations

import os
from typing import Any

import polars as pl

from workflow.data.sources import as_lazy_frame, copied_series
from workflow.errors import WorkflowError
from workflow.expressions.polars.series import column_schema
from workflow.operator.checks import require
from workflow.schema.dtypes import SchemaError
from workflow.schema.names import listed


def given_vocabulary(name: str, values: Any) -> pl.Series:
    """A vocabulary as a series, its values in the given order.

    Args:
        name: name of the column, for messages, and for the column of a file.
        values: a list, a numpy array, a Polars or pandas series; or the path of a parquet file with
            a column of this name, or with one column.

    Raises:
        WorkflowError: it is empty, there is no such column, a value comes twice or is null, or is
            not an integer, a boolean or a string.
    """
    series = _series(name, values)
    require(
        not series.is_empty(), f"The vocabulary of {name!r} is empty. Give it at least one value."
    )
    try:
        column = column_schema(name, series.dtype)
    except SchemaError as error:
        raise WorkflowError(f"The vocabulary of {name!r}: {error}") from error
    require(
        column.info.kind != "float" and not column.is_list,
        f"The vocabulary of {name!r} needs integers, booleans, strings or times. Received: {series.dtype}.",
    )
    if isinstance(series.dtype, pl.Datetime):  # distinct values may be equal in microseconds
        series = series.cast(pl.Datetime("us", series.dtype.time_zone))
    require(
        not series.has_nulls(),
        f"The vocabulary of {name!r} contains null, which has a reserved id. Leave it out.",
    )
    twice = series.filter(series.is_duplicated())
    require(
        twice.is_empty(),
        f"The vocabulary of {name!r} needs each value once. Received: {twice.head(1).to_list()} twice.",
    )
    return series


def _series(name: str, values: Any) -> pl.Series:
    if isinstance(values, str | os.PathLike):
        frame = as_lazy_frame(values)
        names = frame.collect_schema().names()
        require(
            name in names or len(names) == 1,
            f"Expected a column {name!r}, or one column, in {values}. It has: {listed(names)}.",
        )
        chosen = name if name in names else names[0]
        return frame.select(chosen).collect()[chosen]
    require(
        hasattr(values, "__len__"),
        f"The vocabulary of {name!r} needs several values. Received: {values!r:.200}.",
    )
    try:
        return copied_series(name, values)
    except WorkflowError as error:
        raise WorkflowError(
            f"The vocabulary of {name!r} needs values of one type. Received: {values!r:.200} ({error})."
        ) from error
