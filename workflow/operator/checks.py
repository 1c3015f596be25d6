"""Checks of settings, columns and states against each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from workflow.errors import WorkflowError
from workflow.schema.names import did_you_mean, listed

from .feature import State


def require(condition: bool, message: str) -> None:
    """Raise a `WorkflowError` unless the condition holds."""
    if not condition:
        raise WorkflowError(message)


def per_column(value: Any, name: str, default: Any) -> Any:
    """Get a column's setting, from one value for all columns or a mapping by column."""
    return value.get(name, default) if isinstance(value, Mapping) else value


def expect_known(setting: str, value: Any, columns: Collection[str]) -> None:
    """Refuse a setting for a column that the operator does not have: it would have no effect.

    Raises:
        WorkflowError: names the unknown columns.
    """
    unknown = [name for name in value if name not in columns] if isinstance(value, Mapping) else []
    require(
        not unknown,
        f"{setting} is set for {listed(map(repr, unknown))}. The columns are: {listed(columns)}."
        + did_you_mean(unknown, columns),
    )


def expect_state(state: State, names: Iterable[str]) -> None:
    """Check that a state has exactly these names.

    Raises:
        WorkflowError: the state belongs to other columns, or to another operator.
    """
    expected_names = list(names)
    require(
        state.keys() == set(expected_names),
        f"Expected state for {listed(expected_names)}. Received: {listed(state) or 'none'}.",
    )
