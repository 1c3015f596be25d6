"""Equal steps on several columns as one call, since calls dominate the time of a small request.

Steps that do the same to different columns are lanes of one group. Their values are stacked into
one array, a row for each lane, and numpy is called once for all of them. A group's result stays
stacked for a later group with the same lanes.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...schema.column import Array, Column
from ..language.verbs import ELEMENTWISE, VERBS
from ..program.program import Program, Step

# Fewer lanes than this cost more to stack than the saved calls.
_FEWEST_LANES = 4
# The structure of a table of values differs between columns, and so does its computation.
_ALIKE = {name for name in ELEMENTWISE if "table" not in VERBS[name].parameters}

Slots = list[Any]
# A slot, whose content is the operand of all lanes, or the step of each lane.
Operand = int | tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """Steps with one verb and one structure, each over its own columns.

    Attributes:
        steps: their numbers, in the order of the outputs that are made from them.
        operands: for each operand, where it is for all lanes.
        slot: the slot of the stacked result.
        shown: the lanes whose separate results are read outside groups of the same lanes: pairs of
            a lane and the number of its step.
    """

    steps: tuple[int, ...]
    operands: tuple[Operand, ...]
    slot: int
    shown: tuple[tuple[int, int], ...]

    def run(self, slots: Slots, function: Callable[..., Column]) -> None:
        """Compute all lanes in one call, into the slots."""
        made = function(
            *[
                slots[o] if isinstance(o, int) else stack([slots[lane] for lane in o])
                for o in self.operands
            ]
        )
        slots[self.slot] = made
        values, valid = made.values, made.valid
        for lane, step in self.shown:
            slots[step] = Column(values[lane], None if valid is None else valid[lane])  # type: ignore[index]


def group_steps(program: Program) -> list[Group | int]:
    """The steps of a program in an executable order, with equal ones as groups.

    Returns:
        Groups, and the numbers of the steps outside groups; sources and constants are left out.
    """
    shapes = _Shapes(program)
    alike: dict[Any, list[int]] = {}
    for number, shape in enumerate(shapes.of):
        alike.setdefault(number if shape is None else shape, []).append(number)
    outputs = _first_outputs(program)
    members = [
        tuple(sorted(n, key=lambda step: (outputs[step], step)))
        for n in alike.values()
        if len(n) >= _FEWEST_LANES
    ]
    lanes = {step: group for group in members for step in group}
    slots = {group: len(program.steps) + place for place, group in enumerate(members)}
    readers = _Readers(program, lanes, shapes.varies)
    plan: list[tuple[int, Group | int]] = [
        (shapes.depth[group[0]], readers.group(group, slots)) for group in members
    ]
    for number, step in enumerate(program.steps):
        if number not in lanes and step.verb not in ("source", "constant"):
            plan.append((shapes.depth[number], number))
    return [entry for _, entry in sorted(plan, key=lambda entry: entry[0])]


def lanes_of(program: Program) -> dict[int, tuple[int, int]]:
    """The slot of the stacked result, and the lane, of each step of a group."""
    groups = [entry for entry in group_steps(program) if isinstance(entry, Group)]
    return {step: (each.slot, lane) for each in groups for lane, step in enumerate(each.steps)}


def _first_outputs(program: Program) -> list[int]:
    """The place of the first output that is made from each step."""
    places = [len(program.outputs)] * len(program.steps)
    for place, (_, number) in reversed([*enumerate(program.outputs)]):
        places[number] = place
    for number in reversed(range(len(program.steps))):
        for operand in program.steps[number].operands:
            places[operand] = min(places[operand], places[number])
    return places


class _Shapes:
    """Description of a step regardless of its column: steps of one shape are lanes of one group.

    The shape is None for steps without a group: those over lists, strings or constants only.
    """

    def __init__(self, program: Program) -> None:
        self._steps = program.steps
        self.depth: list[int] = []
        self.varies: list[bool] = []
        self.of: list[Any] = []
        self._known: dict[Any, tuple[int]] = {}
        for step in program.steps:
            self.depth.append(1 + max((self.depth[o] for o in step.operands), default=-1))
            self.varies.append(step.verb == "source" or any(self.varies[o] for o in step.operands))
            self.of.append(self._shape(step) if self.varies[-1] else None)

    def _shape(self, step: Step) -> Any:
        types = [self._steps[o].type for o in step.operands]
        plain = not any(t.is_list or t.dtype == "string" for t in (step.type, *types))
        if step.verb not in _ALIKE or not plain:
            return None
        # Each lane of a lookup has its own keys.
        shared = {} if "keys" in step.parameters else step.parameters
        parameters = tuple(
            (key, id(value) if isinstance(value, Column) else repr(value))
            for key, value in shared.items()
        )
        operands = tuple(self._operand(o) for o in step.operands)
        shape = step.verb, parameters, step.type.dtype, operands
        # By a number: a shape that holds those before it is hashed for each path to them.
        return self._known.setdefault(shape, (len(self._known),))

    def _operand(self, number: int) -> Any:
        """Properties of an operand that have to be equal in all lanes."""
        type_ = self._steps[number].type
        if self._steps[number].verb == "constant":
            # Divisors of different signs, and zero, are divided by differently.
            value: Any = type_.value
            return "constant", type_.dtype, bool(value), bool(value) and value > 0
        if not self.varies[number]:
            return number
        shape = self.of[number]
        return (type_.dtype, self.depth[number]) if shape is None else shape


class _Readers:
    """Operands of a step: a stacked result, or the results of single lanes."""

    def __init__(
        self, program: Program, lanes: Mapping[int, tuple[int, ...]], varies: Sequence[bool]
    ) -> None:
        self._steps, self._lanes, self._varies = program.steps, lanes, varies
        self._known: dict[tuple[tuple[int, ...], int], tuple[int, ...] | None] = {}
        # Steps whose separate results are read.
        self._read = {step for _, step in program.outputs}
        for number, step in enumerate(program.steps):
            for place, operand in enumerate(step.operands):
                if self._stacked(lanes.get(number), place) is None:
                    self._read.add(operand)

    def _stacked(self, group: tuple[int, ...] | None, place: int) -> tuple[int, ...] | None:
        """The group whose lanes, in order, are an operand of another group's lanes."""
        if group is None:
            return None
        key = group, place
        if key not in self._known:
            operands = tuple(self._steps[number].operands[place] for number in group)
            together = self._lanes.get(operands[0]) == operands
            self._known[key] = operands if together else None
        return self._known[key]

    def group(self, group: tuple[int, ...], slots: Mapping[tuple[int, ...], int]) -> Group:
        """The group of some steps.

        Args:
            group: the steps.
            slots: the slot of each group's stacked result.
        """
        operands: list[Operand] = []
        for place in range(len(self._steps[group[0]].operands)):
            stacked = self._stacked(group, place)
            each = [self._steps[number].operands[place] for number in group]
            operands.append(self._operand(each) if stacked is None else slots[stacked])
        shown = [(lane, step) for lane, step in enumerate(group) if step in self._read]
        return Group(group, tuple(operands), slots[group], tuple(shown))

    def _operand(self, operands: Sequence[int]) -> Operand:
        if len(set(operands)) == 1 and not self._varies[operands[0]]:
            return operands[0]
        return tuple(operands)


def stack(columns: Sequence[Column]) -> Column:
    """Columns as the rows of one array; constants become a column vector.

    Example:
        >>> stack([Column(np.array([1, 2])), Column(np.array([3, 4]))]).array.tolist()
        [[1, 2], [3, 4]]
    """
    arrays: list[Array] = [column.array.reshape(-1) for column in columns]
    shape = len(columns), len(arrays[0])
    values = np.concatenate(arrays).reshape(shape)
    if all(column.valid is None for column in columns):
        return Column(values)
    present = np.ones(shape[1], bool)
    masks = [present if column.valid is None else column.valid for column in columns]
    return Column(values, np.concatenate(masks).reshape(shape))
