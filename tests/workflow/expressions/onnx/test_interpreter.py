"""The onnx interpreter, as it is served: written, loaded by onnxruntime, fed with wire tensors."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from movie_rows import make_workflow, program_of
from onnx_serving import load, program_over, serve_program
from run_onnx import OnnxInterpreter

from workflow import Workflow
from workflow.expressions.language.tree import call, constant, source
from workflow.expressions.language.types import Type
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.onnx import save_onnx, to_onnx, wire
from workflow.expressions.program.program import build
from workflow.schema.column import Column
from workflow.schema.dtypes import DTYPES, SchemaError
from workflow.schema.schema import ColumnSchema, Schema


@pytest.fixture(scope="module")
def workflow() -> Workflow:
    return make_workflow()


def test_model_is_valid_and_of_versions_that_triton_reads(workflow):
    model = to_onnx(program_of(workflow))
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 9
    assert {o.domain: o.version for o in model.opset_import} == {"": 18, "ai.onnx.ml": 4}
    shapes = {
        info.name: [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim]
        for info in (*model.graph.input, *model.graph.output)
    }
    assert shapes["userId"] == shapes["userId__out"] == shapes["tags__nnzs"] == ["rows", 1]
    assert shapes["tags__values"] == ["elements of tags", 1]
    assert shapes["genres__values__out"][1] == 1


def test_what_is_done_to_a_joined_column_is_done_to_its_table(workflow):
    model = to_onnx(program_of(workflow))
    strings = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.STRING]
    assert strings == [], "a request would take strings from a table to look them up"


def test_external_data_is_beside_the_model_and_written_anew(workflow, tmp_path):
    program, path = program_of(workflow), tmp_path / "model.onnx"
    genres = program.output_schema["genres"]
    big = Column(np.arange(5000) % 7)
    row = source("userId", Type("int64")).fill_null(0)
    program = build([(genres.with_(is_list=False), row.gather(big))], program.inputs)
    for _ in range(2):
        save_onnx(to_onnx(program), path, external_data=True)
        assert (tmp_path / "model.data").stat().st_size < 1.2 * 8 * 5001
    assert path.stat().st_size < 8 * 5000
    made = load(path)({"userId": np.array([[4999], [3], [5000], [-1]])})
    null = -(2**63)
    assert made["genres"].ravel().tolist() == [4999 % 7, 3, null, null]


def test_vocabulary_too_large_for_the_format_is_an_error(workflow, tmp_path, monkeypatch):
    monkeypatch.setattr(wire, "PROTOBUF_BYTES", 1000)
    with pytest.raises(SchemaError, match=r"Expected vocabularies .* Received: \d+ bytes"):
        save_onnx(to_onnx(workflow.program), tmp_path / "model.onnx", external_data=True)


def test_constant_output_has_as_many_rows_as_the_request(tmp_path):
    x = source("x", Type("int64", nullable=False))
    serve = serve_program(program_over(x, {"x": x, "one": constant(1) * 1}), tmp_path)
    for rows in (0, 1, 3):
        assert serve({"x": np.zeros((rows, 1), np.int64)})["one"].tolist() == [[1]] * rows


WIDE = {
    **dict.fromkeys(("add", "subtract", "multiply", "minimum", "maximum", "divide"), 2),
    **dict.fromkeys(("equal", "less", "less_equal", "greater", "greater_equal"), 2),
    **dict.fromkeys(("negate", "absolute", "sqrt", "floor", "ceil"), 1),
}


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64", "float32", "float64"])
@pytest.mark.parametrize("verb", WIDE)
def test_many_rows_are_computed_as_few(verb, dtype):
    """Over many rows kernels use wide instructions, and onnxruntime's are not all right there."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**64, (2, 999), np.uint64)
    small = rng.integers(0, 2**33, (2, 999), np.uint64) >> rng.integers(0, 32, (2, 999), np.uint64)
    pair = np.where(rng.random((2, 999)) < 0.5, bits, small)
    data = pair.view(np.float64) if dtype == "float64" else pair.astype(dtype)
    data = np.nan_to_num(data) if DTYPES[dtype].kind == "float" else data
    a, b = (source(name, Type(dtype, nullable=False)) for name in "ab")
    other = constant(data[1][0].item(), a.type)
    outputs = [call(verb, a)] if WIDE[verb] == 1 else [call(verb, a, b), call(verb, a, other)]
    made = [
        (ColumnSchema(str(number), e.type.dtype, nullable=False), e)
        for number, e in enumerate(outputs)
    ]
    program = build(made, Schema(ColumnSchema(name, dtype, nullable=False) for name in "ab"))
    columns = {"a": Column(data[0]), "b": Column(data[1])}
    expected, received = NumpyInterpreter(program)(columns), OnnxInterpreter(program)(columns)
    for name, column in expected.items():
        np.testing.assert_array_equal(received[name].values, column.values)


def test_log1p_keeps_its_precision_near_zero():
    x = source("x", Type("float64", nullable=False))
    size = np.logspace(-320, 308, 999)
    values = np.concatenate([size, -size[size < 1], [-1, 0, np.inf, -2, -np.inf]])
    made = OnnxInterpreter(program_over(x, {"y": x.log1p()}))({"x": Column(values)})["y"]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(made.values, np.log1p(values), rtol=1e-15)


