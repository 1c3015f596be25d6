"""Tracing: recording a Python function's operations on columns as an expression."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from workflow.schema.dtypes import SchemaError
from workflow.schema.names import did_you_mean, listed

from ..language.methods import vocabulary
from ..language.tree import Expression, call
from ..language.types import ExpressionError
from .program import Program


class Frame(Mapping[str, Expression]):
    """The columns that a traced function may read, as `df["age"]` or `df.age`.

    Args:
        columns: by name.
        advice: the remedy for a missing one, for the error.

    Example:
        >>> from workflow.expressions.language.tree import source
        >>> from workflow.expressions.language.types import Type
        >>> Frame({"age": source("age", Type("int32"))}).age > 18
        greater(age, 18)
    """

    def __init__(self, columns: Mapping[str, Expression], advice: str = "") -> None:
        self._columns, self._advice = dict(columns), advice

    def __getitem__(self, name: str) -> Expression:
        if name not in self._columns:
            have = listed(self._columns) or "none"
            hint = did_you_mean([name], self._columns)
            raise ExpressionError(
                f"No column {name!r}. There are: {have}.{hint} {self._advice}".rstrip()
            )
        return self._columns[name]

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __repr__(self) -> str:
        """The text that an error shows where a column is needed."""
        last = next(reversed(self._columns), "name")
        return f"a frame of the columns {listed(self._columns)}; take one, as in df[{last!r}]"

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def trace(function: Callable[..., Any], *columns: Expression | Frame) -> Expression:
    """Expression of a Python function's result for columns.

    Raises:
        ExpressionError: the function uses something without a verb; the message names it.
    """
    name = getattr(function, "__name__", repr(function))
    try:
        result = function(*columns)
    except (ExpressionError, SchemaError) as error:
        raise ExpressionError(f"{name} cannot be traced: {error}") from error
    except Exception as error:
        frame = next((f"It was given {c!r}. " for c in columns if isinstance(c, Frame)), "")
        raise ExpressionError(
            f"{name} cannot be traced: {type(error).__name__}: {str(error).rstrip('.')}. "
            f"{frame}{vocabulary()}"
        ) from error
    if not isinstance(result, Expression):
        raise ExpressionError(f"Expected a column from {name}. Received: {result!r:.200}.")
    return result


def inline(program: Program, columns: Mapping[str, Expression]) -> dict[str, Expression]:
    """A program's outputs as expressions over other expressions, which replace its inputs."""
    made: list[Expression] = []
    for step in program.steps:
        if step.verb == "source":
            name = step.parameters["name"]
            if name not in columns:
                raise ExpressionError(
                    f"No column {name!r}. There are: {listed(columns) or 'none'}."
                )
            made.append(columns[name])
        elif step.verb == "constant":
            made.append(Expression("constant", (), step.parameters, step.type))
        else:
            made.append(call(step.verb, *(made[o] for o in step.operands), **step.parameters))
    return {column.name: made[step] for column, step in program.outputs}
