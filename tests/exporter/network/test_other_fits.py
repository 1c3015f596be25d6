"""A network that was trained on the features of one fit is not served with those of another one.

Both fits have vocabularies of equal sizes, so that nothing in the network's shape tells them apart.
"""

import json
import shutil

import keras
import numpy as np
import onnx
import polars as pl
import pytest
import tensorflow as tf
from ensemble_command import ensemble
from onnx import TensorProto, helper

from exporter import ExportError, NearestItems, ServingOptions, export_ensemble
from loader import KerasSequenceLoader, LoaderError
from training import TrainingError, layers, models, save_model, train
from training.retrieval import tower, write_item_vectors
from workflow import Workflow, get_embedding_sizes, ops

ROWS = 200


def clicks(users, seed=0):
    random = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "user": random.choice(users, ROWS),
            "age": random.normal(40, 9, ROWS),
            "label": random.integers(0, 2, ROWS).astype("int8"),
        }
    )


def fit(frame):
    ids = ["user"] >> ops.Categorify(dtype="int32")
    ages = ["age"] >> ops.Normalize(out_dtype="float32")
    return Workflow(ids + ages + "label").fit(frame)


@pytest.fixture(scope="module")
def first():
    return fit(clicks(["a", "b", "c", "d"]))


@pytest.fixture(scope="module")
def second():
    return fit(clicks(["w", "x", "y", "z"], seed=1))


