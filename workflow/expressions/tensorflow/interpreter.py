"""Execution of a program over tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from workflow.expressions.language.limits import Range
from workflow.expressions.language.types import Type
from workflow.expressions.program.program import Program, Step
from workflow.expressions.program.ranges import holds, ranges
from workflow.schema.dtypes import DTYPES

from .column import Function, TensorColumn
from .guard import guarded
from .verbs import PREPARE, elementwise, tensor_dtype


class TensorFlowInterpreter(tf.Module):  # type: ignore[misc]
    """A program as TensorFlow operations; its tables are saved with the model that contains it.

    Call it eagerly or inside a `tf.function`. The program's types determine, when the graph is
    built, whether a column can be null, so columns that cannot be null have no cost; a float that
    is NaN on arrival is null only if the input is nullable.

    TensorFlow treats subnormal floats (below 1.2e-38 in float32, 2.2e-308 in float64) as zeros; all
    other results equal those of the numpy interpreter, in all bits except the last ones of `log`,
    `log1p` and `exp`.

    Args:
        program: the program to run.

    Example:
        >>> from workflow.expressions.language.tree import source
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
        functions = [_prepare(program, step, limits) for step in program.steps]
        # TensorFlow finds and saves modules in a list; in the plan they are hidden.
        self.tables = [f for f in functions if isinstance(f, tf.Module)]
        self._plan = _Functions(functions)

    def __call__(self, columns: Mapping[str, TensorColumn]) -> dict[str, TensorColumn]:
        """Compute the outputs of all rows.

        Args:
            columns: one column for each input of the program, of its dtype, all with N rows.

        Returns:
            One column of N rows for each output.
        """
        slots: list[Any] = []
        for step, function in zip(self.program.steps, self._plan.functions, strict=True):
            if step.verb == "source":
                slots.append(_source(columns[step.parameters["name"]], step.type))
            elif step.verb == "constant":
                value = tf.constant(step.parameters["value"], tensor_dtype(step.type.dtype))
                # Grappler folds expressions of constants alone, so the guard is here.
                slots.append(TensorColumn(guarded(value)))
            else:
                slots.append(function(*[slots[operand] for operand in step.operands]))
        return {
            column.name: self._spread(slots[step], columns) for column, step in self.program.outputs
        }

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


class _Functions:
    """A list whose content TensorFlow does not track."""

    def __init__(self, functions: list[Any]) -> None:
        self.functions = functions


def _prepare(program: Program, step: Step, limits: Sequence[Range | None]) -> Function | None:
    if step.verb in ("source", "constant"):
        return None
    if step.verb == "cast" and holds(DTYPES[step.type.dtype], limits[step.operands[0]]):
        return elementwise(lambda values: values, step.type.dtype)
    return PREPARE[step.verb](step, [program.steps[o].type for o in step.operands])


def _source(column: TensorColumn, type_: Type) -> TensorColumn:
    if type_.kind != "float" or not type_.nullable:
        return column
    present = tf.logical_not(tf.math.is_nan(column.values))
    if column.valid is not None:
        present = tf.logical_and(present, column.valid)
    return TensorColumn(column.values, present, column.lengths)
