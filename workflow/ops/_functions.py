"""Settings that are functions from a column's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workflow.errors import WorkflowError, first_line
from workflow.operator.settings import settled


def of_name(label: str, setting: str, function: Callable[[str], Any], name: str, hint: Any) -> Any:
    """Result of a user's function for a column, validated against an annotation.

    Args:
        label: the operator's name, for messages.
        setting: the setting's name.
        function: the function.
        name: the column's name.
        hint: the annotation.

    Raises:
        WorkflowError: the function raises, or returns an invalid value.
    """
    try:
        result = function(name)
    except Exception as error:
        raise WorkflowError(
            f"{label}'s function fails for {name!r}: {type(error).__name__}: {first_line(error)}."
        ) from error
    return settled(label, f"{setting}({name!r})", result, hint)
