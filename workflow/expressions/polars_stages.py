"""Programs in stages, for what a table finds is computed once and not wherever it is used.

Polars computes a part that several expressions share only once, but for those that hold a table:
an expression over `lookup(x)` three times looks it up three times, and one over that nine times.
So a lookup of which more is made becomes a column of its own before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from workflow.schema import ColumnSchema

from .cut import needed, part
from .polars import Compile, expressions
from .program import Program

Stages = Sequence[Sequence[pl.Expr]]

_OF_TABLES = {"lookup", "gather"}


def apply(frame: pl.LazyFrame, program: Program) -> pl.LazyFrame:
    """A frame of the program's outputs, rows in the order of the given frame's."""
    return run_stages(frame, compile_stages(program))


def run_stages(frame: pl.LazyFrame, stages: Stages) -> pl.LazyFrame:
    """A frame of the outputs of a program that `compile_stages` has made expressions of."""
    *before, outputs = stages
    for columns in before:
        frame = frame.with_columns(columns)
    return frame.select(outputs)


def compile_stages(program: Program, verbs: Mapping[str, Compile] | None = None) -> Stages:
    """Polars expressions over a frame of a program's inputs: what to add to it, and the outputs.

    Args:
        program: what to make of each row.
        verbs: what each verb is in Polars, as `expressions` takes it.
    """
    return [expressions(stage, verbs) for stage in stages(program)]


def stages(program: Program) -> list[Program]:
    """Programs of which each is over the inputs and what those before it made.

    Args:
        program: any program.

    Returns:
        at least one; the last makes the program's outputs.

    Example:
        >>> from workflow import Workflow, ops
        >>> rows = {"user": [7, 9], "city": ["a", "b"], "rating": [1.0, 2.0]}
        >>> pairs = [["user", "city"]] >> ops.TargetEncoding("rating")
        >>> [len(stage.outputs) for stage in stages(Workflow(pairs).fit(rows).program)]
        [2, 1, 1]
    """
    levels = _levels(program, _kept(program))
    names = _free_names(program, levels)
    made = []
    for level in sorted(set(levels.values())):
        outputs = [
            (ColumnSchema(names[n], program.steps[n].type.dtype), n)
            for n, own in levels.items()
            if own == level
        ]
        made.append(part(program, outputs, {n: names[n] for n in levels if levels[n] < level}))
    return [*made, part(program, program.outputs, names)]


def _kept(program: Program) -> list[int]:
    """The lookups by whose results something is found in a table, or that several steps use."""
    uses = Counter(o for step in program.steps for o in step.operands)
    asked = needed(program, [o for s in program.steps if s.verb in _OF_TABLES for o in s.operands])
    return [
        number
        for number, step in enumerate(program.steps)
        if step.verb == "lookup" and not step.type.is_list and (number in asked or uses[number] > 1)
    ]


def _levels(program: Program, kept: Iterable[int]) -> dict[int, int]:
    """Each of some steps with the length of the longest chain of them that ends in it."""
    levels: dict[int, int] = {}
    for number in kept:
        before = needed(program, program.steps[number].operands)
        levels[number] = 1 + max((levels[n] for n in levels if n in before), default=0)
    return levels


def _free_names(program: Program, steps: Iterable[int]) -> dict[int, str]:
    start = "@"
    while any(name.startswith(start) for name in program.inputs):
        start += "@"
    return {number: f"{start}{number}" for number in steps}