@pytest.fixture(scope="module")
def data(first, second, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    first.transform_to_parquet(clicks(["a", "b", "c", "d"]), folder / "first")
    second.transform_to_parquet(clicks(["w", "x", "y", "z"], seed=1), folder / "second")
    return folder


def load(folder):
    return KerasSequenceLoader(folder, batch_size=50, label_names=["label"])


@pytest.fixture(scope="module")
def model(first, data):
    made = models.mlp(first.output_schema, hidden=(4,))
    train(made, load(data / "first"))
    return made


def export(network, workflow, folder, **options):
    return export_ensemble(
        network, workflow, "clicks", folder, ["label"], serving=ServingOptions(**options)
    )


def saved(model, kind, folder):
    if kind == "keras":
        model.save(folder / "model.keras")
        return folder / "model.keras"
    if kind == "savedmodel":
        save_model(model, folder / "model")
        return folder / "model"
    return model


@pytest.mark.parametrize(
    "kind", ["in memory", pytest.param("keras", marks=pytest.mark.long), "savedmodel"]
)
def test_an_export_takes_the_fit_of_the_training_alone(kind, model, first, second, tmp_path):
    network = saved(model, kind, tmp_path)
    with pytest.raises(ExportError, match=r"of another fit, in which ids or numbers of age, user"):
        export(network, second, tmp_path / "models")
    assert not (tmp_path / "models" / "clicks").exists()
    report = export(network, first, tmp_path / "models")
    assert "other_fit" not in str(report)
    again = fit(clicks(["a", "b", "c", "d"])[::-1])
    export(network, again, tmp_path / "models")
    text = " ".join(str(export(network, second, tmp_path / "models", other_fit=True)).split())
    assert "other_fit on" in text


def test_a_network_with_one_column_of_another_fit_is_refused(data, tmp_path):
    """Ids of one fit, and numbers of another one."""
    user = keras.Input((1,), name="user", dtype="int32")
    age = keras.Input((1,), name="age", dtype="float32")
    vector = layers.EmbeddingCollection({"user": (8, 4)})({"user": user})["user"]
    output = keras.layers.Dense(1, "sigmoid", name="output")(
        keras.layers.Concatenate()([vector, age])
    )
    made = keras.Model({"user": user, "age": age}, output)
    train(made, load(data / "first"))
    ages = ["age"] >> ops.Normalize(out_dtype="float32")
    mixed = Workflow((["user"] >> ops.Categorify(dtype="int32")) + ages + "label")
    frame = clicks(["a", "b", "c", "d"]).with_columns(pl.col("age") * 2)
    with pytest.raises(ExportError, match="ids or numbers of age mean something"):
        export(made, mixed.fit(frame), tmp_path / "models")


def test_training_goes_on_with_the_same_fit_alone(model, data):
    train(model, load(data / "first"))
    with pytest.raises(TrainingError, match="in which another fit has made age, user: equal ids"):
        train(model, load(data / "second"))
    with pytest.raises(TrainingError, match="another fit has made age, user"):
        train(model, load(data / "first"), load(data / "second"))


def test_data_of_another_fit_is_reported_before_tables_that_are_too_small_for_it(
    model, data, tmp_path
):
    """A larger table, which the other error advises, would train on ids with other meanings."""
    rows = clicks([f"user {number}" for number in range(40)], seed=2)
    larger = fit(rows)
    larger.transform_to_parquet(rows, tmp_path / "larger")
    for given in ([load(tmp_path / "larger")], [load(data / "first"), load(tmp_path / "larger")]):
        with pytest.raises(TrainingError, match="in which another fit has made age, user: equal"):
            train(model, *given)
    with pytest.raises(ExportError, match="of another fit, in which ids or numbers of age, user"):
        export(model, larger, tmp_path / "models")


def test_a_checkpoint_is_not_resumed_on_another_fit(first, data, tmp_path):
    """A new model records nothing yet: the checkpoint does."""

    def resumed(folder, epochs):
        made = models.mlp(get_embedding_sizes(first), ["age"], hidden=(4,))
        return train(made, load(data / folder), epochs=epochs, checkpoint=tmp_path / "run")

    resumed("first", 1)
    for epochs in (1, 2):
        with pytest.raises(
            LoaderError, match="another fit of a workflow has made user, age: equal"
        ):
            resumed("second", epochs)
    assert resumed("first", 1).samples == 0
    assert resumed("first", 2).samples == ROWS


def ids_alone(folder):
    return KerasSequenceLoader(
        folder, batch_size=50, label_names=["label"], cat_names=["user"], cont_names=[]
    )


@pytest.mark.parametrize("inputs", [dict, pytest.param(list, marks=pytest.mark.long)])
def test_a_network_of_keras_own_layers_is_tied_until_its_file_is_read(
    inputs, first, second, data, tmp_path
):
    """A `.keras` file has no place for it, a SavedModel of `save_model` has."""
    user = keras.Input((1,), name="user", dtype="int32")
    vectors = keras.layers.Flatten()(keras.layers.Embedding(8, 4)(user))
    output = keras.layers.Dense(1, "sigmoid", name="output")(vectors)
    made = keras.Model({"user": user} if inputs is dict else [user], output)
    train(made, ids_alone(data / "first"))
    for network in (made, saved(made, "savedmodel", tmp_path)):
        with pytest.raises(ExportError, match="of another fit, in which ids or numbers of user"):
            export(network, second.remove_inputs("age"), tmp_path / "models")
    with pytest.raises(TrainingError, match="another fit has made user"):
        train(made, ids_alone(data / "second"))
    for workflow in (first, second):
        read = saved(made, "keras", tmp_path)
        export(read, workflow.remove_inputs("age"), tmp_path / "models")


def of_ids(seed):
    """A network of Keras' own layers."""
    keras.utils.set_random_seed(seed)
    user = keras.Input((1,), name="user", dtype="int32")
    vectors = keras.layers.Flatten()(keras.layers.Embedding(8, 4)(user))
    return keras.Model({"user": user}, keras.layers.Dense(1, "sigmoid")(vectors))


def of_tables(seed):
    keras.utils.set_random_seed(seed)
    return models.mlp({"user": (8, 4)}, [], hidden=(4,))


@pytest.mark.parametrize("make", [of_ids, pytest.param(of_tables, marks=pytest.mark.long)])
def test_a_mean_of_networks_is_tied_to_the_fit_of_all(make, first, second, data, tmp_path):
    """A mean of networks of two fits, as of folds that were fitted apart, has no workflow."""

    def mean(*folders):
        parts = []
        for seed, folder in enumerate(folders):
            parts.append(make(seed))
            parts[-1].name = f"part_{seed}"
            train(parts[-1], ids_alone(data / folder))
        user = keras.Input((1,), name="user", dtype="int32")
        outputs = [part({"user": user}) for part in parts]
        return keras.Model({"user": user}, keras.layers.Average(name="output")(outputs))

    one, two = first.remove_inputs("age"), second.remove_inputs("age")
    alike, mixed = mean("first", "first"), mean("first", "second")
    export(alike, one, tmp_path / "models")
    for network, workflow in ((alike, two), (mixed, one), (mixed, two)):
        with pytest.raises(ExportError, match="of another fit, in which ids or numbers of user"):
            export(network, workflow, tmp_path / "models")
    with pytest.raises(TrainingError, match="another fit has made user"):
        train(mixed, ids_alone(data / "second"))


@pytest.mark.parametrize("make", [of_ids, of_tables])
def test_a_network_that_goes_on_from_a_trained_one_is_tied(make, first, second, data, tmp_path):
    """A calibration, and the record that is removed."""
    trained = make(0)
    train(trained, ids_alone(data / "first"))
    further = keras.Model(trained.input, keras.layers.Rescaling(0.5)(trained.output))
    one, two = first.remove_inputs("age"), second.remove_inputs("age")
    export(further, one, tmp_path / "models")
    with pytest.raises(ExportError, match="of another fit, in which ids or numbers of user"):
        export(further, two, tmp_path / "models")
    for part in (trained, *trained.layers):
        part.fit_digests = part.fits = {}
    train(trained, ids_alone(data / "second"))
    export(further, two, tmp_path / "models")


def test_rows_with_weights_tie_too(first, second, data, tmp_path):
    """A loader's `map` leaves the features what they are."""

    def weighted(folder):
        return ids_alone(data / folder).map(lambda x, y: (x, y, tf.ones_like(y) * 2))

    made = of_tables(0)
    train(made, weighted("first"), weighted("first").take(1))
    export(made, first.remove_inputs("age"), tmp_path / "models")
    with pytest.raises(ExportError, match="of another fit, in which ids or numbers of user"):
        export(made, second.remove_inputs("age"), tmp_path / "models")
    for given in ([weighted("second")], [weighted("first"), weighted("second")]):
        with pytest.raises(TrainingError, match="another fit has made user"):
            train(made, *given)


def test_a_model_of_a_schema_is_tied_before_its_training(first, second, data, tmp_path):
    """Keras' own `fit` records nothing."""
    made = models.mlp(first.output_schema, hidden=(4,))
    made.compile("sgd", "binary_crossentropy")
    made.fit(load(data / "first"), verbose=0, shuffle=False)
    with pytest.raises(ExportError, match="ids or numbers of age, user mean something else"):
        export(made, second, tmp_path / "models")
    with pytest.raises(TrainingError, match="another fit has made age, user"):
        train(made, load(data / "second"))


def test_the_record_can_be_removed(second, data, tmp_path):
    """An empty record admits features that are known to mean the same."""
    made = models.mlp(second.output_schema, hidden=(4,))
    for fits in ([1], {"user": 1}, "user"):
        with pytest.raises(TrainingError, match="Expected fits as a dictionary of column ->"):
            made.get_layer("features").fits = fits
    made.get_layer("features").fits = {}
    train(made, load(data / "first"))
    with pytest.raises(ExportError, match="ids or numbers of age, user"):
        export(made, second, tmp_path / "models")


def test_numbers_that_were_normalized_in_training_alone(model, tmp_path):
    """A workflow that passes a column on as it is has learnt nothing on its way."""
    ids = ["user"] >> ops.Categorify(dtype="int32")
    raw = ["age"] >> ops.LambdaOp(lambda age: age.cast("float32"))
    same_ids = Workflow(ids + raw + "label").fit(clicks(["a", "b", "c", "d"]))
    with pytest.raises(ExportError, match="ids or numbers of age mean something else"):
        export(model, same_ids, tmp_path / "models")


def test_a_run_that_never_began_ties_the_model_to_nothing(data):
    made = models.mlp({"user": (8, 4)}, ["age"], hidden=(4,))
    with pytest.raises(TrainingError, match="Expected checkpoint as a folder"):
        train(made, load(data / "first"), checkpoint=data / "first" / "_schema.json")
    train(made, load(data / "second"))


def test_an_onnx_network_may_say_its_fits(first, second, tmp_path):
    given = helper.make_tensor_value_info("age", TensorProto.FLOAT, ["N", 1])
    made = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["N", 1])
    graph = helper.make_graph(
        [helper.make_node("Identity", ["age"], ["output"])], "g", [given], [made]
    )
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    fits = {"age": first.output_schema["age"].properties["fit_digest"]}
    helper.set_model_props(network, {"fit_digests": json.dumps(fits)})
    onnx.save(network, str(tmp_path / "network.onnx"))
    export(tmp_path / "network.onnx", first.remove_inputs("user"), tmp_path / "models")
    with pytest.raises(ExportError, match="ids or numbers of age mean something"):
        export(tmp_path / "network.onnx", second.remove_inputs("user"), tmp_path / "models")
    helper.set_model_props(network, {"fit_digests": "[1]"})
    with pytest.raises(ExportError, match="Expected a JSON object of the fit's digest by column"):
        export(network, first.remove_inputs("user"), tmp_path / "models")


