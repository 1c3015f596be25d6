"""The recipes of CONTRIBUTING.md, followed in a copy of the packages."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("workflow", "loader", "training", "exporter", "serving", "triton_models")
OPERATOR = """
from dataclasses import dataclass

from workflow.operator.feature import Feature
from workflow.operator.operator import Operator


@dataclass(frozen=True)
class Reciprocal(Operator):
    def lower(self, columns, state):
        return {n: Feature.of(n, f.expression.reciprocal(), f.schema) for n, f in columns.items()}
"""
RUNTIME = """
from dataclasses import replace

from exporter.plan.plan import Runtime
from exporter.runtimes import fused_onnx


def _plan(pipeline):
    return tuple(replace(spec, backend="twin") for spec in fused_onnx.RUNTIME.plan(pipeline))


RUNTIME = Runtime(_plan, fused_onnx.RUNTIME.prepare)
"""
# A line of a file, and the one that comes after it: six files for the verb.
VERB = {
    "workflow/expressions/language/verbs.py": (
        '        Verb("divide", 2, {}, _real("divide"), **strict, reexpressed_on=("cudf",)),\n',
        '        Verb("reciprocal", 1, {}, _real("reciprocal"), **strict, exact=False),\n',
    ),
    "workflow/expressions/language/methods.py": (
        '        return self._call("tanh", self)\n',
        '\n    def reciprocal(self):\n        return self._call("reciprocal", self)\n',
    ),
    "workflow/expressions/numpy/verbs.py": (
        '        "tanh": _transcendental(np.tanh),\n',
        '        "reciprocal": _transcendental(np.reciprocal),\n',
    ),
    "workflow/expressions/polars/interpreter.py": (
        '        "tanh": _transcendental(lambda a: a.tanh()),\n',
        '        "reciprocal": _transcendental(lambda a: 1.0 / a),\n',
    ),
    "workflow/expressions/tensorflow/verbs.py": (
        '        "tanh": _transcendental(tf.math.tanh),\n',
        '        "reciprocal": _transcendental(tf.math.reciprocal),\n',
    ),
    "workflow/expressions/onnx/verbs.py": (
        '        "tanh": _transcendental(lambda graph, x: graph.add("Tanh", x)),\n',
        '        "reciprocal": _transcendental(lambda graph, x: graph.add("Reciprocal", x)),\n',
    ),
}
PROGRAM = """
import math

import keras
import polars as pl
from exporter import ServingOptions, export_tensorflow_ensemble
from workflow import Workflow, ops

rows = pl.DataFrame({"a": [1.0, -2.0, None, 3.0], "b": [0.5, 1.5, 2.5, -3.5]})
filled = ["a"] >> ops.FillMissing(4.0) >> ops.Reciprocal()
graph = filled + (["b"] >> ops.LambdaOp(lambda b: b.reciprocal()))
workflow = Workflow(graph).fit(rows)
made = workflow.transform(rows).collect()
for name in "ab":
    for value, reciprocal in zip(rows[name].fill_null(4.0), made[name], strict=True):
        assert math.isclose(reciprocal, 1 / value, rel_tol=1e-15), made

inputs = {name: keras.Input((1,), name=name, dtype="float32") for name in "ab"}
both = keras.layers.Concatenate()([inputs["a"], inputs["b"]])
network = keras.Model(inputs, {"sum": keras.layers.Dense(1, kernel_initializer="ones")(both)})
for runtime in ("tensorflow", "twin", "fused_tensorflow"):
    report = export_tensorflow_ensemble(
        network, workflow, "sums", runtime, serving=ServingOptions(runtime=runtime)
    )
    assert report.proof.rows and not report.proof.refused, report
    print("exported", runtime)
"""

ROW = '        _row("float32", "float", "Float32", "FP32", "FLOAT"),\n'
HALF = '        _row("float16", "float", "Float16", "FP16", "FLOAT16"),\n'
HALVES = """
import keras
import polars as pl
from exporter import ServingOptions, export_tensorflow_ensemble
from workflow import Workflow, ops

rows = pl.DataFrame({"x": pl.Series([1.5, None, -2.25], dtype=pl.Float16), "y": [0.5, None, 1e-7]})
rows = rows.with_columns(k=pl.Series([7, 8, 9]))
table = rows.select("k", w=pl.Series([0.25, 4.0, 8.0], dtype=pl.Float16))[:2]
features = (["x"] >> ops.FillMedian()) + (["y"] >> ops.ReduceDtypeSize("float16") >> ops.FillMissing(2))
features += ["k"] >> ops.JoinExternal(table, on="k", columns_ext=["w"]) >> ops.FillMissing(1)
Workflow(features).fit(rows).save("saved")
workflow = Workflow.load("saved")
made = workflow.transform(rows).collect()
assert made.dtypes == [pl.Float16] * 2 + [pl.Int64, pl.Float16], made
assert made["w"].to_list() == [0.25, 4.0, 1.0], made
assert made["x"].to_list() == [1.5, -0.375, -2.25], made
workflow.transform_to_parquet(rows, "made")
assert pl.read_parquet("made/*.parquet").equals(made)

