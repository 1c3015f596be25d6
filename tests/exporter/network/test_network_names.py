"""Networks whose inputs are not named as the workflow's columns, or as nothing can be named."""

import json

import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf
from small_export import configs

from exporter import ExportError, ServingOptions
from exporter.plan.runtime import RUNTIMES
from serving import EnsembleClient, TritonServer, check_parity
from training import layers, save_model
from workflow import Workflow, get_embedding_sizes, ops

ROWS = pl.DataFrame(
    {
        "name": ["a", "b", None, "c", "a"],
        "genres": [["x"], [], ["y", "x"], None, ["z"]],
        "total": [1.0, -2.0, 3.5, None, 0.0],
    }
)
COLUMNS = {"name-cat": "name", "tags": "genres", "x-sum": "total"}
RESOLVED = {
    "name-cat": "name",
    "tags__values": "genres__values",
    "tags__nnzs": "genres__nnzs",
    "x-sum": "total",
}


@pytest.fixture(scope="module")
def pipeline():
    ids = ["name", "genres"] >> ops.Categorify()
    return Workflow(ids + (["total"] >> ops.FillMissing(0.5))).fit(ROWS)


@pytest.fixture(scope="module")
def network(pipeline):
    return make_network(pipeline)


def make_network(pipeline, name="name-cat", tags="tags", total="x-sum", rows=None):
    keras.utils.set_random_seed(0)
    single, lists = get_embedding_sizes(pipeline)
    ids = keras.Input((1,), name=name, dtype="int64")
    genres = tuple(
        keras.Input((1,), name=f"{tags}{half}", dtype="int64") for half in ("__values", "__nnzs")
    )
    number = keras.Input((1,), name=total)
    sizes = {name: (rows or single["name"][0], 4), tags: (lists["genres"][0], 4)}
    hidden = layers.DenseFeatures(sizes, [total], embeddings_initializer="normal")(
        {name: ids, tags: genres, total: number}
    )
    output = keras.layers.Dense(1, "sigmoid", name="output")(hidden)
    return keras.Model([ids, genres, number], output)


def test_without_columns_the_error_names_the_cure(pipeline, network, export, tmp_path):
    cure = r"'name-cat'.*ServingOptions\(columns=\{'name-cat': <column of the workflow>\}\)"
    with pytest.raises(ExportError, match=cure):
        export(network, pipeline, labels=[])
    plain = make_network(pipeline, "who", "kinds", "sum")
    with pytest.raises(ExportError, match=r"'who'.*ServingOptions\(columns=\{input: column\}\)"):
        export(plain, pipeline, labels=[])
    assert not (tmp_path / "models").exists()


def test_a_column_of_a_name_that_no_input_can_have_is_to_be_renamed(export, tmp_path):
    """It said to export with columns={'price.usd': ...}, which is no input of the network."""
    network = keras.Sequential([keras.Input((1,), name="price"), keras.layers.Dense(1, name="y")])
    workflow = Workflow(["price.usd"]).fit({"price.usd": [1.0, 2.0]})
    serving = ServingOptions(columns={"price": "price.usd"})
    message = r"'price\.usd'\. Give the column that feeds 'price' such a name with ops\.Rename"
    with pytest.raises(ExportError, match=message):
        export(network, workflow, labels=[], serving=serving)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_client_sends_the_columns_of_the_workflow(runtime, pipeline, network, export):
    report = export(
        network, pipeline, labels=[], serving=ServingOptions(runtime=runtime, columns=COLUMNS)
    )
    assert [column.name for column in report.plan.features.inputs] == list(ROWS.columns)
    assert report.plan.pipeline.options.columns == RESOLVED
    assert "name as name-cat" in str(report)
    published = configs(report)["movies"].parameters["network_columns"].string_value
    assert json.loads(published) == RESOLVED


@pytest.mark.long
def test_they_are_served_as_the_network_answers(pipeline, network, export, tmp_path):
    saved = tmp_path / "saved"
    save_model(make_network(pipeline, "who", "kinds", "sum"), saved)
    of_saved = {"who": "name", "kinds": "genres", "sum": "total"}
    cases = {}
    for runtime in RUNTIMES:
        for kind, model, columns, batch in (
            ("keras", network, COLUMNS, 8),
            ("saved", saved, of_saved, 0),
        ):
            options = ServingOptions(runtime=runtime, columns=columns, max_batch_size=batch)
            name = f"{kind}_{runtime}"
            export(model, pipeline, labels=[], name=name, serving=options)
            cases[name] = model
    with TritonServer(tmp_path / "models") as server:
        for name, model in cases.items():
            with EnsembleClient(server.grpc_url, name) as client:
                report = check_parity(client, pipeline, model, ROWS)
                assert report.passed, f"\n{report}"


