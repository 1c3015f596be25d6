"""The onnx interpreter at its ends: null by its code, row lengths, and the names of tensors."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx_serving import load, program_over, serve_program

from workflow.expressions.language.tree import source
from workflow.expressions.language.types import Type
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.onnx import to_onnx
from workflow.expressions.onnx.wire import _MANY_INPUTS
from workflow.expressions.program.program import build
from workflow.schema.column import Column, Strings
from workflow.schema.dtypes import DTYPES, SchemaError
from workflow.schema.schema import ColumnSchema, Schema
from workflow.wire.format import WireColumn, decode, encode, wire_column

NULLABLE = [name for name in DTYPES if name != "bool"]


def column_with_null(dtype):
    info = DTYPES[dtype]
    if dtype == "string":
        raw = ["", "a", "", "b", "a"]
    elif info.kind == "float":
        raw = [0, 1.5, 0, -1, 1.5]
    else:
        raw = [0, 1, 0, int(np.iinfo(dtype).max) - 1, 1]
    values = np.array(raw, info.numpy)
    return Column(values, np.array([True, True, False, True, True]))


@pytest.mark.parametrize("is_list", [False, True])
@pytest.mark.parametrize("dtype", NULLABLE)
def test_null_arrives_by_its_code(dtype, is_list, tmp_path):
    x = source("x", Type(dtype, is_list))
    data = column_with_null(dtype)
    data = Column(data.values, data.valid, np.array([2, 0, 3]) if is_list else None)
    outputs = {"null": x.is_null(), "filled": x.fill_null("z" if dtype == "string" else 7)}
    if DTYPES[dtype].kind != "float":
        # The null's code is among the keys, and is null nevertheless.
        code = None if dtype == "string" else wire_column(ColumnSchema("x", dtype), True).null_code
        keys = ["a", "z"] if dtype == "string" else np.array([1, code], dtype)
        table = Column(Strings.of(keys) if dtype == "string" else keys)
        outputs["id"] = x.lookup(table, first=3, missing=2).fill_null(1).cast("int32")
        outputs["small"] = x.lookup(table, first=3, missing=2).fill_null(1000).cast("int8")
    program = program_over(x, outputs)
    answer = serve_program(program, tmp_path)(encode(wire_column(program.inputs["x"], True), data))
    expected = NumpyInterpreter(program)({"x": data})
    for column in program.output_schema.columns:
        got = decode(wire_column(column, False), answer)
        np.testing.assert_array_equal(got.array, expected[column.name].array, column.name)


@pytest.mark.parametrize("dtype", [name for name in NULLABLE if name != "string"])
def test_null_leaves_as_its_code(dtype, tmp_path):
    x = source("x", Type(dtype))
    program = program_over(x, {"x": x})
    tensors = encode(wire_column(program.inputs["x"], True), column_with_null(dtype))
    np.testing.assert_array_equal(serve_program(program, tmp_path)(tensors)["x"], tensors["x"])


def test_null_string_passes_from_one_model_to_another(tmp_path):
    # onnxruntime's Python interface cannot hand a null string out, so a second model takes it.
    x, y = source("x", Type("string")), source("x__out", Type("string"))
    first = to_onnx(program_over(x, {"x": x}), name="first")
    second = to_onnx(program_over(y, {"null": y.is_null()}), name="second")
    both = onnx.compose.merge_models(
        onnx.compose.add_prefix(first, "1/", rename_inputs=False, rename_outputs=False),
        onnx.compose.add_prefix(second, "2/"),
        io_map=[("x__out", "2/x__out")],
    )
    onnx.save_model(both, tmp_path / "both.onnx")
    answer = load(tmp_path / "both.onnx")({"x": np.array([[b"a"], [b"\xff"]], object)})
    assert next(iter(answer.values())).ravel().tolist() == [False, True]


@pytest.mark.parametrize("have", ["int32", "int64"])
@pytest.mark.parametrize("want", ["int32", "int64"])
def test_row_lengths_have_a_dtype_of_their_own(have, want, tmp_path):
    x = source("x", Type("int64", is_list=True, nullable=False))
    serve = serve_program(
        program_over(x, {"x": x}),
        tmp_path,
        inputs=[WireColumn("x", "int64", "flat", nnzs_dtype=have)],
        outputs=[WireColumn("x", "int64", "flat", nnzs_dtype=want)],
    )
    made = serve({"x__values": np.array([[5], [6]]), "x__nnzs": np.array([[2], [0]], have)})
    assert made["x__nnzs"].dtype == want
    assert made["x__nnzs"].tolist() == [[2], [0]]
    assert made["x__values"].tolist() == [[5], [6]]


def test_wire_form_that_does_not_fit_is_an_error():
    x = source("x", Type("int64"))
    program = program_over(x, {"x": x})
    for wrong in (
        [],
        [WireColumn("y", "int64")],
        [WireColumn("x", "int32", nullable=True)],
        [WireColumn("x", "int64", "flat")],
        [WireColumn("x", "int64")] * 2,
    ):
        with pytest.raises(SchemaError, match=r"Expected a wire form for each input.* Received"):
            to_onnx(program, inputs=wrong)
    with pytest.raises(SchemaError, match="'x' can be null"):
        to_onnx(program, outputs=[WireColumn("x", "int64")])
    with pytest.raises(SchemaError, match="'b' is bool, which has no code for null"):
        to_onnx(program_over(x, {"b": x > 1}))


def test_tensor_names_that_clash_are_an_error():
    x = source("x__out", Type("int64"))
    program = program_over(x, {"x": x.fill_null(0)})
    with pytest.raises(SchemaError, match=r"distinct tensor names. Received twice: \['x__out'\]"):
        to_onnx(program)


KINDS = ("int64", "float32", "string", "int8")
ONE = {"int64": 7, "float32": 0.5, "string": b"a", "int8": 1}


def inputs_of_all_kinds(count):
    """A program that hands scalars of four types and a list on, and its tensors of so many rows."""
    kinds = {f"x{n}": KINDS[n % 4] for n in range(count - 1)}
    schema = Schema(
        [
            *(ColumnSchema(name, kind) for name, kind in kinds.items()),
            ColumnSchema("tags", "int64", True),
        ]
    )
    made = [(c, source(c.name, Type(c.dtype, c.is_list))) for c in schema.columns]

    def tensors(rows):
        lists = {"tags__values": np.ones((2 * rows, 1), np.int64)}
        lists["tags__nnzs"] = np.full((rows, 1), 2)
        scalars = {n: np.array([[ONE[k]]] * rows, DTYPES[k].numpy) for n, k in kinds.items()}
        return scalars | lists

    return build(made, schema), tensors


def test_many_inputs_are_counted_together():
    """onnxruntime takes the square of the number of `Shape`s to open a graph."""
    program, _ = inputs_of_all_kinds(_MANY_INPUTS + 1)
    operators = Counter(node.op_type for node in to_onnx(program).graph.node)
    assert operators["Shape"] <= 2 + _MANY_INPUTS / 4  # two types of numbers, and each string


@pytest.mark.parametrize("count", [6, _MANY_INPUTS + 1])
def test_an_input_with_other_rows_is_refused(count, tmp_path):
    program, tensors = inputs_of_all_kinds(count)
    serve = serve_program(program, tmp_path)
    given = tensors(3)
    assert serve(given)["x0"].tolist() == [[7]] * 3
    for odd in ("x0", "x1", "x2", "x3", "tags"):
        for rows in (1, 2, 4):
            other = {n: t for n, t in tensors(rows).items() if n.partition("__")[0] == odd}
            with pytest.raises(Exception, match="ONNXRuntimeError"):
                serve(given | other)
