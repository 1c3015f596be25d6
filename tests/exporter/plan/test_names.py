"""Names of tensors: kept to the letter, or refused."""

import re

import keras
import onnx
import polars as pl
import pytest
from small_export import rows

from exporter import ExportError, ServingOptions
from exporter.plan.runtime import RUNTIMES
from exporter.report.ensemble_drawing import EnsembleDrawing
from training import models
from workflow import Workflow, ops


def mixed_case():
    """Names that differ from their lower case, and an output's name of two words."""
    data = {"userID": [1.0, 2.0], "Price": [1.0, 2.0]}
    # Of two dtypes, since tensors of one are packed.
    dtypes = {"userID": "float64", "Price": "float32"}
    inputs = {name: keras.Input((1,), name=name, dtype=dtype) for name, dtype in dtypes.items()}
    joined = keras.layers.Concatenate()([keras.ops.cast(t, "float32") for t in inputs.values()])
    network = keras.Model(inputs, {"TheScore": keras.layers.Dense(1)(joined)})
    return network, Workflow(list(data)).fit(data)


@pytest.mark.parametrize("runtime", ["onnx", "fused_onnx"])
def test_names_are_kept_to_the_letter(runtime, export):
    report = export(*mixed_case(), labels=[], serving=ServingOptions(runtime=runtime))
    name = "movies_onnx" if runtime == "onnx" else "movies"
    model = onnx.load(report.paths[name] / "model.onnx")
    assert {tensor.name for tensor in model.graph.input} == {"userID", "Price"}
    assert [tensor.name for tensor in model.graph.output] == ["TheScore"]


def test_a_column_that_a_saved_model_would_rename_is_refused(export, tmp_path):
    data = {"user-id": [1.0, 2.0]}
    doubled = (["user-id"] >> ops.LambdaOp(lambda x: x * 2)) >> ops.Rename(name="x")
    network = keras.Model(
        {"x": (x := keras.Input((1,), name="x", dtype="float64"))},
        {"y": keras.layers.Identity(dtype="float64")(x)},
    )
    pipeline = Workflow(doubled).fit(data)
    with pytest.raises(ExportError, match=r"TensorFlow renames .*user-id.*or one of ONNX"):
        export(network, pipeline, labels=[], serving=ServingOptions(runtime="fused_tensorflow"))
    assert not (tmp_path / "models").exists()
    export(network, pipeline, labels=[], serving=ServingOptions(runtime="fused_onnx"))


def test_a_column_named_as_a_tensor_between_the_steps(export):
    data = {name: [1.0, 2.0] for name in ("a", "a_nvt", "a_nvt_")}
    inputs = {name: keras.Input((1,), name=name, dtype="float64") for name in data}
    network = keras.Model(inputs, {"y": keras.layers.Add(dtype="float64")([*inputs.values()])})
    options = ServingOptions(runtime="tensorflow", pack=False)
    report = export(network, Workflow([*data]).fit(data), labels=[], serving=options)
    between = report.plan.published.steps[1].inputs
    assert between.keys() == data.keys()
    assert len({*between.values(), *data}) == 6


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_an_output_named_as_an_input_is_refused(runtime, export, tmp_path):
    price = keras.Input((1,), name="price", dtype="float64")
    network = keras.Model(
        {"price": price}, {"price": keras.layers.Identity(dtype="float64")(price)}
    )
    with pytest.raises(ExportError, match=r"'price' is made twice.*Give one of them another name"):
        export(
            network,
            Workflow(["price"]).fit(rows()),
            labels=[],
            serving=ServingOptions(runtime=runtime),
        )
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("serving", [{}, {"max_batch_size": 8}], ids=["alone", "joined"])
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    ("name", "other"), [("n__nnzs", "n__values"), ("n__nnzs", "n"), ("tags__values", "tags")]
)
def test_numbers_that_servers_would_take_for_a_half_of_a_list_are_refused(
    name, other, runtime, serving, export, tmp_path
):
    data = {name: [1, 2], other: [[1], [2, 3]] if other == "tags" else [3, 4]}
    pipeline = Workflow(list(data) >> ops.Categorify() >> ops.Rename(f=renamed)).fit(data)
    network = models.mlp(pipeline.output_schema, hidden=(2,))
    with pytest.raises(ExportError, match=f"'{other}' and '{name}'. Rename '{name}' in the data"):
        export(network, pipeline, labels=[], serving=ServingOptions(runtime=runtime, **serving))
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_column_with_a_nul_in_its_name_is_refused(runtime, export, tmp_path):
    pipeline = Workflow(["a\0b"] >> ops.Categorify() >> ops.Rename(name="x")).fit({"a\0b": [1, 2]})
    network = models.mlp(pipeline.output_schema, hidden=(2,))
    with pytest.raises(ExportError, match=r"without a NUL.*Received: 'a\\x00b'\. Rename it in the"):
        export(network, pipeline, labels=[], serving=ServingOptions(runtime=runtime))
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_column_without_a_name_is_refused(runtime, export, tmp_path):
    """As Polars names the index that pandas writes into a CSV file."""
    data = pl.read_csv(b",price\n0,1.5\n1,2.5\n")
    assert data.columns == ["", "price"]
    pipeline = Workflow([""] >> ops.Categorify() >> ops.Rename(name="place")).fit(data)
    network = models.mlp(pipeline.output_schema, hidden=(2,))
    with pytest.raises(
        ExportError, match=r"a name for each column.*Received: ''.*Rename it in the"
    ):
        export(network, pipeline, labels=[], serving=ServingOptions(runtime=runtime))
    assert not (tmp_path / "models").exists()


def test_numbers_named_as_values_of_lists_are_shown_with_a_row_each(export):
    data = {"seen__values": [1, 2], "tags": [[1], [2, 3]]}
    pipeline = Workflow(list(data) >> ops.Categorify() >> ops.Rename(f=renamed)).fit(data)
    network = models.mlp(pipeline.output_schema, hidden=(2,))
    report = export(network, pipeline, labels=[], serving=ServingOptions(runtime="fused_onnx"))
    pattern = r"seen__values:? +int64 ?\[N, 1\][\s\S]*tags__values:? +int64 ?\[V, 1\]"
    assert re.search(pattern, str(report))
    assert re.search(pattern, EnsembleDrawing.of_plan(report.plan).to_svg())


def renamed(name):
    """A name that no list has."""
    return "of_" + name.replace("__", "_")
