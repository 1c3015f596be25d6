"""Lists padded and of a fixed width: one answer from numpy, ONNX and TensorFlow."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

from workflow.expressions.language.tree import source
from workflow.expressions.language.verbs import Type
from workflow.expressions.onnx import OUTPUT_SUFFIX, WIDTHS_SUFFIX, to_onnx
from workflow.expressions.program.program import build
from workflow.expressions.tensorflow import WireInterpreter
from workflow.schema.column import Column
from workflow.schema.dtypes import SchemaError
from workflow.schema.schema import ColumnSchema, Schema
from workflow.wire.format import WireColumn, decode, encode

ROWS = [[3, -1, 2], [], [7], [1, 1, 1, 1, 5], []]
WORDS = {3: "c", -1: "", 2: "\x00b", 7: "日本", 1: "a", 5: "e" * 100}


def column_of(dtype, rows=ROWS):
    flat = [value for row in rows for value in row]
    values = np.array([WORDS[v] for v in flat], object) if dtype == "string" else flat
    lengths = np.array([len(row) for row in rows], np.int64)
    return Column(np.asarray(values, object if dtype == "string" else dtype), None, lengths)


def identity(dtype):
    """A program that gives back a list."""
    schema = ColumnSchema("x", dtype, is_list=True, nullable=False)
    return build(
        [(schema, source("x", Type(dtype, nullable=False, is_list=True)))], Schema([schema])
    )


def by_numpy(_, wires, tensors):
    return encode(wires[1], decode(wires[0], tensors))


def by_onnx(program, wires, tensors):
    model = to_onnx(program, inputs=[wires[0]], outputs=[wires[1]])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feed = {name: as_text(tensor) for name, tensor in tensors.items()}
    if wires[0].layout == "padded" and wires[0].width is None:
        rows, width = tensors["x"].shape
        feed["x"] = feed["x"].reshape(-1)
        feed["x" + WIDTHS_SUFFIX] = np.full(rows, width, np.int32)
    names = [output.name for output in session.get_outputs()]
    made = dict(zip(names, session.run(names, feed), strict=True))
    return {name.removesuffix(OUTPUT_SUFFIX): as_bytes(array) for name, array in made.items()}


def as_text(array):
    if array.dtype != object:
        return array
    return np.array([text.decode() for text in array.ravel()], object).reshape(array.shape)


def as_bytes(array):
    if array.dtype != object:
        return array
    return np.array([text.encode() for text in array.ravel()], object).reshape(array.shape)


def by_tensorflow(program, wires, tensors):
    module = WireInterpreter(program, [wires[0]], [wires[1]])
    function = tf.function(module, input_signature=[module.signature])
    made = function({name: tf.constant(tensor) for name, tensor in tensors.items()})
    return {name: tensor.numpy() for name, tensor in made.items()}


RUN = {"numpy": by_numpy, "onnx": by_onnx, "tensorflow": by_tensorflow}
FLAT, PADDED = {"layout": "flat"}, {"layout": "padded"}
WIDE = {"layout": "padded", "width": 6}


@pytest.mark.parametrize("rows", [ROWS, [[], []], []], ids=["rows", "empty rows", "no rows"])
@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "string"])
@pytest.mark.parametrize("there", [PADDED, WIDE], ids=["any width", "one width"])
@pytest.mark.parametrize("back", [FLAT, PADDED, WIDE], ids=["flat", "any width", "one width"])
@pytest.mark.parametrize("interpreter", RUN)
def test_a_list_arrives_whole(interpreter, back, there, dtype, rows):
    if dtype == "string" and interpreter == "onnx":
        dtype = "float64"  # onnxruntime's Python takes no NUL; its server does
    data = column_of(dtype, rows)
    wires = WireColumn("x", dtype, **there), WireColumn("x", dtype, **back)
    made = RUN[interpreter](identity(dtype), wires, encode(wires[0], data))
    assert made.keys() == wires[1].tensors.keys()
    for name, (_, width) in wires[1].shapes.items():
        assert made[name].ndim == 2
        assert width in (-1, made[name].shape[1])
    arrived = decode(wires[1], made)
    assert arrived.values.tolist() == data.values.tolist()
    assert arrived.lengths.tolist() == data.lengths.tolist()


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "string"])
@pytest.mark.parametrize("interpreter", RUN)
def test_a_fixed_width_cuts_and_fills(interpreter, dtype):
    if dtype == "string" and interpreter == "onnx":
        dtype = "float64"
    wires = WireColumn("x", dtype, "padded"), WireColumn("x", dtype, "fixed", width=2)
    made = RUN[interpreter](identity(dtype), wires, encode(wires[0], column_of(dtype)))
    numbers = [[3, -1], [0, 0], [7, 0], [1, 1], [0, 0]]
    texts = [[b"c", b""], [b"", b""], ["日本".encode(), b""], [b"a", b"a"], [b"", b""]]
    assert made["x"].tolist() == (texts if dtype == "string" else numbers)


@pytest.mark.parametrize("interpreter", RUN)
def test_a_padded_list_of_one_width_is_cut_with_its_lengths(interpreter):
    wires = WireColumn("x", "int64", "padded"), WireColumn("x", "int64", "padded", width=2)
    made = RUN[interpreter](identity("int64"), wires, encode(wires[0], column_of("int64")))
    assert made["x"].tolist() == [[3, -1], [0, 0], [7, 0], [1, 1], [0, 0]]
    assert made["x__nnzs"].tolist() == [[2], [0], [1], [2], [0]]


BEYOND = [[-1, 1, 1], [9, 1, 1], [2**62, 1, 1], [-(2**63), 1, 1], [2**63 - 1, 1, 1]]


@pytest.mark.parametrize("lengths", BEYOND)
@pytest.mark.parametrize("there", [PADDED, {"layout": "padded", "width": 8}])
def test_lengths_that_do_not_fit_are_refused_where_each_request_is_read_alone(there, lengths):
    wires = WireColumn("x", "int64", **there), WireColumn("x", "int64", "flat")
    tensors = encode(wires[0], column_of("int64", [[1], [2], [3]]))
    tensors["x__nnzs"] = np.array(lengths).reshape(-1, 1)
    with pytest.raises(SchemaError, match="The row lengths of 'x' do not fit into its rows"):
        by_numpy(None, wires, tensors)


@pytest.mark.parametrize("lengths", BEYOND)
@pytest.mark.parametrize("back", [FLAT, PADDED, WIDE], ids=["flat", "any width", "one width"])
@pytest.mark.parametrize("there", [PADDED, {"layout": "padded", "width": 8}])
@pytest.mark.parametrize("interpreter", ["onnx", "tensorflow"])
def test_lengths_that_do_not_fit_leave_the_rows_of_others_as_they_are(
    interpreter, there, back, lengths
):
    """A server has joined the requests: the first row is that of another client."""
    wires = WireColumn("x", "int64", **there), WireColumn("x", "int64", **back)
    tensors = encode(wires[0], column_of("int64", [[1], [2], [3]]))
    tensors["x__nnzs"] = np.array(lengths).reshape(-1, 1)
    made = RUN[interpreter](identity("int64"), wires, tensors)
    arrived = decode(wires[1], made)
    width = min(tensors["x"].shape[1], back.get("width", 8))
    assert arrived.lengths.tolist() == [0 if lengths[0] < 0 else width, 1, 1]
    assert arrived.values[-2:].tolist() == [2, 3]


@pytest.mark.parametrize(
    "wrong", [{"layout": "fixed"}, {"layout": "flat", "width": 3}, {"layout": "fixed", "width": 0}]
)
def test_a_width_that_makes_no_sense(wrong):
    with pytest.raises(SchemaError, match="Expected a width from 1"):
        WireColumn("x", "int64", **wrong)
