"""Dates and times that a user's function combines."""

from __future__ import annotations

from collections.abc import Iterable

from workflow.expressions.language.tree import Expression
from workflow.expressions.language.verbs import VERBS
from workflow.operator.checks import require
from workflow.operator.feature import Feature
from workflow.schema.schema import ColumnSchema, are_alike_times, time_name
from workflow.schema.times import remedy

# The column whose kind of time a value has; None for a number.
Time = ColumnSchema | None


def expect_alike_times(made: Iterable[Expression], columns: Iterable[Feature]) -> None:
    """Refuse to compare, subtract or mix dates and times of different kinds.

    All of them are microseconds in an expression, so the difference between a time of New York and
    one without a zone would be a number, wrong by some hours. Times of any two zones are
    compatible, because both are moments, and so are times of any two units. `column.cast("int64")`
    is a number.

    Args:
        made: the results of functions.
        columns: the functions' arguments.

    Raises:
        WorkflowError: names the verb, both columns and the remedy.

    Example:
        >>> from workflow.expressions.language.tree import source
        >>> from workflow.expressions.language.types import Type
        >>> day, at = (source(name, Type("int64")) for name in ("day", "at"))
        >>> schemas = ColumnSchema("day", "int64", time="date"), ColumnSchema("at", "int64", time="UTC")
        >>> expect_alike_times([at > day], [Feature(day, schemas[0]), Feature(at, schemas[1])])
        Traceback (most recent call last):
            ...
        workflow.errors.WorkflowError: Expected times of one kind in greater. Received: ...
    """
    times_by_id: dict[int, Time] = {
        id(each.expression): each.schema if each.schema.is_time else None for each in columns
    }
    todo = [*made]
    while todo:
        node = todo[-1]
        waiting = [operand for operand in node.operands if id(operand) not in times_by_id]
        if id(node) in times_by_id or not waiting:
            times_by_id.setdefault(id(todo.pop()), _time_of(node, times_by_id))
        else:
            todo += waiting


def _time_of(node: Expression, times_by_id: dict[int, Time]) -> Time:
    if id(node) in times_by_id or not node.operands:
        return times_by_id.get(id(node))
    operands = node.operands[:1] if VERBS[node.verb].repeats else node.operands
    times = [time for operand in operands if (time := times_by_id[id(operand)]) is not None]
    for other in times[1:]:
        require(
            are_alike_times(times[0].time, other.time),
            f"Expected times of one kind in {node.verb}. Received: {_shown(times[0])} and "
            f"{_shown(other)}. {remedy(times[0].time, other.time)}",
        )
    is_difference = node.verb == "subtract" and len(times) == 2
    return times[0] if times and VERBS[node.verb].keeps_time and not is_difference else None


def _shown(column: ColumnSchema) -> str:
    return f"column {column.name!r} ({time_name(column.time)})"