def test_workflow_alone_does_not_import_onnx():
    code = "import workflow, sys; assert not {'onnx', 'onnxruntime'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


NEARLY_NEUTRAL = {
    "add": lambda x: x + 4.8e-54,
    "added to": lambda x: 4.8e-54 + x,
    "subtract": lambda x: x - 4.8e-54,
    "multiply": lambda x: x * (1 + 1e-10),
    "multiplied by": lambda x: (1 + 1e-10) * x,
    "divide": lambda x: x / (1 + 1e-10),
}


@pytest.mark.parametrize("of", NEARLY_NEUTRAL)
@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_a_number_that_changes_nothing_as_a_float32_changes_a_float64(of, dtype, tmp_path):
    """onnxruntime removes sums with 0 and products with 1, and compares as float32."""
    function, x = NEARLY_NEUTRAL[of], source("x", Type(dtype))
    made = function(x.cast("float64")) * 3
    answer = serve_program(program_over(x, {"made": made}), tmp_path)
    values = [0, 1, 3, -7]
    got = answer({"x": np.array([values], dtype).T})["made"].ravel().tolist()
    assert got == [function(float(value)) * 3 for value in values]


@pytest.mark.parametrize("missing", [-1, 1, 2, 3])
def test_a_row_for_unknown_values_is_taken_from_the_table(missing):
    x = source("x", Type("int64", nullable=False))
    found = x.lookup(Column(np.array([10, 20])), missing=missing)
    program = program_over(x, {"y": found.gather(Column(np.array([5, 6, 7])))})
    data = {"x": Column(np.array([10, 20, 30]))}
    expected, made = NumpyInterpreter(program)(data)["y"], OnnxInterpreter(program)(data)["y"]
    present = np.ones(3, bool) if expected.valid is None else expected.valid
    assert made.valid.tolist() == present.tolist()
    assert made.values[present].tolist() == expected.values[present].tolist()


def test_a_number_without_rows_of_its_own_has_those_of_an_output():
    """onnxruntime 1.31 refuses the shape of a conversion of what is an output itself."""
    x = source("x", Type("int64", nullable=False))
    none = Column(np.zeros(0, bool))
    outputs = {
        "same": x == x + 1,
        "unknown": (x == x + 1).lookup(none, missing=3),
        "sum": x + 1,
        "bucket": (x + 1).bucketize(Column(np.zeros(0))),
    }
    made = OnnxInterpreter(program_over(x, outputs))({"x": Column(np.array([4, 5]))})
    assert made["unknown"].values.tolist() == [3, 3]
    assert made["bucket"].values.tolist() == [0, 0]


def test_a_division_by_zero_is_null_in_every_row():
    x = source("x", Type("int64", nullable=False))
    outputs = {"rest": (x % 0).is_null(), "whole": (x // 0).is_null()}
    made = OnnxInterpreter(program_over(x, outputs))({"x": Column(np.array([4, 5, 6]))})
    assert [made[name].values.tolist() for name in outputs] == [[True] * 3] * 2


def test_a_lookup_that_is_filled_with_another_type_is_converted(tmp_path):
    x = source("x", Type("int64"))
    filled = x.lookup(Column(np.array([10, 20]))).fill_null(constant(2**63 + 2048, Type("uint64")))
    program = program_over(x, {"y": filled})
    answer = serve_program(program, tmp_path)({"x": np.array([[20], [7], [-(2**63)]])})
    assert answer["y"].ravel().tolist() == [1, -1, 2.0**63 + 2048]


COMPARED = """
import resource
import numpy as np
from run_onnx import OnnxInterpreter
from workflow.expressions.language.tree import call, source
from workflow.expressions.language.types import Type
from workflow.expressions.program.program import build
from workflow.schema.column import Column
from workflow.schema.schema import ColumnSchema, Schema

shop, tags = (source(n, Type("string", n == "tags", nullable=False)) for n in ("shop", "tags"))
columns = Schema(ColumnSchema(e.parameters["name"], "string", e.type.is_list, nullable=False) for e in (shop, tags))

def rows(texts, lists):
    tags = np.array([tag for each in lists for tag in each], object)
    lengths = np.array([len(each) for each in lists])
    return {"shop": Column(np.array(texts, object)), "tags": Column(tags, None, lengths)}

for verb in ("equal", "not_equal", "less"):
    output = ColumnSchema("made", "bool", is_list=True, nullable=False)
    run = OnnxInterpreter(build([(output, call(verb, shop, tags))], columns))
    few = run(rows(["b", "a", ""], [["a", "b", "c"], [], [""]]))["made"]
    print(few.values.astype(int).tolist(), few.lengths.tolist())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run(rows(["x" * 65_536, "y"], [["x", "y"] * 5_000, ["y"]]))
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.long
def test_a_text_is_not_copied_for_each_element_that_it_is_compared_with():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", COMPARED],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    lines = run.stdout.splitlines()
    assert lines[::2] == [
        "[0, 1, 0, 1] [3, 0, 1]",
        "[1, 0, 1, 0] [3, 0, 1]",
        "[0, 0, 1, 0] [3, 0, 1]",
    ]
    assert all(int(megabytes) < 100 for megabytes in lines[1::2])  # copies would take 655 MB
