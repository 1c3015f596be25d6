"""Programs in stages, so that what is used more than once is computed once.

Polars computes a part that several expressions share only once, but for those that hold a table:
an expression over `lookup(x)` three times looks it up three times, and one over that nine times.
So a lookup of which more is made becomes a column of its own before. For cuDF, which computes every
part as often as it is named, more does (polars_gpu.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

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


def compile_stages(
    program: Program,
    verbs: Mapping[str, Compile] | None = None,
    kept: Collection[int] | None = None,
) -> Stages:
    """Polars expressions over a frame of a program's inputs: what to add to it, and the outputs.

    Args:
        program: what to make of each row.
        verbs: what each verb is in Polars, as `expressions` takes it.
        kept: the steps that become columns, as `stages` takes them.
    """
    made: set[str] = set()
    compiled = []
    for stage in stages(program, kept):
        compiled.append(expressions(stage, verbs, made))
        made |= set(stage.output_schema)
    return compiled


def stages(program: Program, kept: Collection[int] | None = None) -> list[Program]:
    """Programs of which each is over the inputs and what those before it made.

    Args:
        program: any program.
        kept: the steps, none of them a list, that become columns before more is made of them; None
            for the lookups by whose results something is found, or that several steps use.

    Returns:
        at least one; the last makes the program's outputs.

    Example:
        >>> from workflow import Workflow, ops
        >>> rows = {"user": [7, 9], "city": ["a", "b"], "rating": [1.0, 2.0]}
        >>> pairs = [["user", "city"]] >> ops.TargetEncoding("rating")
        >>> [len(stage.outputs) for stage in stages(Workflow(pairs).fit(rows).program)]
        [2, 1, 1]
    """
    levels = _levels(program, _kept(program) if kept is None else kept)
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


def _kept(program: Program) -> set[int]:
    uses = Counter(o for step in program.steps for o in step.operands)
    asked = needed(program, [o for s in program.steps if s.verb in _OF_TABLES for o in s.operands])
    return {
        number
        for number, step in enumerate(program.steps)
        if step.verb == "lookup" and not step.type.is_list and (number in asked or uses[number] > 1)
    }


def _levels(program: Program, kept: Collection[int]) -> dict[int, int]:
    """Each of some steps with the length of the longest chain of them that ends in it."""
    levels: dict[int, int] = {}
    # The same for every step, which may not be one of them.
    depths: list[int] = []
    for number, step in enumerate(program.steps):
        depth = max((depths[operand] for operand in step.operands), default=0)
        if number in kept:
            levels[number] = depth = depth + 1
        depths.append(depth)
    return levels


def _free_names(program: Program, steps: Iterable[int]) -> dict[int, str]:
    start = "@"
    while any(name.startswith(start) for name in program.inputs):
        start += "@"
    return {number: f"{start}{number}" for number in steps}
