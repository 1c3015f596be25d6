"""The columns of the data that a workflow reads: what they are in fit, and held to it afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from .data import polars_errors
from .errors import WorkflowError
from .expressions.series import column_schema
from .graph import Node
from .resolution import columns_read
from .schema import ColumnSchema, Schema, SchemaError


def read_schema(nodes: Sequence[Node], frame: pl.LazyFrame, known: Schema | None) -> Schema:
    """The schema of the columns that a graph reads.

    Args:
        nodes: the graph's.
        frame: the data.
        known: tags and properties of the data's columns.

    Raises:
        WorkflowError: the data cannot be read, or a column is missing or of a type that is none of
            ours.
    """
    with polars_errors("The data cannot be read"):
        have = frame.collect_schema()
    facts = known or Schema()
    tags = {name: facts[name].tags if name in facts else () for name in have}
    try:
        columns = [column_schema(name, have[name]) for name in columns_read(nodes, tags)]
    except SchemaError as error:
        raise WorkflowError(f"The data cannot be fitted to: {error}") from error
    own = {c.name: facts[c.name].properties if c.name in facts else {} for c in columns}
    return Schema(
        c.with_(tags=tags[c.name], properties={**own[c.name], **c.properties}) for c in columns
    )


def expect_inputs(frame: pl.LazyFrame, inputs: Schema) -> None:
    """Hold data to what `fit` has seen; an integer or a float may be of another width.

    Raises:
        WorkflowError: a column is missing, or is of another kind.
    """
    with polars_errors("The data cannot be read"):
        have = frame.collect_schema()
    missing = [name for name in inputs if name not in have]
    if missing:
        raise WorkflowError(
            f"No column {', '.join(map(repr, missing))} in the data. It has: {', '.join(have)}."
        )
    for column in inputs.columns:
        _expect_kind(column, have[column.name])


def _expect_kind(column: ColumnSchema, received: pl.DataType) -> None:
    if received == pl.Null or (isinstance(received, pl.List) and received.inner == pl.Null):
        return
    have = column_schema(column.name, received)
    same = have.info.kind == column.info.kind or {have.info.kind, column.info.kind} == {
        "int",
        "uint",
    }
    # Numbers may be the microseconds of a column of dates, but dates are no numbers of the user's own.
    if not same or have.is_list != column.is_list or have.is_time > column.is_time:
        raise WorkflowError(
            f"Expected column {column.name!r} as {column}, as in fit. Received: {received}."
        )
