"""Programs as servers run them: tensors in, tensors out, by way of the wire forms and of packing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnxruntime
import tensorflow as tf

from exporter.plan.pack_columns import pack_columns
from exporter.write.onnx.packed_tensor import pack_outputs
from exporter.write.saved_model import unpack_tensor
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.onnx import OUTPUT_SUFFIX, to_onnx
from workflow.expressions.program.program import Program
from workflow.expressions.tensorflow import WireInterpreter
from workflow.schema.column import Array, Column
from workflow.wire import alike
from workflow.wire.format import WireColumn, decode, encode, wire_column
from workflow.wire.packed_tensor import pack, unpack

Tensors = dict[str, Array]
# Lists that are drawn have at most so many elements, so that a padded row cuts none of them.
WIDTH = 8


@dataclass(frozen=True)
class Wires:
    """The wire form of a program's columns."""

    inputs: Sequence[WireColumn]
    outputs: Sequence[WireColumn]


def wires_of(program: Program, *, padded: bool) -> Wires:
    """Scalars, and lists flat or padded; null where there is a code for it."""

    def of(column):
        made = wire_column(column, column.nullable and column.info.kind != "bool")
        if not (padded and column.is_list):
            return made
        return replace(made, layout="padded", width=WIDTH)

    return Wires(
        [of(column) for column in program.inputs.columns],
        [of(column) for column in program.output_schema.columns],
    )


def sendable(column: WireColumn, data: Column) -> Column:
    """The column as a request can carry it: no value that stands for null, nor null without a code.

    From Python onnxruntime reads a string up to a NUL.
    """
    values, valid = data.array.copy(), data.valid
    if values.dtype == object:
        values[:] = [text.replace("\0", "0") for text in values]
    if not column.nullable:
        return Column(values, None, data.lengths)
    code = column.null_code
    if code == code and values.dtype != object:  # noqa: PLR0124 - NaN
        valid = (values != code) & (True if valid is None else valid)
    return Column(values, valid, data.lengths)


def receivable(column: WireColumn, made: Column) -> Column:
    """Values as a client reads them: the null code is null."""
    if not column.nullable:
        return made
    values, code = made.array, column.null_code
    there = values == values if code != code else values != code  # noqa: PLR0124 - NaN
    return Column(values, there & (True if made.valid is None else made.valid), made.lengths)


def encode_request(columns: Sequence[WireColumn], data: Mapping[str, Column]) -> Tensors:
    tensors: Tensors = {}
    for column in columns:
        tensors |= encode(column, data[column.name])
    return tensors


def decode_answer(columns: Sequence[WireColumn], tensors: Tensors) -> dict[str, Column]:
    return {column.name: decode(column, tensors) for column in columns}


def serve_numpy(program: Program, wires: Wires, request: Tensors, *, lanes: bool, mixed: bool):
    """As the preprocessing step answers, its tensors packed and taken apart in numpy."""
    columns = {}
    groups = alike.groups_of(wires.inputs)
    for group in groups:
        columns |= alike.decode_group(group, [request])
    single = [column for column in wires.inputs if column.name not in columns]
    columns |= {column.name: decode(column, request) for column in single}
    run = NumpyInterpreter(program, together=1_024 if lanes else 0)
    made = encode_request(wires.outputs, run(columns))
    _, packing = pack_columns(wires.outputs, mixed=mixed)
    packed = pack(made, packing)
    apart = unpack(packed, packing)
    if mixed:  # the network's SavedModel takes the same apart in its graph
        for name, members in packing.items():
            in_graph = unpack_tensor(tf.constant(packed[name]), members)
            for member, tensor in in_graph.items():
                np.testing.assert_array_equal(tensor.numpy(), apart[member])
    return apart


def serve_tensorflow(program: Program, wires: Wires, request: Tensors) -> Tensors:
    module = WireInterpreter(program, wires.inputs, wires.outputs)
    run = tf.function(module, input_signature=[module.signature], autograph=False)
    fed = {
        name: tf.constant(
            t.tolist() if t.dtype == object else t, module.signature[name].dtype, t.shape
        )
        for name, t in request.items()
    }
    return {name: tensor.numpy() for name, tensor in run(fed).items()}


def serve_onnx(program: Program, wires: Wires, request: Tensors) -> Tensors:
    _, packing = pack_columns(wires.outputs, mixed=False)
    model = pack_outputs(to_onnx(program, wires.inputs, wires.outputs), packing)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    feed = {name: _as_bytes(t) if t.dtype == object else t for name, t in request.items()}
    made = dict(zip(names, session.run(names, feed), strict=True))
    return unpack({name.removesuffix(OUTPUT_SUFFIX): t for name, t in made.items()}, packing)


def _as_bytes(texts: Array) -> Array:
    """Bytes as onnxruntime takes them from Python: each with a NUL behind it."""
    width = max([1, *(len(text) for text in texts.ravel())])
    return np.array(texts.tolist(), f"S{width + 1}").reshape(texts.shape)
