"""The columns of the data that a workflow reads: their schema in fit, and its validation later."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from workflow.data.frames import polars_errors
from workflow.data.parquet import as_integers, element_type
from workflow.data.sources import Source
from workflow.errors import AS_INTEGERS, WorkflowError
from workflow.expressions.polars.series import column_schema, polars_dtype, type_remedy
from workflow.schema.dtypes import SchemaError
from workflow.schema.names import listed, rename_advice
from workflow.schema.schema import ColumnSchema, Schema, are_alike_times
from workflow.schema.times import remedy

from .node import Node
from .resolution import columns_read

_CAST = (
    " Cast it with LambdaOp(lambda c: c.cast('int64')), or make categories of it with Bucketize."
)


def read_schema(nodes: Sequence[Node], table: Source, known: Schema | None) -> Schema:
    """The schema of the columns that a graph reads.

    Args:
        nodes: nodes of the graph.
        table: the data.
        known: tags and properties of the data's columns.

    Raises:
        WorkflowError: the data cannot be read, or a column is missing, has an unsupported type, or
            differs between files.
    """
    have = _columns(table)
    facts = Schema() if known is None else expect_schema(known)
    names = [*have, *table.conflicts]
    tags = {name: facts[name].tags if name in facts else () for name in names}
    inputs = columns_read(nodes, tags)
    _expect_one_table(table, inputs)
    try:
        columns = [column_schema(name, have[name]) for name in inputs]
    except SchemaError as error:
        raise WorkflowError(f"The data cannot be fitted to: {error}") from error
    properties = {c.name: facts[c.name].properties if c.name in facts else {} for c in columns}
    return Schema(
        c.with_(tags=tags[c.name], properties={**properties[c.name], **c.properties})
        for c in columns
    )


def expect_schema(given: Any) -> Schema:
    """Check that a value is a schema.

    Raises:
        WorkflowError: it is not.
    """
    if isinstance(given, Schema):
        return given
    raise WorkflowError(
        "Expected a workflow.Schema, such as Schema([ColumnSchema('userId', 'int64')]). "
        f"Received: {given!r:.200}."
    )


def _without(missing: list[str]) -> str:
    return (
        " If new data lack it, as they may a label, transform them with "
        f"workflow.remove_inputs([{listed(map(repr, missing))}]); for the command line, save that one "
        "with .save(folder), and pass --workflow folder."
    )


def held_to(table: Source, inputs: Schema) -> pl.LazyFrame:
    """Data validated against the columns in `fit`: each of the same kind, of any width.

    Integers may be floats, as pandas makes them of integers beside nulls, where NaN is null; and
    floats may be integers. Dates have to be dates, times without a zone such times of any unit, and
    times with a zone may have any zone: the moment counts.

    Raises:
        WorkflowError: a column is missing or of another kind, or a float in a column of integers
            has a fraction; names the column, and the row.
    """
    have = _columns(table)
    _expect_one_table(table, inputs)
    missing = [name for name in inputs if name not in have]
    if missing:
        raise WorkflowError(
            f"No column {listed(map(repr, missing))} in the data. It has: {listed(have)}."
            f"{rename_advice(missing, have)}{_without(missing) if missing != inputs.names else ''}"
        )
    for column in inputs.columns:
        _expect_kind(column, have[column.name])
    frame = with_integers(table.frame, inputs)
    _expect_in_range(frame, inputs)
    return frame


def with_integers(frame: pl.LazyFrame, columns: Schema) -> pl.LazyFrame:
    """A frame with integers in columns of integers, even if they came as floats.

    Returns:
        The frame itself if there are no such floats.

    Raises:
        WorkflowError: a float is not an integer; names the column and the row.

    Example:
        >>> ids = pl.LazyFrame({"userId": [7.0, float("nan")]})
        >>> with_integers(ids, Schema([ColumnSchema("userId", "int64")])).collect()["userId"].to_list()
        [7, None]
    """
    floats = _floats(frame, columns)
    for column, most, value, row in _fractions(frame, columns):
        raise WorkflowError(
            f"Expected column {column.name!r} as {column}, or as floats that are whole numbers up to "
            f"{most}. Received: {value} in row {row}.{_as_integers_advice(value, most)}"
        )
    have = frame.collect_schema()
    names = [column.name for column, _ in floats]
    return frame.with_columns(as_integers(n, have[n]) for n in names) if floats else frame


def _floats(frame: pl.LazyFrame, columns: Schema) -> list[tuple[ColumnSchema, int]]:
    """The columns of integers that are floats in a frame, and the limit up to which they are exact."""
    have = frame.collect_schema()
    types = [(c, element_type(have[c.name])) for c in columns.columns if c.info.is_integer]
    return [(c, 2**24 if t == pl.Float32 else 2**53) for c, t in types if t.is_float()]


def _fractions(
    frame: pl.LazyFrame, columns: Schema
) -> Iterator[tuple[ColumnSchema, int, Any, int]]:
    """The first float of each column that is not an integer, after its limit and before its row.

    Such floats are fractions, and numbers with more digits than a float can hold.
    """
    for column, most in _floats(frame, columns):
        element = _elements(column)
        wrong = (element != element.round()) | (element.abs() > most) | element.is_infinite()
        wrong = wrong & element.is_not_nan()
        for row, value in _first_row(frame, column, wrong):
            yield column, most, value, row


def _as_integers_advice(value: Any, most: int) -> str:
    """Advice if a number, or one of a list, has more digits than a float holds."""
    numbers = value if isinstance(value, list) else [value]
    is_rounded = any(most < abs(number) < math.inf for number in numbers if number is not None)
    return f" {AS_INTEGERS}" if is_rounded else ""


def integer_columns(inputs: Schema, names: Collection[str]) -> Schema:
    """The columns of the data, some of them replaced by int64."""
    return Schema(c.with_(dtype="int64") if c.name in names else c for c in inputs.columns)


def whole_numbers(source: Source, inputs: Schema, label: str) -> Source:
    """Data whose floats are read as integers.

    Args:
        source: the data.
        inputs: the wanted columns.
        label: the operator that requires integers.

    Raises:
        WorkflowError: a float is not a whole number; names the operator, the column and the row.
    """
    have = source.frame.collect_schema()
    with source.errors("The data cannot be fitted to"):
        fractions = [*_fractions(source.frame, inputs)]
    for column, most, value, row in fractions:
        raise WorkflowError(
            f"{label} needs integers, or floats that are whole numbers up to {most}. Received: column "
            f"{column.name!r}, {column_schema(column.name, have[column.name])}, with {value} in row {row}."
            + (_as_integers_advice(value, most) or _CAST)
        )
    if source.files is None:
        return replace(source, frame=with_integers(source.frame, inputs))
    floats = [column for column, _ in _floats(source.frame, inputs)]
    types = {c.name: polars_dtype(c.dtype, is_list=c.is_list) for c in floats}
    files = source.files.cast(source.files.schema | types)
    return replace(source, frame=files.scan(), files=files)


def _expect_in_range(frame: pl.LazyFrame, inputs: Schema) -> None:
    """Refuse numbers outside the range of the dtype in `fit`, before they are cast.

    Polars' own cast refuses such integers when the frame is collected, but cuDF's wraps them around;
    floats would become infinite.
    """
    have = frame.collect_schema()
    for column in inputs.columns:
        received = element_type(have[column.name])
        for row, value in _first_row(frame, column, _is_beyond(column, received)):
            raise WorkflowError(
                f"Expected column {column.name!r} as {column}, as in fit. Received: {value} in row {row}. "
                "Fit to data with such values, or correct them."
            )


def _is_beyond(column: ColumnSchema, received: pl.DataType) -> pl.Expr | None:
    """Finite numbers of a type that are outside a column's dtype; None if there can be none."""
    element = _elements(column)
    if column.dtype == "float32" and received == pl.Float64:
        return element.is_finite() & element.cast(pl.Float32).is_infinite()
    if not (column.info.is_integer and received.is_integer()):
        return None
    data_limits = np.iinfo(column_schema(column.name, received).info.numpy)
    limits = np.iinfo(column.info.numpy)
    # A comparison with a limit outside the type would convert both to floats.
    wrong = [element < pl.lit(int(limits.min), received)] if limits.min > data_limits.min else []
    wrong += [element > pl.lit(int(limits.max), received)] if limits.max < data_limits.max else []
    return pl.any_horizontal(wrong) if wrong else None


