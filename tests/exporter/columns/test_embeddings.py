"""An embedding that has no room for all ids of its column is refused, wherever it is."""

import keras
import polars as pl
import pytest
import tensorflow as tf
from keras import layers as keras_layers

from exporter import ExportError, ServingOptions
from exporter.plan.runtime import RUNTIMES
from training import layers, models, save_model
from workflow import Workflow, get_embedding_sizes, ops

# Ids 0 to 22: padding, null, unseen, and 20 users; with genres one less.
USERS, GENRES = 23, 6


@pytest.fixture(scope="module")
def pipeline():
    data = pl.DataFrame(
        {
            "user": range(20),
            "genres": [["a", "b", "c"][: number % 4] for number in range(20)],
            "price": [float(number) for number in range(20)],
        }
    )
    workflow = Workflow((["user", "genres"] >> ops.Categorify()) + ["price"]).fit(data)
    single, multi = get_embedding_sizes(workflow)
    assert (single["user"][0], multi["genres"][0]) == (USERS, GENRES)
    return workflow


def user():
    return keras.Input((1,), name="user", dtype="int64")


def genres():
    return {
        f"genres__{half}": keras.Input((1,), name=f"genres__{half}", dtype="int64")
        for half in ("values", "nnzs")
    }


def score(given, x):
    return keras.Model(given, keras_layers.Dense(1, name="score")(x))


def directly(rows):
    given = user()
    return score(given, keras_layers.Flatten()(keras_layers.Embedding(rows, 4)(given)))


def through_a_cast_and_a_slice(rows):
    given = user()
    return score(given, keras_layers.Embedding(rows, 4)(keras.ops.cast(given, "int32")[:, 0]))


def in_a_layer_of_ones_own(rows):
    class Own(keras_layers.Layer):
        def __init__(self):
            super().__init__()
            self.table = keras_layers.Embedding(rows, 4)

        def call(self, ids):
            return self.table(tf.reshape(ids, [-1]))

        def compute_output_shape(self, _):
            return (None, 4)

    given = user()
    return score(given, Own()(given))


def with_an_offset(rows):
    given = user()
    return score(given, keras_layers.Flatten()(keras_layers.Embedding(rows + 5, 4)(given + 5)))


def in_a_collection(rows):
    given = user()
    return score(given, layers.EmbeddingCollection({"user": (rows, 4)})({"user": given})["user"])


def in_dense_features(rows):
    return models.mlp({"user": (rows, 4)}, ["price"], hidden=(4,), id_dtypes={"user": "int64"})


def in_wide_and_deep(rows):
    return models.wide_and_deep({"user": (rows, 4)}, ["price"], hidden=(4,))


def of_lists(rows):
    given = genres()
    places = {"genres__values", "genres__nnzs"}
    assert places == given.keys()

    class Mean(keras_layers.Layer):
        def call(self, inputs):
            values, lengths = inputs
            lengths = tf.reshape(lengths, [-1])
            count = tf.shape(lengths)[0]
            return tf.math.unsorted_segment_mean(values, tf.repeat(tf.range(count), lengths), count)

        def compute_output_shape(self, shapes):
            return (None, shapes[0][-1])

    vectors = keras_layers.Embedding(rows - USERS + GENRES, 4)(given["genres__values"][:, 0])
    return score(given, Mean()([vectors, given["genres__nnzs"]]))


def of_lists_in_a_bag(rows):
    given = genres()
    return score(given, layers.EmbeddingBag(rows - USERS + GENRES, 4)((*given.values(),)))


NETWORKS = [
    directly,
    through_a_cast_and_a_slice,
    in_a_layer_of_ones_own,
    with_an_offset,
    in_a_collection,
    in_dense_features,
    in_wide_and_deep,
    of_lists,
    of_lists_in_a_bag,
]


@pytest.mark.parametrize("make", NETWORKS)
def test_one_row_too_few_is_refused(make, export, pipeline, tmp_path):
    column, rows = ("genres", GENRES) if "lists" in make.__name__ else ("user", USERS)
    expected = (
        rf"Expected an embedding of {rows} rows or more for '{column}', whose ids are 0 to {rows - 1}\. "
        r"Received: .*get_embedding_sizes"
    )
    with pytest.raises(ExportError, match=expected):
        export(make(USERS - 1), pipeline, labels=[])
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("make", NETWORKS)
def test_just_enough_rows_are_enough(make, export, pipeline):
    assert export(make(USERS), pipeline, labels=[]).spare == ()


def test_a_table_of_another_workflow_is_named_in_the_report(export, pipeline):
    report = export(directly(USERS + 7), pipeline, labels=[])
    (text,) = report.spare
    assert text.startswith(f"user ({USERS} ids, {USERS + 7} rows in ")
    assert "trained with another workflow" in " ".join(str(report).split())


def test_the_layer_and_its_rows_are_named(export, pipeline):
    given = user()
    vectors = keras_layers.Embedding(7, 4, name="users")(given)
    network = score(given, keras_layers.Flatten()(vectors))
    with pytest.raises(ExportError, match="Received: layer 'users' with 7 rows"):
        export(network, pipeline, labels=[])


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_saved_model_shows_it_when_asked(runtime, export, pipeline, tmp_path):
    save_model(directly(USERS - 1), tmp_path / "saved")
    with pytest.raises(ExportError, match=rf"{USERS} rows or more for 'user'.*get_embedding_sizes"):
        export(tmp_path / "saved", pipeline, labels=[], serving=ServingOptions(runtime=runtime))


@pytest.mark.parametrize("bound", ["clip", "modulo"])
def test_a_network_that_bounds_its_ids_is_taken(bound, export, pipeline):
    given = user()
    ids = keras.ops.minimum(given, 9) if bound == "clip" else given % 10
    network = score(given, keras_layers.Flatten()(keras_layers.Embedding(10, 4)(ids)))
    report = export(network, pipeline, labels=[])
    # Rows with the last ids were answered, the network's table of 10 rows notwithstanding.
    assert "last values 1" in report.proof.rows
    assert report.spare == ()


@pytest.mark.parametrize("missing", [0, 1])
def test_a_column_named_as_the_values_of_a_list_has_its_own_ids(missing, export):
    data = {"user": range(20), "genre": ["a", "b"] * 10}
    user, genre = (
        [column] >> ops.Categorify() >> ops.Rename(name=name)
        for column, name in (("user", "it"), ("genre", "it__values"))
    )
    workflow = Workflow(user + genre).fit(pl.DataFrame(data))
    # Padding, null, unseen, and the values.
    rows = {"it": 3 + 20, "it__values": 3 + 2 - missing}
    given = {name: keras.Input((1,), name=name, dtype="int64") for name in rows}
    tables = [keras_layers.Embedding(rows[name], 4)(given[name]) for name in rows]
    network = score(given, keras_layers.Flatten()(keras_layers.Concatenate()(tables)))
    if missing:
        with pytest.raises(ExportError, match=r"5 rows or more for .it__values.,.* with 4 rows"):
            export(network, workflow, labels=[])
    else:
        assert export(network, workflow, labels=[]).spare == ()
