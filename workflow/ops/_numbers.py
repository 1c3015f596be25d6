"""Common parts of operators over numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features
from workflow.operator.operator import Operator
from workflow.schema.schema import ColumnSchema, Schema, Tags


def expect_numbers(operator: Operator, columns: Mapping[str, Feature] | Schema) -> None:
    """Refuse columns that hold values other than integers and floats.

    Raises:
        WorkflowError: names the operator and the column.
    """
    for column in columns.values():
        schema = column if isinstance(column, ColumnSchema) else column.schema
        require(
            schema.info.is_integer or schema.info.kind == "float",
            f"{operator.label} needs numbers. Received: column {schema.name!r}, {schema}. "
            f'Choose columns of numbers, as in node[["a", "b"]] >> {operator.label}().',
        )


def finite_values(frame: pl.LazyFrame, name: str, *, is_list: bool) -> pl.LazyFrame:
    """The finite values of a column as float64, with the elements of lists in sequence."""
    values = frame.select(name)
    if is_list:  # An empty list becomes null, as in cuDF, and nulls are not finite.
        values = values.explode(name, empty_as_null=True)
    value = pl.col(name).cast(pl.Float64)
    return values.select(value.filter(value.is_finite()))


def scaled(
    columns: Features, offsets: Sequence[float], scales: Sequence[float], dtype: str
) -> Features:
    """(value - offset) / scale, computed in float64, of columns in their order."""
    made: Features = {}
    for (name, feature), offset, scale in zip(columns.items(), offsets, scales, strict=True):
        value = ((feature.expression.cast("float64") - offset) / scale).cast(dtype)
        made[name] = Feature.of(name, value, feature.schema, tags=(Tags.CONTINUOUS,))
    return made
