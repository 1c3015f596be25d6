"""Tracing: what a Python function does to columns, written down as an expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .program import Program
from .tree import Expression, call, vocabulary
from .verbs import ExpressionError


def trace(function: Callable[..., Any], *columns: Expression) -> Expression:
    """What a Python function does to columns, as an expression.

    Raises:
        ExpressionError: the function uses something that has no verb; the text says what.
    """
    name = getattr(function, "__name__", repr(function))
    try:
        result = function(*columns)
    except ExpressionError as error:
        raise ExpressionError(f"{name} cannot be traced: {error}") from error
    except Exception as error:
        raise ExpressionError(
            f"{name} cannot be traced: {type(error).__name__}: {error}. {vocabulary()}"
        ) from error
    if not isinstance(result, Expression):
        raise ExpressionError(f"Expected a column from {name}. Received: {result!r:.200}.")
    return result


def inline(program: Program, columns: Mapping[str, Expression]) -> dict[str, Expression]:
    """A program's outputs as expressions over other expressions, in place of its inputs."""
    made: list[Expression] = []
    for step in program.steps:
        if step.verb == "source":
            made.append(columns[step.parameters["name"]])
        elif step.verb == "constant":
            made.append(Expression("constant", (), step.parameters, step.type))
        else:
            made.append(call(step.verb, *(made[o] for o in step.operands), **step.parameters))
    return {column.name: made[step] for column, step in program.outputs}
