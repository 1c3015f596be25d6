"""Lookups that make the dtype to which their results are cast, instead of int64."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from workflow.expressions.program.program import Program
from workflow.schema.dtypes import DTYPES


def with_narrow_lookups(program: Program) -> Program:
    """The same outputs, without casts of whole columns of positions.

    A cast of a lookup, or of a lookup whose nulls are filled, takes as long as the lookup.

    Example:
        >>> from workflow import Workflow, ops
        >>> ids = ["user"] >> ops.Categorify(dtype="int32")
        >>> program = Workflow(ids).fit({"user": [7, 9]}).program
        >>> [f"{step.verb} {step.type}" for step in with_narrow_lookups(program).steps[2:]]
        ['lookup int32?', 'fill_null int32', 'cast int32']
    """
    narrow = _narrow(program)
    steps = list(program.steps)
    for number, dtype in narrow.items():
        type_ = replace(steps[number].type, dtype=dtype)
        steps[number] = replace(steps[number], type=type_)
    return replace(program, steps=tuple(steps))


def _narrow(program: Program) -> dict[int, str]:
    """The steps that can make another dtype, and the dtype."""
    uses = Counter(operand for step in program.steps for operand in step.operands)
    uses.update(step for _, step in program.outputs)
    dtypes: dict[int, str] = {}
    for step in program.steps:
        if step.verb == "cast" and DTYPES[step.type.dtype].is_integer:
            chain = list(_chain(program, step.operands[0]))
            alone = all(uses[number] == 1 for number in chain)
            if chain and alone and _fits(program, chain, step.type.dtype):
                dtypes |= dict.fromkeys(chain, step.type.dtype)
    return dtypes


def _chain(program: Program, number: int) -> Iterator[int]:
    """The steps from a lookup, whose nulls a constant may fill, to its result; none for others."""
    step = program.steps[number]
    if step.verb == "lookup":
        yield number
    elif step.verb == "fill_null" and program.steps[step.operands[1]].verb == "constant":
        before = list(_chain(program, step.operands[0]))
        yield from [number, *before] if before else []


def _fits(program: Program, chain: list[int], dtype: str) -> bool:
    """Whether a dtype holds every result of a chain."""
    *fills, last = (program.steps[number] for number in chain)
    first, missing = last.parameters["first"], last.parameters["missing"]
    values = [program.steps[step.operands[1]].type.value for step in fills]
    values += [first, first + last.parameters["keys"].rows, missing]
    limits = np.iinfo(DTYPES[dtype].numpy)
    return bool(limits.min <= min(values) and max(values) <= limits.max)
