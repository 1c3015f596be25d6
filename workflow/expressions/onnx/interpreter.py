"""Execution of a program over numpy columns in onnxruntime."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
import onnx

from workflow.expressions.program.program import Program
from workflow.schema.column import Array, Column
from workflow.schema.schema import ColumnSchema

from .emit import emit
from .graph import Graph, Tensor


class OnnxInterpreter:
    """A program in onnxruntime, with nulls as masks beside the values.

    A served model differs in its inputs and outputs only: see `to_onnx`.

    Args:
        program: the program to run.
        threads: how many threads onnxruntime uses within one operator.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["userId"] >> ops.Categorify()).fit({"userId": [7, 7, 9]})
        >>> run = OnnxInterpreter(workflow.program)
        >>> run({"userId": Column(np.array([9, 7]))})["userId"].values.tolist()
        [4, 3]
    """

    def __init__(self, program: Program, threads: int = 1) -> None:
        # It reports its use to its makers otherwise, from 1.31 on.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime  # noqa: PLC0415 - a model can be made where it is not installed

        self.program = program
        self.model = _model(program)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(
            self.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def __call__(self, columns: Mapping[str, Column]) -> dict[str, Column]:
        """Compute the outputs of all rows.

        Args:
            columns: one column for each input of the program, of its dtype, all with N rows.

        Returns:
            One column of N rows for each output.
        """
        feed: dict[str, Array] = {}
        for name, column in self.program.inputs.items():
            feed |= _feed(column, columns[name])
        names = [output.name for output in self.model.graph.output]
        made = dict(zip(names, self._session.run(names, feed), strict=True))
        return {
            name: Column(
                made[f"out/values/{name}"].reshape(-1),
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