inputs = {name: keras.Input((1,), name=name, dtype="float16") for name in "xyw"}
both = keras.layers.Concatenate()([*inputs.values()])
network = keras.Model(inputs, {"sum": keras.layers.Dense(1, dtype="float32")(both)})
for runtime in ("tensorflow", "onnx", "fused_onnx", "fused_tensorflow"):
    report = export_tensorflow_ensemble(
        network, workflow, "sums", runtime, serving=ServingOptions(runtime=runtime)
    )
    assert report.proof.rows and not report.proof.refused, report
    assert "x float16" in str(report), report
    print("exported", runtime)
"""


def insert(path: Path, after: str, line: str) -> None:
    text = path.read_text()
    assert text.count(after) == 1, f"{path}: {after!r}"
    path.write_text(text.replace(after, after + line))


@pytest.fixture
def copy(tmp_path):
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return tmp_path


@pytest.mark.long
def test_an_operator_a_verb_and_a_runtime_are_added_as_the_recipes_say(copy):
    (copy / "workflow" / "ops" / "reciprocal.py").write_text(OPERATOR)
    insert(
        copy / "workflow" / "ops" / "__init__.py",
        "from .column_similarity import ColumnSimilarity\n",
        "from .reciprocal import Reciprocal\n",
    )
    for name, (after, line) in VERB.items():
        insert(copy / name, after, line)
    (copy / "exporter" / "runtimes" / "twin.py").write_text(RUNTIME)
    insert(
        copy / "exporter" / "runtimes" / "registry.py",
        "    match name:\n",
        '        case "twin":\n            from exporter.runtimes.twin import RUNTIME\n',
    )
    insert(
        copy / "exporter" / "plan" / "runtime.py",
        '    "tensorflow": RuntimeKind(in_tensorflow=True),\n',
        '    "twin": RuntimeKind(is_fused=True, is_served=False),\n',
    )
    with pytest.raises(AssertionError, match=r"written\.py cannot run .* the backend 'twin'"):
        exported(copy, PROGRAM.replace('"tensorflow", "twin", "fused_tensorflow"', '"twin",'))
    insert(
        copy / "exporter" / "prove" / "written.py",
        '    "onnxruntime": _onnx,\n',
        '    "twin": _onnx,\n',
    )
    memory = copy / "exporter" / "report" / "memory.py"
    insert(memory, '_RUNTIME = {"tensorflow": 58e6,', ' "twin": 29e6,')
    insert(memory, '_ENTRY = {"tensorflow": (15, 60),', ' "twin": (60, 420),')
    assert exported(copy, PROGRAM) == ["tensorflow", "twin", "fused_tensorflow"]


@pytest.mark.long
def test_a_verb_that_is_a_row_only_is_missing_everywhere_else(copy):
    """As the test says that the recipe names, although `workflow` cannot be imported."""
    for name in ("tests", "docs"):
        shutil.copytree(ROOT / name, copy / name)
    shutil.copy(ROOT / "pyproject.toml", copy)
    after, line = VERB["workflow/expressions/language/verbs.py"]
    insert(copy / "workflow" / "expressions" / "language" / "verbs.py", after, line)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/workflow/expressions/test_every_verb.py"],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    for place in (
        "The interpreter numpy has no entry for reciprocal.",
        "The interpreter polars has no entry for reciprocal.",
        "The interpreter tensorflow has no entry for reciprocal.",
        "The interpreter onnx has no entry for reciprocal.",
        "language/methods.py has no method for reciprocal.",
        "docs/guide/workflow.md does not name reciprocal.",
    ):
        assert place in done.stdout, done.stdout[-3000:]


@pytest.mark.long
def test_a_dtype_is_one_row(copy):
    insert(copy / "workflow" / "schema" / "dtypes.py", ROW, HALF)
    assert exported(copy, HALVES) == ["tensorflow", "onnx", "fused_onnx", "fused_tensorflow"]


def exported(copy: Path, program: str) -> list[str]:
    """The runtimes for which a program, run with the copy, has exported."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line.split() for line in done.stdout.splitlines()]
    return [line[1] for line in lines if line[:1] == ["exported"]]
