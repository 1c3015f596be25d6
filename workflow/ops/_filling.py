"""Common parts of the operators that fill missing values."""

from __future__ import annotations

from collections.abc import Collection

from workflow.expressions.language.tree import Expression
from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features


def filled_column(
    feature: Feature, value: Expression, columns: Collection[str], *, indicator: bool
) -> Features:
    """A filled column, and with `indicator` another one that marks the filled values.

    Args:
        feature: the column before filling.
        value: the filled values.
        columns: the names of all columns of the operator.
        indicator: whether to make `<column>_filled` as well.

    Raises:
        WorkflowError: a column already has the indicator's name.
    """
    schema = feature.schema
    made = {schema.name: Feature.of(schema.name, value, schema, time=schema.time)}
    if indicator:
        name = f"{schema.name}_filled"
        require(name not in columns, f"Column {name!r} exists. Rename it.")
        made[name] = Feature.of(name, feature.expression.is_null(), schema)
    return made
