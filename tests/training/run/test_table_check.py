"""An embedding that is smaller than its column has ids is refused before the first step."""

import keras
import numpy as np
import polars as pl
import pytest
from keras import layers as keras_layers

from loader import KerasSequenceLoader
from training import TrainingError, layers, models, train
from workflow import Workflow, ops

# Ids 0 to 22: padding, null, unseen, and 20 users; of the three tags 0 to 5.
USERS, TAGS = 23, 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rows = range(20)
    data = pl.DataFrame(
        {
            "user": rows,
            "tags": [["a", "b", "c"][: row % 4] for row in rows],
            "late": [float(row % 2) for row in rows],
        }
    )
    target = tmp_path_factory.mktemp("rows")
    workflow = Workflow((["user", "tags"] >> ops.Categorify()) + ["late"]).fit(data)
    workflow.transform_to_parquet(data, target)
    return target


def loaded(folder, *names):
    return KerasSequenceLoader(folder, 5, label_names=["late"], cat_names=[*names], shuffle=False)


def user():
    return keras.Input((1,), name="user", dtype="int64")


def directly(rows):
    given = user()
    vectors = keras_layers.Embedding(rows, 4, name="users")(keras.ops.cast(given, "int32")[:, 0])
    return keras.Model({"user": given}, keras_layers.Dense(1)(vectors))


def in_a_collection(rows):
    given = user()
    vectors = layers.EmbeddingCollection({"user": (rows, 4)})({"user": given})["user"]
    return keras.Model({"user": given}, keras_layers.Dense(1)(vectors))


def in_a_ready_model(rows):
    return models.mlp({"user": (rows, 4)}, hidden=(4,), id_dtypes={"user": "int64"})


def in_a_bag(rows):
    given = [keras.Input((1,), name=f"tags__{half}", dtype="int64") for half in ("values", "nnzs")]
    vectors = layers.EmbeddingBag(rows - USERS + TAGS, 4)((*given,))
    return keras.Model({"tags": (*given,)}, keras_layers.Dense(1)(vectors))


@pytest.mark.parametrize("make", [directly, in_a_collection, in_a_ready_model, in_a_bag])
def test_one_row_too_few_is_refused_and_just_enough_are_not(make, folder):
    column, rows = ("tags", TAGS) if make is in_a_bag else ("user", USERS)
    with loaded(folder, column) as data:
        model = make(USERS - 1)
        before = [weights.copy() for weights in model.get_weights()]
        message = (
            rf"Expected an embedding of {rows} rows or more for '{column}', whose ids are 0 to "
            rf"{rows - 1}\. Received: layer '\w+' with {rows - 1} rows\. .*get_embedding_sizes"
        )
        with pytest.raises(TrainingError, match=message):
            train(model, data, verbose=0)
        for now, then in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(now, then)
        # Keras raises by itself for an id beyond a table on a CPU.
        train(make(USERS), data, verbose=0)


def test_validation_data_is_compared_as_well(folder):
    frame = pl.DataFrame({"user": [1, 2], "late": [0.0, 1.0]})
    known = loaded(folder, "user")
    without_schema = KerasSequenceLoader(frame, 2, label_names=["late"], cat_names=["user"])
    with known, without_schema, pytest.raises(TrainingError, match=f"{USERS} rows or more"):
        train(directly(7), without_schema, known, verbose=0)


def test_ids_that_the_model_bounds_are_its_own(folder):
    given = user()
    vectors = keras_layers.Embedding(7, 4)(keras.ops.mod(given, 7)[:, 0])
    with loaded(folder, "user") as data:
        model = keras.Model({"user": given}, keras_layers.Dense(1, "sigmoid")(vectors))
        before = model.get_weights()[0].copy()
        train(model, data, verbose=0)
        learnt = np.flatnonzero((model.get_weights()[0] != before).any(axis=1))
        assert {*learnt.tolist()} == {*np.unique([x["user"] % 7 for x, _ in data])}


def test_an_id_beyond_a_table_that_cannot_be_compared_is_told(folder):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.table = keras_layers.Embedding(USERS - 1, 1)

        def call(self, x):
            return self.table(x["user"])[:, 0]

    with (
        loaded(folder, "user") as data,
        pytest.raises(
            TrainingError,
            match=r"ids from 0 to 21, .* 22 rows\. Received: 22\. .*get_embedding_sizes",
        ),
    ):
        train(Own(), data)
