"""Execution of a program over tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from workflow.expressions.language.limits import Range
from workflow.expressions.numpy.joint_steps import Group, Operand, group_steps
from workflow.expressions.program.program import Program
from workflow.expressions.program.ranges import ranges
from workflow.schema.dtypes import DTYPES
from workflow.schema.exact_dtypes import holds

from .column import Function, TensorColumn
from .guard import guarded
from .lanes import apart, masks_of, one_below_another
from .verbs import PREPARE, elementwise, tensor_dtype


class TensorFlowInterpreter(tf.Module):  # type: ignore[misc]
    """A program as TensorFlow operations; its tables are saved with the model that contains it.

    Call it eagerly or inside a `tf.function`. The program's types determine, when the graph is
    built, whether a column can be null, so columns that cannot be null have no cost; a float that
    is NaN on arrival is null only if the input is nullable. Equal steps over several columns are one
    operation, since starting an operation takes longer than computing one row.

    TensorFlow treats subnormal floats (below 1.2e-38 in float32, 2.2e-308 in float64) as zeros; all
    other results equal those of the numpy interpreter, in all bits except the last ones of `log`,
    `log1p` and `exp`.

    Args:
        program: the program to run.

    Example:
        >>> from workflow.expressions.language.tree import source
        >>> from workflow.expressions.language.types import Type
        >>> from workflow.expressions.program.program import build
        >>> from workflow.schema.schema import ColumnSchema, Schema
        >>> x = source("x", Type("int64"))
        >>> program = build([(ColumnSchema("y", "int64"), x + 1)], Schema([ColumnSchema("x", "int64")]))
        >>> column = TensorColumn(tf.constant([1, 2], tf.int64))
        >>> TensorFlowInterpreter(program)({"x": column})["y"].values.numpy()
        array([2, 3])
    """

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        limits = ranges(program)
        plan = [
            (entry, [_prepare(program, numbers, limits) for numbers in _together(program, entry)])
            for entry in group_steps(program)
        ]
        # TensorFlow finds and saves modules in a list; in the plan they are hidden.
        self.tables = [f for _, functions in plan for f in functions if isinstance(f, tf.Module)]
        self._plan = _Plan(plan)

    def __call__(self, columns: Mapping[str, TensorColumn]) -> dict[str, TensorColumn]:
        """Compute the outputs of all rows.

        Args:
            columns: one column for each input of the program, of its dtype, all with N rows.

        Returns:
            One column of N rows for each output.
        """
        steps = self.program.steps
        slots = _sources(self.program, columns)
        for number, step in enumerate(steps):
            if step.verb == "constant":
                # Grappler folds expressions of constants alone, so the guard is here.
                slots[number] = TensorColumn(guarded(_values(self.program, [number])[0]))
        for entry, functions in self._plan.entries:
            if not isinstance(entry, Group):
                slots[entry] = functions[0](*[slots[o] for o in steps[entry].operands])
            elif len(functions) > 1:
                lanes = self._apart(entry.operands[0], slots)
                results = [call(lane) for call, lane in zip(functions, lanes, strict=True)]
                slots |= dict(zip(entry.steps, results, strict=True))
            else:
                block = functions[0](*[self._joint(o, slots) for o in entry.operands])
                slots[entry.slot] = block
                if entry.shown:
                    block_columns = apart(block, len(entry.steps))
                    slots |= {step: block_columns[lane] for lane, step in entry.shown}
        return {
            column.name: self._spread(slots[step], columns) for column, step in self.program.outputs
        }

    def _joint(self, operand: Operand, slots: Mapping[int, TensorColumn]) -> TensorColumn:
        """The operand of all lanes of a group, one below another."""
        if isinstance(operand, int) and operand in slots:
            return slots[operand]
        numbers = self._plan.steps_of(operand)
        if all(self.program.steps[number].verb == "constant" for number in numbers):
            return TensorColumn(guarded(_values(self.program, numbers)[:, tf.newaxis]))
        return one_below_another([slots[number] for number in numbers])

    def _apart(self, operand: Operand, slots: Mapping[int, TensorColumn]) -> list[TensorColumn]:
        """The operand of each lane of a group."""
        numbers = self._plan.steps_of(operand)
        if isinstance(operand, int) and operand in slots:
            return apart(slots[operand], len(numbers))
        return [slots[number] for number in numbers]

    def _spread(self, column: TensorColumn, columns: Mapping[str, TensorColumn]) -> TensorColumn:
        """A constant output as a column of N rows."""
        if column.values.shape.rank != 0:
            return column
        if column.lengths is not None:
            count = tf.reduce_sum(column.lengths)
        else:
            first = columns[self.program.inputs.names[0]] if columns else None
            data = first and (first.values if first.lengths is None else first.lengths)
            count = 0 if data is None else tf.size(data)
        valid = None if column.valid is None else tf.fill([count], column.valid)
        return TensorColumn(tf.fill([count], column.values), valid, column.lengths)


class _Plan:
    """Steps and groups with their functions, which TensorFlow does not track.

    Attributes:
        entries: in their order, each with a function, or one for each lane of a group of lookups.
    """

    def __init__(self, entries: Sequence[tuple[Group | int, list[Function]]]) -> None:
        self.entries = entries
        groups = (entry for entry, _ in entries if isinstance(entry, Group))
        self._lanes = {group.slot: group.steps for group in groups}

    def steps_of(self, operand: Operand) -> tuple[int, ...]:
        """The steps that are the operand of a group's lanes."""
        return self._lanes[operand] if isinstance(operand, int) else operand


def _together(program: Program, entry: Group | int) -> list[Sequence[int]]:
    """The steps that one function computes: all of a group, but each lookup has its own table."""
    if not isinstance(entry, Group):
        return [[entry]]
    is_lookup = program.steps[entry.steps[0]].verb == "lookup"
    return [[number] for number in entry.steps] if is_lookup else [entry.steps]


def _prepare(program: Program, numbers: Sequence[int], limits: Sequence[Range | None]) -> Function:
    """The function of a step, or of equal ones over several columns."""
    step = program.steps[numbers[0]]
    if step.verb == "cast":
        input_limits = [limits[program.steps[number].operands[0]] for number in numbers]
        dtype = DTYPES[step.type.dtype]
        if all(ends is not None and holds(dtype, *ends) for ends in input_limits):
            return elementwise(lambda values: values, dtype.name)
    return PREPARE[step.verb](step, [program.steps[o].type for o in step.operands])


def _values(program: Program, numbers: Sequence[int]) -> Any:
    """Constants as one tensor."""
    steps = [program.steps[number] for number in numbers]
    return tf.constant([s.parameters["value"] for s in steps], tensor_dtype(steps[0].type.dtype))


def _sources(program: Program, columns: Mapping[str, TensorColumn]) -> dict[int, TensorColumn]:
    """The inputs, where NaN is null if nulls are allowed."""
    inputs = {
        number: columns[step.parameters["name"]]
        for number, step in enumerate(program.steps)
        if step.verb == "source"
    }
    types = {number: program.steps[number].type for number in inputs}
    floats = [n for n, type_ in types.items() if type_.kind == "float" and type_.nullable]
    masks = masks_of([inputs[n] for n in floats], _are_numbers)
    for number, mask in zip(floats, masks, strict=True):
        column = inputs[number]
        present = mask if column.valid is None else tf.logical_and(mask, column.valid)
        inputs[number] = TensorColumn(column.values, present, column.lengths)
    return inputs


def _are_numbers(values: Any) -> Any:
    return tf.logical_not(tf.math.is_nan(values))
