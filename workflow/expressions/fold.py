"""Work done once on a table instead of on what each request takes from it.

A joined column is a gather from a constant table; what a program then does to its values alone
it can do to the table: genres that are looked up in a vocabulary become a table of ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from workflow.schema import DTYPES

from .column import Array, Column, Strings
from .numpy_verbs import PREPARE
from .program import Program, Step
from .verbs import VERBS, table_dtype

# Verbs that make a null of a null, so that a row which the table does not have stays null.
_STRICT = frozenset(
    "add subtract multiply minimum maximum divide negate absolute log1p log exp sqrt floor ceil "
    "equal not_equal less less_equal greater greater_equal logical_xor logical_not cast clip "
    "lookup gather".split()
)
# Verbs that do not; in a table of lists a row which it does not have is empty, so they may.
_LENIENT = frozenset("is_null fill_null where logical_and logical_or".split())


@dataclass(frozen=True)
class _Taken:
    """A step's result as what one table has at the positions of another step."""

    positions: int
    table: Column


def fold_tables(program: Program) -> Program:
    """The same program with what it does to the values of a constant table done to the table.

    Args:
        program: any program.

    Returns:
        a program of the same inputs, outputs and answers, with fewer or equally many steps.

    Example:
        >>> from workflow.expressions.program import build
        >>> from workflow.expressions.tree import source
        >>> from workflow.expressions.verbs import Type
        >>> from workflow.schema import ColumnSchema, Schema
        >>> doubled = source("row", Type("int64")).gather(Column(np.array([5, 6]))) * 2
        >>> rows = Schema([ColumnSchema("row", "int64")])
        >>> folded = fold_tables(build([(ColumnSchema("y", "int64"), doubled)], rows))
        >>> [step.verb for step in folded.steps]
        ['source', 'gather']
    """
    folder = _Folder(program)
    for number in range(len(program.steps)):
        folder.visit(number)
    return folder.program()


class _Folder:
    def __init__(self, program: Program) -> None:
        self.source = program
        self.taken: dict[int, _Taken] = {}

    def visit(self, number: int) -> None:
        step = self.source.steps[number]
        if step.verb == "gather" and step.operands[0] not in self.taken:
            self.taken[number] = _Taken(step.operands[0], step.parameters["table"])
            return
        parts = [o for o in step.operands if self.source.steps[o].verb != "constant"]
        takes = [self.taken[o] for o in parts if o in self.taken]
        if not takes or len(takes) < len(parts) or not self._may(step, takes):
            return
        columns = [
            self.taken[o].table if o in self.taken else _constant(self.source.steps[o])
            for o in step.operands
        ]
        self.taken[number] = _Taken(takes[0].positions, self._run(step, columns))

    def _may(self, step: Step, takes: list[_Taken]) -> bool:
        first = takes[0]
        same = all(
            t.positions == first.positions and _lengths(t.table) == _lengths(first.table)
            for t in takes
        )
        return same and (
            step.verb in _STRICT or (step.verb in _LENIENT and first.table.is_list)
        )

    def _run(self, step: Step, columns: list[Column]) -> Column:
        types = [self.source.steps[o].type for o in step.operands]
        with np.errstate(all="ignore"):
            made = PREPARE[step.verb](step, types)(*columns)
        values = made.array
        valid = made.valid
        if made.is_list and not step.type.nullable:
            valid = None
        elif made.is_list and valid is None:
            valid = np.ones(len(values), bool)
        packed = Strings.of(values.tolist()) if values.dtype == object else values
        return Column(packed, valid, made.lengths)

    def program(self) -> Program:
        """The steps that the outputs need, folded where they can be."""
        raise NotImplementedError
