"""Runs a program in onnxruntime, and the same with its tables folded."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from training.network.onnx_session import open_session
from workflow.expressions.fold_tables import fold_tables
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.onnx.emit import emit
from workflow.expressions.onnx.graph import Graph, Tensor
from workflow.expressions.program.program import Program
from workflow.schema.column import Array, Column
from workflow.schema.schema import ColumnSchema


class OnnxInterpreter:
    """A program in onnxruntime, with nulls as masks beside the values; a served model differs in these alone."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.model = _model(program)
        self._session = open_session(self.model.SerializeToString())

    def __call__(self, columns: Mapping[str, Column]) -> dict[str, Column]:
        """One column of N rows for each output, of a column for each input."""
        feed: dict[str, Array] = {}
        for name, column in self.program.inputs.items():
            feed |= _feed(column, columns[name])
        names = [output.name for output in self.model.graph.output]
        made = dict(zip(names, self._session.run(names, feed), strict=True))
        return {
            name: Column(
                _flat(made[f"out/values/{name}"]),
                _flat(made.get(f"out/valid/{name}")),
                _flat(made.get(f"out/lengths/{name}")),
            )
            for name in self.program.output_schema
        }


def _feed(column: ColumnSchema, data: Column) -> dict[str, Array]:
    tensors = {"values": data.array}
    if column.nullable:
        tensors["valid"] = np.ones(len(data.array), bool) if data.valid is None else data.valid
    if data.lengths is not None:
        tensors["lengths"] = data.lengths
    return {f"in/{part}/{column.name}": array.reshape(-1, 1) for part, array in tensors.items()}


def _flat(array: Array | None) -> Array | None:
    """A column of a model's, which a server takes in this shape alone."""
    assert array is None or array.shape == (len(array), 1), array.shape
    return None if array is None else array.reshape(-1)


def _model(program: Program) -> onnx.ModelProto:
    graph = Graph()
    sources = {column.name: _receive(graph, column) for column in program.inputs.columns}
    for name, made in emit(graph, program, sources).items():
        rows = "rows" if made.lengths is None else f"elements of {name}, made"
        graph.give(f"out/values/{name}", made.values, program.output_schema[name].dtype, rows, 1)
        if made.valid is not None:
            valid = graph.add("Expand", made.valid, graph.add("Shape", made.values))
            graph.give(f"out/valid/{name}", valid, "bool", rows, 1)
        if made.lengths is not None:
            graph.give(f"out/lengths/{name}", made.lengths, "int64", "rows", 1)
    return graph.model("program")


def _receive(graph: Graph, column: ColumnSchema) -> Tensor:
    name, rows = column.name, f"elements of {column.name}" if column.is_list else "rows"
    values = graph.take(f"in/values/{name}", column.dtype, rows, 1)
    valid = graph.take(f"in/valid/{name}", "bool", rows, 1) if column.nullable else None
    lengths = graph.take(f"in/lengths/{name}", "int64", "rows", 1) if column.is_list else None
    if column.info.kind == "float":
        valid = graph.every(graph.add("Equal", values, values), valid)
    return Tensor(values, valid, lengths)


def run_onnx(program: Program, columns: Mapping[str, Column]) -> dict[str, Column]:
    return OnnxInterpreter(program)(columns)


def run_folded(program: Program, columns: Mapping[str, Column]) -> dict[str, Column]:
    return NumpyInterpreter(fold_tables(program))(columns)
