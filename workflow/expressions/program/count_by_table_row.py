"""A program split at list lookups: the part that needs the data, and the part that needs the table.

A joined list column has only as many distinct rows as the table. So its elements can be counted by
counting positions in the table, and making lists only of the distinct positions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from workflow.schema.schema import ColumnSchema, Schema

from .program import Program, Step

POSITION = "position"
# In a longer table, counting positions costs as much as counting elements.
MOST_KEYS = 1_000_000


@dataclass(frozen=True)
class SplitAtLookup:
    """A list output that depends on the data only through a lookup.

    Attributes:
        step: the number of the lookup.
        lists: computes the output from the lookup's result, its only input, `POSITION`.
    """

    step: int
    lists: Program


def cut_lists(program: Program) -> dict[str, SplitAtLookup]:
    """The list outputs that come from a table by one lookup, each split there.

    Scalars are left unchanged: counting values is as fast as counting positions.

    Example:
        >>> import polars as pl
        >>> from workflow import Workflow, ops
        >>> movies = pl.DataFrame({"movie": [1, 2], "genres": [["Comedy"], []]})
        >>> joined = ["movie"] >> ops.JoinExternal(movies, on="movie")
        >>> program = Workflow(joined).fit({"movie": [2, 2]}).program
        >>> {name: [step.verb for step in cut.lists.steps] for name, cut in cut_lists(program).items()}
        {'genres': ['source', 'gather']}
    """
    found = {}
    for column, step in program.outputs:
        lookup = _lookup_before(program, step) if program.steps[step].type.is_list else None
        if lookup is not None:
            found[column.name] = SplitAtLookup(
                lookup, part(program, [(column, step)], {lookup: POSITION})
            )
    return found


def with_positions(program: Program, cuts: Mapping[str, SplitAtLookup]) -> Program:
    """The same program, with each split output replaced by its position."""
    outputs = [
        (column, step)
        if column.name not in cuts
        else _found(program, cuts[column.name].step, column.name)
        for column, step in program.outputs
    ]
    return part(program, outputs, {})


def _found(program: Program, lookup: int, name: str) -> tuple[ColumnSchema, int]:
    type_ = program.steps[lookup].type
    return ColumnSchema(name, type_.dtype, type_.is_list, type_.nullable), lookup


def _lookup_before(program: Program, step: int) -> int | None:
    """The first lookup through which all of a step's data passes."""
    for number in sorted(needed(program, [step])):
        lookup = program.steps[number]
        if lookup.verb != "lookup" or lookup.type.is_list:
            continue
        after = needed(program, [step], {number})
        whole = all(program.steps[n].verb != "source" for n in after)
        if whole and lookup.parameters["keys"].rows <= MOST_KEYS:
            return number
    return None


def needed(program: Program, steps: Iterable[int], stops: Collection[int] = ()) -> set[int]:
    """Some steps and their ancestors, without those that only a stop depends on."""
    needed: set[int] = set()
    todo = list(steps)
    while todo:
        number = todo.pop()
        if number not in needed:
            needed.add(number)
            todo += () if number in stops else program.steps[number].operands
    return needed


def part(
    program: Program, outputs: Collection[tuple[ColumnSchema, int]], stops: Mapping[int, str]
) -> Program:
    """The steps that some outputs need; a stop becomes an input with its given name."""
    places: dict[int, int] = {}
    steps: list[Step] = []
    inputs: list[ColumnSchema] = []
    for number in sorted(needed(program, [step for _, step in outputs], stops)):
        step = program.steps[number]
        if number in stops:
            inputs.append(_found(program, number, stops[number])[0])
            step = Step("source", (), {"name": stops[number]}, step.type)
        elif step.verb == "source":
            inputs.append(program.inputs[step.parameters["name"]])
        places[number] = len(steps)
        steps.append(replace(step, operands=tuple(places[o] for o in step.operands)))
    return Program(Schema(inputs), tuple(steps), tuple((c, places[step]) for c, step in outputs))
