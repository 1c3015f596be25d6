"""Common parts of operators over numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from workflow.expressions.language.tree import Expression
from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, Partials
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
    value = pl.col(name).cast(pl.Float64)
    return flat_values(frame, name, is_list=is_list).select(value.filter(value.is_finite()))


def flat_values(frame: pl.LazyFrame, name: str, *, is_list: bool) -> pl.LazyFrame:
    """The values of a column, with the elements of lists in sequence and null for an empty list."""
    values = frame.select(name)
    # An empty list becomes null, as in cuDF, and nulls are neither finite nor least nor greatest.
    return values.explode(name, empty_as_null=True) if is_list else values


def ends(values: pl.LazyFrame, name: str) -> pl.LazyFrame:
    """The least and the greatest value of a column, null of none."""
    return values.select(min=pl.col(name).min(), max=pl.col(name).max())


def merged_ends(partials: Partials) -> Partials:
    """The least and the greatest values of all parts."""
    together = (pl.col("min").min(), pl.col("max").max())
    return {name: parts.select(together) for name, parts in partials.items()}


def numbered(name: str, ids: Expression, like: ColumnSchema, count: int) -> Feature:
    """A column of `count` ids from 0, int32."""
    facts = {"cardinality": count, "domain": {"min": 0, "max": count - 1}}
    return Feature.of(name, ids.cast("int32"), like, tags=(Tags.CATEGORICAL,), properties=facts)


def scaled(
    columns: Features, offsets: Sequence[float], scales: Sequence[float], dtype: str
) -> Features:
    """(value - offset) / scale, computed in float64, of columns in their order."""
    outputs: Features = {}
    for (name, feature), offset, scale in zip(columns.items(), offsets, scales, strict=True):
        value = ((feature.expression.cast("float64") - offset) / scale).cast(dtype)
        outputs[name] = Feature.of(name, value, feature.schema, tags=(Tags.CONTINUOUS,))
    return outputs
