"""Common parts of the operators that fill missing values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workflow.expressions.language.tree import Expression
from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features
from workflow.schema.schema import ColumnSchema
from workflow.schema.tags import FACTS, facts_of


def facts_with(like: ColumnSchema, filling: bool | float | str) -> dict[str, Any]:
    """The facts about the values of a column that hold with another value among them.

    Ids stay ids, and need an embedding with as many rows, if the value is one of them.
    """
    facts = {name: value for name, value in facts_of(like).items() if name in FACTS}
    if isinstance(filling, str) or not 0 <= filling < facts.get("cardinality", 0):
        return {}
    if domain := facts.get("domain"):
        ends = {"min": min(filling, domain["min"]), "max": max(filling, domain["max"])}
        facts["domain"] = {**domain, **ends}
    return facts


def filled_column(
    feature: Feature,
    value: Expression,
    columns: Collection[str],
    *,
    indicator: bool,
    facts: Mapping[str, Any] | None = None,
) -> Features:
    """A filled column, and with `indicator` another one that marks the filled values.

    Args:
        feature: the column before filling.
        value: the filled values.
        columns: the names of all columns of the operator.
        indicator: whether to make `<column>_filled` as well.
        facts: properties of the filled column.

    Raises:
        WorkflowError: a column already has the indicator's name.
    """
    schema = feature.schema
    filled = Feature.of(schema.name, value, schema, time=schema.time, properties=facts or {})
    outputs = {schema.name: filled}
    if indicator:
        name = f"{schema.name}_filled"
        require(name not in columns, f"Column {name!r} exists. Rename it.")
        outputs[name] = Feature.of(name, feature.expression.is_null(), schema)
    return outputs