def test_the_network_in_plain_python_takes_the_columns(pipeline, network, export):
    report = export(network, pipeline, labels=[], serving=ServingOptions(columns=COLUMNS))
    loaded = tf.saved_model.load(str(report.paths["movies_tf"] / "model.savedmodel"))
    given = {
        "name": tf.constant([[3], [4]], tf.int64),
        "genres__values": tf.constant([[3], [4], [5]], tf.int64),
        "genres__nnzs": tf.constant([[1], [2]], tf.int64),
        "total": tf.constant([[1.0], [2.0]]),
    }
    ((_, received),) = loaded.signatures["serving_default"](**given).items()
    genres = given["genres__values"], given["genres__nnzs"]
    expected = network.predict_on_batch([given["name"], genres, given["total"]])
    np.testing.assert_array_equal(received, expected)


def test_two_columns_change_places(export):
    """An input has the name of the column that another input takes."""
    data = pl.DataFrame({"a": [1.0, 2.0], "b": [10.0, 20.0]})
    inputs = [keras.Input((1,), name=name, dtype="float64") for name in ("a", "b")]
    difference = keras.layers.Subtract(name="d", dtype="float64")(inputs)
    other = Workflow(["a", "b"]).fit(data)
    options = ServingOptions(columns={"a": "b", "b": "a"})
    report = export(keras.Model(inputs, difference), other, labels=[], serving=options)
    loaded = tf.saved_model.load(str(report.paths["movies_tf"] / "model.savedmodel"))
    given = {name: tf.constant(data[name].to_numpy().reshape(-1, 1)) for name in data.columns}
    ((_, received),) = loaded.signatures["serving_default"](**given).items()
    np.testing.assert_array_equal(received, [[9.0], [18.0]])


@pytest.mark.filterwarnings("ignore:When providing")
@pytest.mark.parametrize("halves", [[""], ["__values", "__nnzs"]], ids=["number", "list"])
def test_an_input_under_the_key_of_another_column_is_refused(halves, export, tmp_path):
    """Trained on "home", it was served with "away", and the proof and parity took both by the name."""
    values = [[1.0], [2.0, 3.0]] if len(halves) > 1 else [1.0, 2.0]
    columns = {"home": values, "away": values[::-1]}
    workflow = Workflow([*columns] >> ops.LambdaOp(lambda column: column.cast("int64"))).fit(
        columns
    )
    given = [keras.Input((1,), name=f"away{half}", dtype="int64") for half in halves]
    given = {"home": tuple(given) if len(halves) > 1 else given[0]}
    model = keras.Model(
        given, keras.layers.Dense(1, name="y")(layers.EmbeddingBag(9, 2)(given["home"]))
    )
    message = r"Received: the input 'away\w*' under the key 'home'.* makes both.*name='home'"
    with pytest.raises(ExportError, match=message):
        export(model, workflow, labels=[])
    assert not (tmp_path / "models").exists()
    report = export(model, workflow, labels=[], serving=ServingOptions(columns={"away": "home"}))
    assert [column.name for column in report.plan.features.inputs] == ["home"]
    only_away = workflow.remove_inputs(["home"])  # renamed on the way to Keras
    report = export(model, only_away, labels=[], name="renamed")
    assert [column.name for column in report.plan.features.inputs] == ["away"]


def test_a_table_too_small_is_found_by_its_column(pipeline, export):
    small = make_network(pipeline, rows=4)
    with pytest.raises(ExportError, match="6 rows or more for 'name'"):
        export(small, pipeline, labels=[], serving=ServingOptions(columns=COLUMNS))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"nobody": "name"}, r"The inputs are name-cat.*'nobody', which is not an input"),
        (COLUMNS | {"x-sum": "name"}, "name feeds two inputs.*ops.Rename"),
        (COLUMNS | {"x-sum": "absent"}, "takes 'absent', which the workflow does not make"),
        (COLUMNS | {"x-sum": "a-b"}, "'a-b'.*ops.Rename"),
    ],
)
def test_columns_that_do_not_fit(columns, message, pipeline, network, export, tmp_path):
    with pytest.raises(ExportError, match=message):
        export(network, pipeline, labels=[], serving=ServingOptions(columns=columns))
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("columns", [["name"], {"x": 1}, "name"])
def test_columns_of_another_form(columns):
    with pytest.raises(ExportError, match="input of the network -> column of the workflow"):
        ServingOptions(columns=columns)
