"""Runs a program on TensorFlow, as a graph, the way it is served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import tensorflow as tf
from hypothesis import assume

from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.program.program import Program
from workflow.expressions.tensorflow import TensorColumn, TensorFlowInterpreter
from workflow.schema.column import Array, Column
from workflow.schema.schema import ColumnSchema


def run_tensorflow(program: Program, columns: Mapping[str, Column]) -> dict[str, Column]:
    # Its threads take subnormal numbers for zeros, which is documented and cannot be changed.
    if any_subnormal(program, columns):
        assume(False)
    tensors = {name: _to_tensors(column) for name, column in columns.items()}
    interpreter = TensorFlowInterpreter(program)

    @tf.function(autograph=False, reduce_retracing=True)
    def run(data):
        made = interpreter({name: TensorColumn(*parts) for name, parts in data.items()})
        return {name: (c.values, c.valid, c.lengths) for name, c in made.items()}

    return {name: _to_column(*parts) for name, parts in run(tensors).items()}


def _to_tensors(column: Column) -> tuple:
    dtype = tf.string if column.array.dtype == object else None
    return (
        tf.constant(column.array, dtype),
        None if column.valid is None else tf.constant(column.valid),
        None if column.lengths is None else tf.constant(column.lengths),
    )


def _to_column(values, valid, lengths) -> Column:
    array = values.numpy()
    if values.dtype == tf.string:
        texts = np.empty(len(array), object)
        texts[:] = [text.decode() for text in array]
        array = texts
    return Column(array, *(t if t is None else t.numpy() for t in (valid, lengths)))


def any_subnormal(program: Program, columns: Mapping[str, Column]) -> bool:
    """Whether a subnormal number is among the data, or comes up on the way."""
    steps = [
        (ColumnSchema(str(number), step.type.dtype, step.type.is_list), number)
        for number, step in enumerate(program.steps)
    ]
    made = NumpyInterpreter(replace(program, outputs=tuple(steps)))(columns)
    parameters = [p for step in program.steps for p in step.parameters.values()]
    tables = [parameter for parameter in parameters if isinstance(parameter, Column)]
    every = [*columns.values(), *made.values(), *tables]
    return any(_subnormal(column.array) for column in every)


def _subnormal(array: Array) -> bool:
    if array.dtype.kind != "f":
        return False
    return bool(np.any((array != 0) & (np.abs(array) < np.finfo(array.dtype).tiny)))
