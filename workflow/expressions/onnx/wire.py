"""The serving interface: a program as an ONNX model whose tensors are in wire form."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from workflow.expressions.fold_tables import fold_tables
from workflow.expressions.program.program import Program
from workflow.schema.column import Strings
from workflow.schema.dtypes import DTYPES, SchemaError
from workflow.wire.format import WireColumn, wire_inputs, wire_outputs

from .checks import Rows, checked
from .emit import emit
from .graph import Graph, Tensor
from .lanes import present
from .padding import flatten, pad

OUTPUT_SUFFIX = "__out"
# The input with the widths of a padded list, as Triton's onnxruntime backend passes ragged input.
WIDTHS_SUFFIX = "__widths"
EXTERNAL_DATA_BYTES = 1_000_000_000
PROTOBUF_BYTES = 2**31 - 1


def to_onnx(
    program: Program,
    inputs: Sequence[WireColumn] | None = None,
    outputs: Sequence[WireColumn] | None = None,
    *,
    name: str = "preprocess",
    rows: Rows = "unknown",
) -> onnx.ModelProto:
    """The program as an ONNX model: opset 18, ai.onnx.ml 4, IR version 9.

    An ONNX graph cannot have an input and an output with one name, and most outputs have the name
    of the input that they are made from. So inputs are named as in `WireColumn.tensors`, and
    outputs likewise with the suffix `OUTPUT_SUFFIX`.

    Like the numpy preprocessing, the model fails for row lengths of a flat list that are negative or
    do not add up, for columns with different numbers of rows, and for NaN where no null may be sent.
    Requests with padded lists are joined by the server, and a failure would be that of all of them:
    lengths beyond the row count as its whole width, negative ones as 0, and our backend refuses both
    before the call. The model cannot check whether strings are UTF-8: our backend refuses others,
    and to Triton's own they are unknown values.

    Args:
        program: the fitted transform.
        inputs: the wire form of its inputs; by default null can be sent in each nullable input of
            the program, except booleans.
        outputs: the wire form of its outputs; by default derived from their schema.
        name: the graph's name.
        rows: how far the numbers of the columns' rows are checked elsewhere. They "agree" if the server
            refuses others; they "agree unless empty" if the model becomes part of a graph that fails
            for others, unless a column has no row.

    Returns:
        The model: scalars are [rows, 1], the values of a flat list [elements, 1] and its nnzs
        [rows, 1]. A padded input without a fixed width is in the form of Triton's ragged batching:
        the values of all rows [elements], and a further input `<name>__widths`, int32 [rows]. Write
        it with `save_onnx`.

    Raises:
        SchemaError: a wire form that does not fit its column, an output that can be null without a
            null code in its wire form, or two tensors with one name.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["userId"] >> ops.Categorify()).fit({"userId": [7, 7, 9]})
        >>> [output.name for output in to_onnx(workflow.program).graph.output]
        ['userId__out']
    """
    graph = Graph()
    wires = wire_inputs(program.inputs, inputs)
    folded = fold_tables(program)
    sources = {column.name: _receive(graph, column) for column in wires.values()}
    source_names = [step.parameters["name"] for step in folded.steps if step.verb == "source"]
    if source_names:
        sources = checked(graph, wires, sources, source_names, rows)
    tensors = emit(graph, folded, sources)
    for column in wire_outputs(program.output_schema, outputs).values():
        _send(graph, column, tensors[column.name])
    return graph.model(name)


def expect_fits(model: onnx.ModelProto, *, external_data: bool | None = None) -> bool:
    """Whether `save_onnx` writes tables to the other file; its arguments.

    Raises:
        SchemaError: vocabularies too large for the format.
    """
    inside = model.ByteSize()
    if external_data is None:
        external_data = inside > EXTERNAL_DATA_BYTES
    if external_data:
        inside -= sum(tensor.ByteSize() for tensor in model.graph.initializer)
    if inside > PROTOBUF_BYTES:
        raise SchemaError(
            f"Expected vocabularies that fit into an ONNX file, 2 GB. Received: {inside} bytes. "
            "Use max_size or freq_threshold in Categorify, or another runtime."
        )
    return external_data


def save_onnx(
    model: onnx.ModelProto, path: str | os.PathLike[str], *, external_data: bool | None = None
) -> None:
    """Write a model, with large tables in a file beside it.

    Args:
        model: modified if tables go to the other file, `<stem of path>.data`.
        path: the file to write, for example `1/model.onnx`.
        external_data: whether tables go to the other file; by default if the model is larger than 1
            GB.

    Raises:
        SchemaError: vocabularies too large for the format.
    """
    path = Path(path)
    if expect_fits(model, external_data=external_data):
        location = path.with_suffix(".data")
        location.unlink(missing_ok=True)  # onnx would append to it
        onnx.save_model(
            model, path, save_as_external_data=True, location=location.name, size_threshold=1024
        )
    else:
        onnx.save_model(model, path)


def _receive(graph: Graph, column: WireColumn) -> Tensor:
    """An input, with its null code decoded and its row lengths checked."""
    values, lengths = _receive_values(graph, column)
    if not column.nullable:
        return Tensor(values, None, lengths)
    if column.dtype == "string":
        flags = graph.look_up(values, _null_string(column), np.zeros(1, np.int64), 1)
        valid = graph.cast(flags, "bool")
    else:
        valid = present(graph, values, column.null_code, column.dtype)
    return Tensor(values, valid, lengths, null_code=column.null_code)


def _receive_values(graph: Graph, column: WireColumn) -> tuple[str, str | None]:
    """The values of an input in sequence, and the row lengths of a list."""
    names, elements = list(column.tensors), f"elements of {column.name}"
    if column.layout == "scalar":
        return graph.take(names[0], column.dtype, "rows", 1), None
    if column.layout == "fixed":
        raise SchemaError(f"Expected row lengths of the input {column.name!r}. Received: {column}.")
    if column.layout == "flat":
        values = graph.take(names[0], column.dtype, elements, 1)
    elif column.width is None:
        values = graph.take(names[0], column.dtype, elements)
    else:
        values = graph.take(names[0], column.dtype, "rows", column.width)
    lengths = graph.take(names[1], column.nnzs_dtype, "rows", 1)
    if column.layout == "flat":
        return _check_lengths(graph, values, lengths), lengths
    widths = column.width or graph.take(column.name + WIDTHS_SUFFIX, "int32", "rows")
    return flatten(graph, values, lengths, widths)


def _null_string(column: WireColumn) -> Strings:
    code = np.frombuffer(column.null_code, np.uint8)
    return Strings(code, np.array([0, len(code)]))


def _check_lengths(graph: Graph, values: str, lengths: str) -> str:
    """The values, if the row lengths add up to their number; else the run fails."""
    zero = graph.vector(0)
    length = graph.add("Reshape", lengths, graph.vector(-1))
    # In float64 a sum cannot overflow to the right total, nor with the replacement of a negative.
    length = graph.add("Where", graph.add("Less", length, zero), graph.vector(2**62), length)
    length = graph.add("Concat", graph.table(np.zeros(1)), graph.cast(length, "float64"), axis=0)
    sums = graph.add("CumSum", length, zero)
    total = graph.cast(graph.add("Gather", sums, graph.vector(-1)), "int64")
    shape = graph.add("Concat", total, graph.vector(1), axis=0)
    return graph.add("Reshape", values, shape, allowzero=1)


def _send(graph: Graph, column: WireColumn, tensor: Tensor) -> None:
    """An output, with nulls replaced by the null code."""
    names = [name + OUTPUT_SUFFIX for name in column.tensors]
    values, lengths = tensor.values, tensor.lengths
    if tensor.valid is not None:
        values = _with_nulls(graph, column, values, tensor.valid)
    shape: tuple[str | int, ...] = ("rows", 1)
    if column.layout == "flat":
        shape = (f"elements of {names[0]}", 1)
    elif lengths is not None:
        values = pad(graph, values, lengths, column.dtype, column.width)
        shape = ("rows", column.width or f"width of {names[0]}")
        if column.width is not None:
            most = graph.constant(column.width, "int64")
            lengths = graph.add("Where", graph.add("Less", lengths, most), lengths, most)
    graph.give(names[0], values, column.dtype, *shape)
    if lengths is not None and column.layout != "fixed":
        graph.give(names[1], lengths, column.nnzs_dtype, "rows", 1)


def _with_nulls(graph: Graph, column: WireColumn, values: str, valid: str) -> str:
    """The values, with the null code where they are null."""
    if column.dtype == "string":
        return graph.add("Where", valid, values, graph.table(_null_string(column)))
    code = graph.constant(column.null_code, column.dtype)
    if DTYPES[column.dtype].kind != "float":
        return graph.add("Where", valid, values, code)
    # In this order: Where turns -0.0 in its first branch into 0.0. By Xor, since onnxruntime swaps
    # the branches if there is a Not.
    absent = graph.add("Xor", valid, graph.constant(True, "bool"))
    return graph.add("Where", absent, code, values)