def _elements(column: ColumnSchema) -> pl.Expr:
    return pl.element() if column.is_list else pl.col("value")


def _values(frame: pl.LazyFrame, column: ColumnSchema) -> pl.Expr:
    """A column, with fixed-size arrays converted to lists."""
    values = pl.col(column.name)
    is_array = isinstance(frame.collect_schema()[column.name], pl.Array)
    return values.arr.to_list() if is_array else values


def _first_row(
    frame: pl.LazyFrame, column: ColumnSchema, wrong: pl.Expr | None
) -> Iterator[tuple[int, Any]]:
    """The first row, if any, with a wrong value or list element, and that value."""
    if wrong is None:
        return
    if column.is_list:
        wrong = pl.col("value").list.eval(wrong).list.any()
    rows = frame.select(value=_values(frame, column)).with_row_index("row").filter(wrong)
    yield from rows.head(1).collect(engine="streaming").iter_rows()


def _columns(table: Source) -> pl.Schema:
    with polars_errors("The data cannot be read"):
        return table.frame.collect_schema()


def _expect_one_table(table: Source, names: Iterable[str]) -> None:
    for name in names:
        if name in table.conflicts:
            raise WorkflowError(table.conflicts[name])


def _expect_kind(column: ColumnSchema, received: pl.DataType) -> None:
    lists_of_null = isinstance(received, pl.List) and received.inner == pl.Null
    if received == pl.Null or (lists_of_null and column.is_list):
        return
    if lists_of_null:
        raise _unlike(column, str(received), _shape_advice(column))
    try:
        have = column_schema(column.name, received)
    except SchemaError:
        raise _unlike(column, str(received), type_remedy(column.name, received)) from None
    same = {have.info.kind, column.info.kind} <= {"int", "uint", "float"}
    same = (same or have.dtype == column.dtype) and have.is_list == column.is_list
    if not same or not are_alike_times(column.time, have.time):
        of_times = have.time and str(have.with_(nullable=False))
        of_times_advice = remedy(column.time, have.time, (column if have.time else have).dtype)
        raise _unlike(
            column, of_times or str(received), of_times_advice or _conversion(column, have)
        )


