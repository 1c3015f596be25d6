"""The numpy interpreter: runs a program inside Triton's python backend, with numpy alone.

A program is prepared once (lookup tables built, dtypes settled) into a list of functions, so
that a request costs little more than the numpy calls themselves.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..schema import DTYPES  # noqa: TID252 - see verbs.py
from .column import Array, Column, Strings
from .numpy_verbs import PREPARE
from .program import Program, Step


class NumpyInterpreter:
    """Runs a program over numpy columns.

    Example:
        >>> from workflow.expressions.tree import source
        >>> from workflow.expressions.program import build
        >>> from workflow.schema import ColumnSchema, Schema
        >>> from workflow.expressions.verbs import Type
        >>> x = source("x", Type("int64"))
        >>> program = build([(ColumnSchema("y", "int64"), x + 1)], Schema([ColumnSchema("x", "int64")]))
        >>> NumpyInterpreter(program)({"x": Column(np.array([1, 2]))})["y"].values
        array([2, 3])
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._plan = [
            (
                number,
                step.operands,
                PREPARE[step.verb](step, [program.steps[o].type for o in step.operands]),
            )
            for number, step in enumerate(program.steps)
            if step.verb not in ("source", "constant")
        ]
        self._sources = [
            (n, s.parameters["name"]) for n, s in enumerate(program.steps) if s.verb == "source"
        ]
        self._start: list[Any] = [
            Column(_constant(s)) if s.verb == "constant" else None for s in program.steps
        ]

    def __call__(self, columns: Mapping[str, Column]) -> dict[str, Column]:
        """Compute the outputs of all rows.

        Args:
            columns: one column for each input of the program, of its dtype, all with N rows.

        Returns:
            one column of N rows for each output.
        """
        slots = self._start.copy()
        rows = 0
        for number, name in self._sources:
            slots[number] = _nan_is_null(columns[name])
            rows = columns[name].rows
        with np.errstate(all="ignore"):
            for number, operands, function in self._plan:
                slots[number] = function(*[slots[o] for o in operands])
        return {c.name: _spread(slots[step], rows) for c, step in self.program.outputs}


def _constant(step: Step) -> Array:
    return np.array(step.parameters["value"], DTYPES[step.type.dtype].numpy)


def _nan_is_null(column: Column) -> Column:
    values = column.values
    if isinstance(values, Strings) or values.dtype.kind != "f":
        return column
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
