"""The exported preprocessing step alone: it needs numpy and nothing else, and answers as offline."""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import keras
import numpy as np
import polars as pl
import pytest
from small_export import rows

from workflow import Workflow, ops
from workflow.expressions.polars.series import to_column
from workflow.wire.format import encode
from workflow.wire.packed_tensor import parse_packing, unpack


@pytest.fixture(scope="session")
def numpy_only(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    for package in Path(np.__file__).parent.parent.glob("numpy*"):
        (folder / package.name).symlink_to(package)
    return folder


@pytest.fixture
def serve_alone(numpy_only, tmp_path):
    """Send rows to an exported step in a bare interpreter; gives its tensors by name."""

    def serve(report, data):
        sent = {}
        for column in report.plan.features.inputs:
            sent |= encode(column, to_column(data[column.name]))
        texts = {n: a.astype("S") if a.dtype == object else a for n, a in sent.items()}
        np.savez(tmp_path / "request.npz", **texts)
        parameters = report.plan.steps[0].parameters.items()
        config = json.dumps({"parameters": {k: {"string_value": v} for k, v in parameters}})
        program = Path(__file__).parents[1] / "run_alone.py"
        files = [tmp_path / "request.npz", tmp_path / "answer.npz"]
        folder = report.paths[report.plan.steps[0].name]
        command = [sys.executable, "-I", "-S", program, folder, numpy_only, config, *files]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        assert result.stdout.split() == ["input_metrics", "numpy", "preprocess_runtime"]
        packing = parse_packing(report.plan.steps[0].parameters["packing"])
        return unpack(dict(np.load(files[1])), packing)

    return serve


def offline(report, workflow, data):
    made = workflow.transform(data).collect()
    tensors = {}
    for column in report.plan.features.outputs:
        tensors |= encode(column, to_column(made[column.name]))
    return tensors


def expect_equal(served, expected):
    assert served.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(served[name], array)
        assert served[name].dtype == array.dtype


def test_strings_lists_and_nulls(export, workflow, serve_alone):
    report = export()
    expect_equal(serve_alone(report, rows()), offline(report, workflow, rows()))


def test_all_pairs_of_dtypes_of_values_and_row_lengths(export, serve_alone):
    pairs = {f"{v}_{n}": (v, n) for v, n in product(("int32", "int64"), repeat=2)}
    lists = [[3, 1, 2], [], None, [1, 9], [9, None]]
    data = pl.DataFrame(
        dict.fromkeys(pairs, lists), schema_overrides=dict.fromkeys(pairs, pl.List(pl.Int64))
    )
    workflow = Workflow(list(pairs) >> ops.Categorify()).fit(data)
    inputs = {}
    for name, (values, nnzs) in pairs.items():
        for half, dtype in (("values", values), ("nnzs", nnzs)):
            inputs[f"{name}__{half}"] = keras.Input((1,), name=f"{name}__{half}", dtype=dtype)
    floats = {name: keras.ops.cast(tensor, "float32") for name, tensor in inputs.items()}
    lengths = [tensor for name, tensor in floats.items() if name.endswith("__nnzs")]
    # A request has any number of values for its rows.
    total = sum(keras.ops.sum(floats[name]) for name in floats if name.endswith("__values"))
    joint = keras.layers.Concatenate()(lengths) + 0.0 * total
    network = keras.Model(inputs, keras.layers.Dense(1, name="score")(joint))
    report = export(network, workflow, labels=[])
    served = serve_alone(report, data)
    expect_equal(served, offline(report, workflow, data))
    for name, (values, nnzs) in pairs.items():
        assert (served[f"{name}__values"].dtype, served[f"{name}__nnzs"].dtype) == (values, nnzs)


def test_the_dtype_of_an_output_is_what_was_assigned(export, serve_alone):
    """Assigned float16-like narrowing happens before the network's own cast, as in training."""
    workflow = Workflow(["price"] >> ops.FillMissing(0.1) >> ops.LambdaOp(lambda p: p / 3)).fit(
        rows()
    )
    workflow.output_dtypes["price"] = "float32"
    price = keras.Input((1,), name="price", dtype="float64")
    network = keras.Model(
        {"price": price}, keras.layers.Identity(dtype="float64", name="same")(price)
    )
    report = export(network, workflow, labels=[])
    served = serve_alone(report, rows())["price"].reshape(-1)
    made = workflow.transform(rows()).collect()["price"]
    assert made.dtype == pl.Float32
    assert served.dtype == np.float64
    np.testing.assert_array_equal(served, made.cast(pl.Float64).to_numpy())
