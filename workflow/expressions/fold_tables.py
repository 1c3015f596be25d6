"""Computation on a constant table in advance, instead of on its rows in each request.

A joined column is a gather from a constant table; verbs on its values alone can be applied to the
table instead: genres that are looked up in a vocabulary become a table of ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from workflow.schema.column import Column, Strings

from .language.types import Type
from .language.verbs import VERBS
from .numpy.interpreter import constant_of
from .numpy.verbs import PREPARE
from .program.program import Program, Step
from .program.roots import roots_of

# A missing row of a table of lists is empty, and has to stay so.
_FOLDED = {name for name, verb in VERBS.items() if verb.elementwise or verb.keeps_empty}


class _Taken(NamedTuple):
    """A step's result as the rows of one table at the positions of another step."""

    positions: int
    table: Column


class _Use(NamedTuple):
    """A step, either unchanged or as a gather from a folded table."""

    step: int
    folded: bool


def fold_tables(program: Program) -> Program:
    """Apply a program's verbs on the values of a constant table to the table itself.

    Folding a program again changes nothing.

    Returns:
        A program with the same inputs, outputs and results, and no more steps.

    Example:
        >>> from workflow.expressions.program.program import build
        >>> from workflow.expressions.language.tree import source
        >>> from workflow.expressions.language.types import Type
        >>> from workflow.schema.schema import ColumnSchema, Schema
        >>> doubled = source("row", Type("int64")).gather(Column(np.array([5, 6]))) * 2
        >>> rows = Schema([ColumnSchema("row", "int64")])
        >>> folded = fold_tables(build([(ColumnSchema("y", "int64"), doubled)], rows))
        >>> [step.verb for step in folded.steps]
        ['source', 'gather']
    """
    return program.derived("folded", lambda: _fold(program))


def _fold(program: Program) -> Program:
    taken: dict[int, _Taken] = {}
    roots = roots_of(program)
    # A column that is repeated for the elements of lists meets what is made of the same lists: none of
    # them may become others, of another table.
    met = {root for step, root in zip(program.steps, roots, strict=True) if _repeats(step)}
    for number, step in enumerate(program.steps):
        found = _take(program, step, taken)
        if found is not None and not (found.table.is_list and roots[number] in met):
            taken[number] = found
    return _rebuild(program, taken)


def _repeats(step: Step) -> bool:
    return step.verb in VERBS and VERBS[step.verb].repeats


def _take(program: Program, step: Step, taken: Mapping[int, _Taken]) -> _Taken | None:
    if step.verb == "gather" and step.operands[0] not in taken:
        return _Taken(step.operands[0], step.parameters["table"])
    parts = [o for o in step.operands if program.steps[o].verb != "constant"]
    takes = [taken[o] for o in parts if o in taken]
    if step.verb not in _FOLDED or not takes or len(takes) < len(parts):
        return None
    if not _may_fold(step, takes):
        return None
    columns = [
        taken[o].table if o in taken else Column(constant_of(program.steps[o]))
        for o in step.operands
    ]
    made = _run(step, [program.steps[o].type for o in step.operands], columns)
    return None if made is None else _Taken(takes[0].positions, made)


def _may_fold(step: Step, takes: Sequence[_Taken]) -> bool:
    first = takes[0]
    together = all(
        t.positions == first.positions
        and t.table.rows == first.table.rows
        and t.table.lengths is first.table.lengths
        for t in takes
    )
    # A row missing from a table of lists is empty, and not null. A table's values at the elements of
    # lists are no lists themselves.
    verb = VERBS[step.verb]
    return together and (first.table.is_list or not (verb.lenient or verb.reshapes))


def _run(step: Step, types: Sequence[Type], columns: Sequence[Column]) -> Column | None:
    """The verb over tables; None if its result is not a table, but equal in every row."""
    with np.errstate(all="ignore"):
        made = PREPARE[step.verb](step, types)(*columns)
    values, valid = made.array, made.valid
    if values.ndim == 0 or made.is_list < any(c.is_list for c in columns):
        return None
    if made.is_list:  # the static type of the result determines whether there is a mask
        none = np.ones(len(values), bool) if valid is None else valid
        valid = none if step.type.nullable else None
    return Column(Strings.of(values) if values.dtype == object else values, valid, made.lengths)


def _rebuild(program: Program, taken: Mapping[int, _Taken]) -> Program:
    """The steps that the outputs need, from the folded tables where possible."""
    needed = {_Use(step, folded=step in taken) for _, step in program.outputs}
    for number in reversed(range(len(program.steps))):
        for folded in (True, False):
            if _Use(number, folded) in needed:
                needed.update(_operands(program, _Use(number, folded), taken))
    steps: list[Step] = []
    places: dict[_Use, int] = {}
    for use in sorted(needed):
        operands = tuple(places[o] for o in _operands(program, use, taken))
        step = replace(program.steps[use.step], operands=operands)
        if use.folded:
            parameters = {"table": taken[use.step].table}
            type_ = VERBS["gather"].infer([steps[operands[0]].type], parameters)
            step = Step("gather", operands, parameters, type_)
        places[use] = len(steps)
        steps.append(step)
    outputs = tuple((c, places[_Use(s, folded=s in taken)]) for c, s in program.outputs)
    return replace(program, steps=tuple(steps), outputs=outputs)


def _operands(program: Program, use: _Use, taken: Mapping[int, _Taken]) -> list[_Use]:
    if use.folded:
        return [_Use(taken[use.step].positions, folded=False)]
    operands = program.steps[use.step].operands
    # Elements that are combined must come from one step, so there the steps remain unchanged.
    lists = {o for o in operands if program.steps[o].type.is_list}
    return [_Use(o, folded=o in taken and len(lists) < 2) for o in operands]
