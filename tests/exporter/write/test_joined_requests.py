"""The exported preprocessing step answers many requests at once as it answers each alone."""

import importlib.util
import json
import sys
import tracemalloc
import types

import keras
import numpy as np
import polars as pl
import pytest
import run_alone
from small_export import rows

from exporter import ServingOptions
from workflow import Workflow, ops
from workflow.expressions.polars.series import to_column
from workflow.wire.format import encode

LIMITS = {"max_rows": 3, "max_list_length": 2, "max_string_bytes": 4}


@pytest.fixture
def open_step(monkeypatch):
    """Load an export's step; call it with tables, one for each request."""
    backend = types.ModuleType("triton_python_backend_utils")
    for name in ("Tensor", "TritonError", "InferenceResponse", "Logger"):
        setattr(backend, name, getattr(run_alone, name))
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backend)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def load(report):
        spec_of_file = importlib.util.spec_from_file_location
        spec = spec_of_file("exported_step", report.paths["movies_nvt"] / "model.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        model = module.TritonPythonModel()
        parameters = report.plan.steps[0].parameters.items()
        config = {"parameters": {name: {"string_value": value} for name, value in parameters}}
        model.initialize({"model_config": json.dumps(config)})
        columns = report.plan.pipeline.client_columns

        def ask(tables, spoil=()):
            requests = []
            for number, table in enumerate(tables):
                tensors = {}
                for column in columns:
                    tensors |= encode(column, to_column(table[column.name]))
                requests.append(run_alone.Request(tensors | dict(spoil).get(number, {})))
            return model.execute(requests)

        return ask

    yield load
    for name in [n for n in sys.modules if n.partition(".")[0] == "preprocess_runtime"]:
        del sys.modules[name]


@pytest.fixture
def step(export, open_step):
    """The step of an export with limits."""
    return open_step(export(serving=ServingOptions(max_batch_size=8, **LIMITS)))


def tensors_of(response):
    assert response.error is None, response.error.text
    return {tensor.name(): tensor.as_numpy() for tensor in response.tensors}


def same(one, other):
    """Equal tensors; padded ones up to the width that one needs less of."""
    for name, tensor in one.items():
        width = min(tensor.shape[1], other[name].shape[1])
        np.testing.assert_array_equal(tensor[:, :width], other[name][:, :width], name)


TABLES = [rows().head(2), rows().tail(1), rows().head(0), rows()[1:4], rows().head(1)]


@pytest.mark.parametrize("tables", [TABLES, [rows()[2:], rows()[3:]]], ids=["some", "with null"])
def test_together_as_alone(tables, step, capsys):
    capsys.readouterr()
    together = [tensors_of(response) for response in step(tables)]
    assert "one by one" not in capsys.readouterr().out
    for table, answer in zip(tables, together, strict=True):
        (alone,) = step([table])
        same(answer, tensors_of(alone))
        assert {len(tensor) for tensor in answer.values()} == {table.height}


def test_a_bad_request_fails_alone(step):
    wrong = {"genres__nnzs": np.array([[1], [-1]])}
    answers = step(TABLES, {0: wrong}.items())
    assert answers[0].error.code == "invalid"
    assert answers[0].error.text.endswith("genres cannot be read.")
    for table, answer in zip(TABLES[1:], answers[1:], strict=True):
        same(tensors_of(answer), tensors_of(step([table])[0]))


@pytest.mark.parametrize(
    "wrong",
    [
        np.array([[1, 2]]),
        np.array([1]),
        np.array(1),
        np.array([[1], [2]]),
        np.array([[1]], "int32"),
    ],
    ids=["two columns", "one dimension", "no dimension", "more rows", "another dtype"],
)
def test_a_request_of_single_values_that_is_not_as_described_fails_alone(wrong, export, open_step):
    table = pl.DataFrame({"a": [5, 6], "b": [7, 8]})
    inputs = [keras.Input((1,), name=name, dtype="int64") for name in ("a", "b")]
    total = keras.layers.Add(name="total")([keras.ops.cast(t, "float32") for t in inputs])
    workflow = Workflow(["a", "b"] >> ops.Categorify()).fit(table)
    options = ServingOptions(max_batch_size=8)
    report = export(keras.Model(inputs, total), workflow, labels=[], serving=options)
    step = open_step(report)
    answers = step([table[:1], table[1:], table], {1: {"b": wrong}}.items())
    assert answers[1].error.code == "invalid"
    assert "does not fit the model's inputs" in answers[1].error.text
    same(tensors_of(answers[0]), tensors_of(step([table[:1]])[0]))
    same(tensors_of(answers[2]), tensors_of(step([table])[0]))


BEYOND = {
    "more than 3 rows": pl.concat([rows().head(2)] * 2),
    "genres has a list of more than 2": rows()[:1].with_columns(genres=pl.lit(["a"] * 3)),
    "genres has a string of more than 4 bytes": rows()[:1].with_columns(genres=pl.lit(["äöü"])),
}


@pytest.mark.parametrize("reason", BEYOND)
def test_beyond_a_limit_a_request_is_refused_and_the_others_are_not(reason, step):
    answers = step([TABLES[0], BEYOND[reason], TABLES[1]])
    assert answers[1].error.code == "invalid"
    assert reason in answers[1].error.text
    same(tensors_of(answers[0]), tensors_of(step([TABLES[0]])[0]))
    same(tensors_of(answers[2]), tensors_of(step([TABLES[1]])[0]))


def test_lists_of_very_different_lengths_are_laid_out_apart(export, open_step):
    step = open_step(export(serving=ServingOptions(max_batch_size=16_384)))
    long = rows()[:1].with_columns(genres=pl.lit(["a", "b"] * 2_048))
    tables = [pl.concat([rows()] * 4_000), long]
    tracemalloc.start()
    try:
        answers = step(tables)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100e6  # as rows of one width they would be 524 MB
    for table, answer in zip(tables, answers, strict=True):
        same(tensors_of(answer), tensors_of(step([table])[0]))