def _conversion(column: ColumnSchema, have: ColumnSchema) -> str:
    """Advice for a column of another type than in fit, if neither type is a time."""
    if column.is_list != have.is_list:
        return _shape_advice(column)
    fill = ".fill_nan(None)" if have.dtype.startswith("float") and not column.is_list else ""
    # Types of pandas that hold nulls: of others `==` and casts make values, or end in an error.
    if column.dtype == "bool":
        in_pandas = (
            "" if column.is_list else f", column.astype({_in_pandas(have)}) == value in pandas"
        )
        return (
            "Compare it with the value that means true: "
            f"column{fill} == value in Polars{in_pandas}."
        )
    type_ = f"pl.{column.info.polars}"
    cast = f"pl.List({type_})" if column.is_list else type_
    in_pandas = "" if column.is_list else f", .astype({_in_pandas(column)}) in pandas"
    return f"Cast it: {fill}.cast({cast}) in Polars{in_pandas}."


def _shape_advice(column: ColumnSchema) -> str:
    """Advice for lists in place of single values, and for single values in place of lists."""
    return "Send " + ("a list" if column.is_list else "a single value") + " for each row."


def _in_pandas(column: ColumnSchema) -> str:
    """The type of pandas that holds a column and nulls, in quotes."""
    return '"string"' if column.dtype == "string" else f'"{column.info.polars}"'


def _unlike(column: ColumnSchema, received: str, advice: str = "") -> WorkflowError:
    text = f"Expected column {column.name!r} as {column}, as in fit. Received: {received}. {advice}"
    return WorkflowError(text.rstrip())
