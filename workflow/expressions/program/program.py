"""A fitted transform as data: a list of steps, each a verb over earlier steps.

Because a step can only refer to earlier ones, a program has no cycles and no nesting, and running
it is one loop. A saved program is `program.json` and `program.safetensors`: no code, no pickle, no
importable name.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from ...schema.column import Column
from ...schema.derived import Derives
from ...schema.schema import ColumnSchema, Schema
from ..language.types import Type
from ..language.verbs import VERBS


@dataclass(frozen=True)
class Step:
    """One application of a verb.

    Attributes:
        verb: a name of a verb, or "source" (a column of the data) or "constant".
        operands: the numbers of the steps that it works on, all earlier.
        parameters: the verb's static parameters; a table is a `Column`.
        type: the static type of the result.
    """

    verb: str
    operands: tuple[int, ...]
    parameters: Mapping[str, Any]
    type: Type


@dataclass(frozen=True)
class Program(Derives):
    """Steps, and the numbers of the output steps.

    Attributes:
        inputs: the columns that the program reads, with their types.
        steps: in order; operands refer to earlier steps.
        outputs: its output columns: the column's schema, and the number of its step.
    """

    inputs: Schema
    steps: tuple[Step, ...]
    outputs: tuple[tuple[ColumnSchema, int], ...]

    @cached_property
    def output_schema(self) -> Schema:
        """The columns that the program computes."""
        return Schema(column for column, _ in self.outputs)

    def ancestry(self, steps: Iterable[int]) -> list[Step]:
        """Some steps, by number, and all steps that they depend on, each once."""
        todo = list(steps)
        seen = set(todo)
        while todo:
            # Steps are shared, so there are far more paths than steps.
            further = set(self.steps[todo.pop()].operands) - seen
            seen |= further
            todo += further
        return [self.steps[number] for number in seen]

    def sources_of_steps(self, steps: Iterable[int]) -> set[str]:
        """The names of the input columns that some steps depend on."""
        return {s.parameters["name"] for s in self.ancestry(steps) if s.verb == "source"}


def build(
    outputs: Iterable[tuple[ColumnSchema, Any]],
    inputs: Schema,
    columns: Mapping[str, Any] = MappingProxyType({}),
) -> Program:
    """The program of some expressions, with common subexpressions computed once.

    Args:
        outputs: each output's column and its `Expression`; the expression is cast to the
            column's dtype.
        inputs: the data's columns, of which the program keeps those that it reads.
        columns: expressions that become inputs, by name, instead of what they are made of.
    """
    builder = _Builder({id(expression): name for name, expression in columns.items()})
    made = []
    for column, expression in outputs:
        step = builder.add(expression)
        type_ = builder.steps[step].type
        if type_.dtype != column.dtype:
            step = builder.cast(step, column.dtype)
        made.append((column.with_(is_list=type_.is_list, nullable=type_.nullable), step))
    read = {step.parameters["name"] for step in builder.steps if step.verb == "source"}
    return Program(inputs.keep(read), tuple(builder.steps), tuple(made))


class _Builder:
    def __init__(self, columns: Mapping[int, str]) -> None:
        self._columns = columns
        self.steps: list[Step] = []
        self._known: dict[Any, int] = {}
        self._by_identity: dict[int, int] = {}
        # Keeps every expression alive, so that no id is reused.
        self._seen: list[Any] = []

    def add(self, expression: Any) -> int:
        todo = [expression]
        while todo:
            node = todo[-1]
            name = self._columns.get(id(node))
            operands = node.operands if name is None else ()
            waiting = [o for o in operands if id(o) not in self._by_identity]
            if waiting:
                todo += waiting
                continue
            todo.pop()
            if id(node) not in self._by_identity:
                step = Step("source", (), {"name": name}, node.type)
                if name is None:
                    numbers = tuple(self._by_identity[id(o)] for o in operands)
                    step = Step(node.verb, numbers, node.parameters, node.type)
                self._by_identity[id(node)] = self._step(step)
                self._seen.append(node)
        return self._by_identity[id(expression)]

    def cast(self, step: int, dtype: str) -> int:
        type_ = VERBS["cast"].infer([self.steps[step].type], {"dtype": dtype})
        return self._step(Step("cast", (step,), {"dtype": dtype}, type_))

    def _step(self, step: Step) -> int:
        if step.verb == "cast" and step.type == self.steps[step.operands[0]].type:
            return step.operands[0]
        parameters = tuple(
            # By its text, since 0.0 equals -0.0 and NaN does not equal itself.
            (k, id(v) if isinstance(v, Column) else (type(v), repr(v)))
            for k, v in step.parameters.items()
        )
        key = (step.verb, step.operands, parameters, step.type)
        if key not in self._known:
            self._known[key] = len(self.steps)
            self.steps.append(step)
            self._seen.append(step)
        return self._known[key]


def with_nullable_inputs(program: Program, nullable: Mapping[str, bool]) -> Program:
    """The same program with other inputs nullable, and with types inferred again."""
    inputs = Schema(
        c.with_(nullable=nullable.get(c.name, c.nullable)) for c in program.inputs.columns
    )
    steps: list[Step] = []
    for step in program.steps:
        if step.verb == "source":
            steps.append(
                replace(
                    step, type=replace(step.type, nullable=inputs[step.parameters["name"]].nullable)
                )
            )
        elif step.verb == "constant":
            steps.append(step)
        else:
            type_ = VERBS[step.verb].infer([steps[o].type for o in step.operands], step.parameters)
            steps.append(replace(step, type=type_))
    outputs = tuple((c.with_(nullable=steps[s].type.nullable), s) for c, s in program.outputs)
    return Program(inputs, tuple(steps), outputs)
