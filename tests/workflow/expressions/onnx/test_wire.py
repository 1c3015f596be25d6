"""The onnx interpreter at its ends: null by its code, row lengths, and the names of tensors."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx_serving import load, program_over, serve_program

from workflow.expressions.language.tree import source
from workflow.expressions.language.types import Type
from workflow.expressions.onnx import to_onnx
from workflow.expressions.onnx.checks import FEW_INPUTS, MANY_INPUTS
from workflow.expressions.program.program import build
from workflow.schema.dtypes import DTYPES, SchemaError
from workflow.schema.schema import ColumnSchema, Schema

NULLABLE = [name for name in DTYPES if name != "bool"]


def test_null_string_passes_from_one_model_to_another(tmp_path):
    # onnxruntime's Python interface cannot hand a null string out, so a second model takes it.
    x, y = source("x", Type("string")), source("x__out", Type("string"))
    first = to_onnx(program_over(x, {"x": x}), name="first")
    second = to_onnx(program_over(y, {"null": y.is_null()}), name="second")
    both = onnx.compose.merge_models(
        first, second, io_map=[("x__out", "x__out")], prefix1="1/", prefix2="2/"
    )
    onnx.save_model(both, tmp_path / "both.onnx")
    answer = load(tmp_path / "both.onnx")({"1/x": np.array([[b"a"], [b"\xff"]], object)})
    assert next(iter(answer.values())).ravel().tolist() == [False, True]


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
        scalars = {n: np.full((rows, 1), ONE[k], DTYPES[k].numpy) for n, k in kinds.items()}
        return scalars | lists

    return build(made, schema), tensors


def test_many_inputs_are_counted_together():
    """onnxruntime takes the square of the number of `Shape`s to open a graph."""
    program, _ = inputs_of_all_kinds(MANY_INPUTS + 1)
    operators = Counter(node.op_type for node in to_onnx(program).graph.node)
    # Two types of numbers, in two ways; the first input, and each string.
    assert operators["Shape"] <= 5 + MANY_INPUTS / 4


@pytest.mark.parametrize("count", [6, FEW_INPUTS + 4, MANY_INPUTS + 1])
def test_an_input_with_other_rows_is_refused(count, tmp_path):
    program, tensors = inputs_of_all_kinds(count)
    serve = serve_program(program, tmp_path)
    given = tensors(3)
    assert serve(given)["x0"].tolist() == [[7]] * 3
    assert serve(tensors(0))["x0"].shape == (0, 1)
    for odd in ("x0", "x1", "x2", "x3", "tags"):
        for rows in (0, 1, 2, 4):
            other = {n: t for n, t in tensors(rows).items() if n.partition("__")[0] == odd}
            with pytest.raises(Exception, match="ONNXRuntimeError"):
                serve(given | other)
