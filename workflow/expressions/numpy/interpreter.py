"""The numpy interpreter: runs a program inside Triton's Python backend, with numpy alone.

A program is prepared once (lookup tables built, dtypes fixed) into a list of functions, so that a
request costs little more than the numpy calls themselves.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...schema.column import Array, Column, Strings
from ...schema.dtypes import DTYPES
from ..program.program import Program, Step
from .elementwise import Function
from .joint_steps import Group, group_steps
from .tables import lookup_lanes
from .verbs import PREPARE


class NumpyInterpreter:
    """A program over numpy columns.

    Args:
        program: the program to run.
        together: the most rows with which equal steps over several columns are computed as one;
            with more rows the saved calls are a small part of the time.

    Example:
        >>> from workflow.expressions.language.tree import source
        >>> from workflow.expressions.program.program import build
        >>> from workflow.schema.schema import ColumnSchema, Schema
        >>> from workflow.expressions.language.types import Type
        >>> x = source("x", Type("int64"))
        >>> program = build([(ColumnSchema("y", "int64"), x + 1)], Schema([ColumnSchema("x", "int64")]))
        >>> NumpyInterpreter(program)({"x": Column(np.array([1, 2]))})["y"].values
        array([2, 3])
    """

    def __init__(self, program: Program, together: int = 1_024) -> None:
        self.program = program
        self._most_together = together
        steps = program.steps
        functions = {
            number: PREPARE[step.verb](step, [steps[o].type for o in step.operands])
            for number, step in enumerate(steps)
            if step.verb not in ("source", "constant")
        }
        self._alone = [(number, steps[number].operands, functions[number]) for number in functions]
        self._together = [
            (entry, (), _joint(entry, steps, functions))
            if isinstance(entry, Group)
            else (entry, steps[entry].operands, functions[entry])
            for entry in group_steps(program)
        ]
        self._sources = [
            (n, s.parameters["name"], s.type.kind == "float")
            for n, s in enumerate(steps)
            if s.verb == "source"
        ]
        self._start: list[Any] = [
            Column(constant_of(s)) if s.verb == "constant" else None for s in steps
        ]

    def __call__(self, columns: Mapping[str, Column]) -> dict[str, Column]:
        """Compute the outputs of all rows.

        Args:
            columns: one column for each input of the program, of its dtype, all with N rows.

        Returns:
            One column of N rows for each output.
        """
        return self.outputs(self.results(columns))

    def outputs(self, results: Sequence[Column]) -> dict[str, Column]:
        """The outputs among the results of all steps."""
        rows = results[self._sources[0][0]].rows if self._sources else 0
        return {c.name: _spread(results[step], rows) for c, step in self.program.outputs}

    def results(self, columns: Mapping[str, Column]) -> list[Column]:
        """Compute all steps; those whose results only a group reads have none."""
        slots = self._start + [None] * len(self._together)
        rows = 0
        for number, name, is_float in self._sources:
            column = columns[name]
            slots[number] = _nan_is_null(column) if is_float else column
            rows = column.rows
        with np.errstate(all="ignore"):
            plan = self._together if rows <= self._most_together else self._alone
            for entry, operands, function in plan:
                if isinstance(entry, Group):
                    entry.run(slots, function)
                else:
                    slots[entry] = function(*[slots[o] for o in operands])
        return slots


def _joint(group: Group, steps: Sequence[Step], functions: Mapping[int, Function]) -> Function:
    """The function for all lanes: any lane's own, except for lookups, whose tables differ."""
    if steps[group.steps[0]].verb != "lookup":
        return functions[group.steps[0]]
    return lookup_lanes([steps[n] for n in group.steps], [functions[n] for n in group.steps])


def constant_of(step: Step) -> Array:
    """The value of a step that is a constant."""
    return np.array(step.parameters["value"], DTYPES[step.type.dtype].numpy)


def _nan_is_null(column: Column) -> Column:
    values = column.array
    present = values == values  # noqa: PLR0124 - NaN differs from itself
    if present.all():
        return column
    valid = present if column.valid is None else present & column.valid
    return Column(values, valid, column.lengths)


def _spread(column: Column, rows: int) -> Column:
    """A constant output as a column of N rows."""
    if isinstance(column.values, Strings) or column.values.ndim:
        return column
    return Column(np.full(rows, column.values), column.valid)
