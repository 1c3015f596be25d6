"""What operators learn from parts of the data, and how it becomes what they learn from the whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from .engine import collect_all, collect_on_gpu, is_gpu
from .errors import WorkflowError
from .expressions.polars_flat import FlatInterpreter
from .expressions.program import Program, Step
from .operator_node import Bound, OperatorNode
from .rows import schema_of

# The operators that are ready to learn and what they learn from, by their nodes' numbers.
Learning = Mapping[int, tuple[OperatorNode, Bound]]
# What `Operator.partial` has asked for, by the operator's node and the query's name.
Tables = dict[tuple[int, str], pl.DataFrame]

# The parts' tables that wait to be merged: few enough for memory, enough that merging costs little.
FAN_IN = 8


def learn_part(learning: Learning, frame: pl.LazyFrame, engine: str) -> Tables:
    """The partial tables of all operators, of some rows, in one pass over them."""
    queries: dict[tuple[int, str], pl.LazyFrame] = {}
    for number, (node, bound) in learning.items():
        program = bound.program
        with node.errors(bound.columns):
            if is_gpu(engine) and computes_lists(program):
                own = _flat_rows(bound, program, frame)
            else:
                own = bound.rows.select(frame, program)
            partials = bound.operator.partial(own, schema_of(bound.columns))
        queries |= {(number, name): query for name, query in partials.items()}
    return dict(zip(queries, collect_all(list(queries.values()), engine), strict=True))


def learn_parts(learning: Learning, parts: Iterable[pl.LazyFrame], engine: str) -> Tables:
    """The tables of the whole data, part by part, in memory that does not grow with their number."""
    waiting: list[Tables] = []
    for part in parts:
        waiting.append(learn_part(learning, part, engine))
        if len(waiting) == FAN_IN:
            waiting = [merge_tables(learning, waiting)]
    return waiting[0] if len(waiting) == 1 else merge_tables(learning, waiting)


def merge_tables(learning: Learning, parts: Sequence[Tables]) -> Tables:
    """The tables of several parts as those of one."""
    queries: dict[tuple[int, str], pl.LazyFrame] = {}
    for number, (_, bound) in learning.items():
        names = [name for owner, name in parts[0] if owner == number]
        # A count that was merged before may be wider than one that was not.
        above = {
            n: pl.concat([part[number, n].lazy() for part in parts], how="vertical_relaxed")
            for n in names
        }
        merged = bound.operator.merge(above, schema_of(bound.columns))
        queries |= {(number, name): query for name, query in merged.items()}
    return dict(zip(queries, collect_all(list(queries.values()), "cpu"), strict=True))


def split_by_row(learning: Learning) -> tuple[Learning, Learning]:
    """The operators that can learn from parts of the data, and those whose rows need all of it."""
    by_row = {
        number: (node, bound)
        for number, (node, bound) in learning.items()
        if bound.rows.is_row_by_row(bound.program)
    }
    return by_row, {n: item for n, item in learning.items() if n not in by_row}


def computes_lists(program: Program) -> bool:
    """Whether a program does more with lists than cuDF's engine can: read, join and explode them."""
    return any(
        step.verb not in ("source", "gather")
        or step.type.kind == "float"
        or _takes_list(program, step)
        for step in program.steps
        if step.type.is_list or _takes_list(program, step)
    )


def _takes_list(program: Program, step: Step) -> bool:
    return any(program.steps[operand].type.is_list for operand in step.operands)


def _flat_rows(bound: Bound, program: Program, frame: pl.LazyFrame) -> pl.LazyFrame:
    """An operator's columns, in memory, computed on the GPU without lists.

    Raises:
        WorkflowError: they are of other rows than the data's.
    """
    if not bound.rows.is_row_by_row(program):
        raise WorkflowError(
            "Polars' GPU engine has no lists, so that nothing can be learnt on the GPU from lists "
            'of grouped or filtered rows. Fit with engine="cpu".'
        )
    return FlatInterpreter(program)(frame, collect_on_gpu).lazy()