def test_items_of_another_fit_are_refused(tmp_path):
    frame = pl.DataFrame({"user": [1, 2, 3, 4] * 9, "item": [5, 6, 7, 8] * 9, "label": [1] * 36})

    def make(data):
        return Workflow((["user", "item"] >> ops.Categorify(dtype="int32")) + "label").fit(data)

    workflow = make(frame)
    other = make(frame.with_columns(pl.col("item") + 1))
    workflow.transform_to_parquet(frame, tmp_path / "data")
    sizes = workflow.output_schema.select(["user", "item"])
    model = models.two_tower(sizes, query=["user"], candidate=["item"])
    loader = KerasSequenceLoader(tmp_path / "data", batch_size=9, label_names=["label"])
    train(model, loader, loss="binary_crossentropy")
    items = frame.select("item").unique()
    with pytest.raises(
        TrainingError,
        match="one of another fit, in which ids or numbers of item mean something else",
    ):
        write_item_vectors(model, other, items, tmp_path / "items.parquet", id="item")
    write_item_vectors(model, workflow, items, tmp_path / "items.parquet", id="item")

    def nearest(pipeline):
        network = NearestItems(tower(model, "query"), tmp_path / "items.parquet", 2)
        export_ensemble(network, pipeline, "items", tmp_path / "models", ["label", "item"])

    nearest(workflow)
    # The query's features are the same: only the vectors of the items are stale.
    with pytest.raises(ExportError, match="ids or numbers of item mean something else"):
        nearest(other)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("in memory", marks=pytest.mark.long),
        "keras",
        pytest.param("savedmodel", marks=pytest.mark.long),
    ],
)
def test_items_of_another_training_are_refused(kind, tmp_path):
    """The widths are equal, and so is the fit."""
    frame = pl.DataFrame({"user": [1, 2, 3, 4] * 9, "item": [5, 6, 7, 8] * 9, "label": [1] * 36})
    ids = ["user", "item"] >> ops.Categorify(dtype="int32")
    workflow = Workflow(ids + "label").fit(frame)
    workflow.transform_to_parquet(frame, tmp_path / "data")
    model = models.two_tower(workflow.output_schema, query=["user"], candidate=["item"])
    items = frame.select("item").unique()
    write_item_vectors(model, workflow, items, tmp_path / "items.parquet", id="item")

    def nearest(**options):
        network = saved(tower(model, "query"), kind, tmp_path)
        found = NearestItems(network, tmp_path / "items.parquet", 2)
        served = workflow.remove_inputs("item")
        return export_ensemble(
            found,
            served,
            "items",
            tmp_path / "models",
            ["label"],
            serving=ServingOptions(**options),
        )

    nearest()
    loader = KerasSequenceLoader(tmp_path / "data", batch_size=9, label_names=["label"])
    train(model, loader, loss="binary_crossentropy")
    if kind == "savedmodel":
        shutil.rmtree(tmp_path / "model")
    with pytest.raises(ExportError, match="vectors of another training"):
        nearest()
    if kind == "savedmodel":
        shutil.rmtree(tmp_path / "model")
    nearest(other_fit=True)


def test_in_a_shell(model, second, data, tmp_path):
    second.save(tmp_path / "workflow")
    model.save(tmp_path / "model.keras")
    names = [f"--workflow={tmp_path / 'workflow'}", f"--model={tmp_path / 'model.keras'}"]
    places = [
        f"--repository={tmp_path / 'models'}",
        "--label=label",
        "--no-html",
        "--prove=process",
    ]
    command = ["export", "clicks", *names, *places]
    refused = ensemble(*command)
    assert refused.exit_code == 1
    assert "in which ids or numbers of age, user mean something else" in refused.stderr
    assert ensemble(*command, "--option=other_fit=True").exit_code == 0
    output = f"--output={tmp_path / 'new.keras'}"
    refused = ensemble("train", str(data / "first"), names[0], output, "--label=label")
    assert refused.exit_code == 1
    assert "column 'user' differs: another fit has made it" in refused.stderr
