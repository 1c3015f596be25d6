"""Checks of settings, columns and states that do not go together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from workflow.errors import WorkflowError

from .feature import State


def require(condition: bool, message: str) -> None:
    """Raise a `WorkflowError` unless the condition holds."""
    if not condition:
        raise WorkflowError(message)


def per_column(value: Any, name: str, default: Any) -> Any:
    """A setting that is one value for all columns or a mapping from column to value."""
    return value.get(name, default) if isinstance(value, Mapping) else value


def expect_known(setting: str, value: Any, columns: Collection[str]) -> None:
    """Refuse a setting for a column that the operator does not have: it would do nothing.

    Raises:
        WorkflowError: names the columns that are unknown.
    """
    unknown = [name for name in value if name not in columns] if isinstance(value, Mapping) else []
    require(
        not unknown,
        f"{setting} is set for {', '.join(map(repr, unknown))}. The columns are: {', '.join(columns)}.",
    )


def expect_state(state: State, names: Iterable[str]) -> None:
    """Hold a state to what an operator has learnt under these names and nothing else.

    Raises:
        WorkflowError: the state belongs to other columns, or to another operator.
    """
    wanted = list(names)
    require(
        state.keys() == set(wanted),
        f"Expected state for {', '.join(wanted)}. Received: {', '.join(state) or 'none'}.",
    )
