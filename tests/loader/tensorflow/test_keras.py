"""Keras 3 takes a loader as it is."""

import gc

import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from loader import KerasSequenceLoader, KerasSequenceValidater, LoaderError


class MultiHot(keras.layers.Layer):
    """The mean of the embeddings of each row's values."""

    def __init__(self):
        super().__init__()
        self.embedding = keras.layers.Embedding(1004, 4)

    def call(self, pair):
        values, lengths = pair
        rows = tf.RaggedTensor.from_row_lengths(self.embedding(values[:, 0]), lengths[:, 0])
        return tf.math.divide_no_nan(tf.reduce_sum(rows, 1), tf.cast(lengths, tf.float32))

    def compute_output_shape(self, _):
        return (None, 4)


def make_model(**compile_arguments):
    """The structure of the MovieLens example: two single-hot inputs and a multi-hot pair."""
    keras.utils.set_random_seed(0)
    inputs = {name: keras.Input((1,), name=name, dtype="int32") for name in ("movieId", "userId")}
    inputs["genres"] = (
        keras.Input((1,), name="genres__values", dtype="int64"),
        keras.Input((1,), name="genres__nnzs", dtype="int64"),
    )
    parts = [
        keras.layers.Flatten()(keras.layers.Embedding(1000, 4)(inputs["movieId"])),
        keras.layers.Flatten()(keras.layers.Embedding(1000, 4)(inputs["userId"])),
        MultiHot()(inputs["genres"]),
    ]
    hidden = keras.layers.Dense(8, activation="relu")(keras.layers.concatenate(parts))
    output = keras.layers.Dense(1, activation="sigmoid", name="output")(hidden)
    model = keras.Model(inputs, output)
    arguments = {"optimizer": "sgd", "loss": "binary_crossentropy", "metrics": ["accuracy"]}
    model.compile(**arguments | compile_arguments)
    return model


@pytest.fixture
def model():
    return make_model()


def make_small(column="userId", **compile_arguments):
    """A model of one column, which costs less to train, where no assertion is about the others."""
    keras.utils.set_random_seed(0)
    ids = keras.Input((1,), name=column, dtype="int32")
    x = keras.layers.Flatten()(keras.layers.Embedding(1000, 4)(ids))
    model = keras.Model({column: ids}, keras.layers.Dense(1, "sigmoid")(x))
    model.compile(**{"optimizer": "sgd", "loss": "binary_crossentropy"} | compile_arguments)
    return model


@pytest.fixture
def train(make):
    return make(cont_names=[], batch_size=96)


@pytest.fixture
def valid(make):
    return make(cont_names=[], batch_size=96, shuffle=False)


@pytest.fixture
def ids(make):
    """A loader of the one column of `make_small`."""
    return make(cat_names=["userId"], cont_names=[], batch_size=96)


def arrays(loader):
    """All of a loader's rows as what `model.evaluate` takes without it."""
    batches = list(loader)
    x = {
        name: np.concatenate([batch[name].numpy() for batch, _ in batches])
        for name in ("userId", "movieId")
    }
    x["genres"] = tuple(
        np.concatenate([batch["genres"][half].numpy() for batch, _ in batches]) for half in (0, 1)
    )
    return x, np.concatenate([y.numpy() for _, y in batches])


def test_fit_learns_and_validates(train, valid):
    model = make_model(optimizer=keras.optimizers.Adam(0.05))
    # movieId decides the label in half of the cases, userId in all.
    history = model.fit(train, validation_data=valid, epochs=8, verbose=0, shuffle=False).history
    assert len(history["loss"]) == len(history["val_loss"]) == 8
    assert history["val_accuracy"][-1] > 0.9
    assert train.get_state()["epoch"] == 8
    assert train.get_state()["batch"] == 0


def test_evaluate_equals_the_loss_over_all_rows(model, valid):
    x, y = arrays(valid)
    predicted = model(x).numpy()
    expected = -np.mean(np.log(np.where(y == 1, predicted, 1 - predicted)))
    results = model.evaluate(valid, verbose=0, return_dict=True)
    assert results["loss"] == pytest.approx(expected, rel=1e-5)
    assert results["accuracy"] == pytest.approx(np.mean((predicted > 0.5) == y), rel=1e-5)


def test_predict_gives_one_output_a_row_in_order(model, valid):
    x, _ = arrays(valid)
    np.testing.assert_allclose(
        model.predict(valid, verbose=0), model(x).numpy(), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("arguments", [{"run_eagerly": True}, {"steps_per_execution": 3}])
def test_other_ways_to_run_steps(ids, arguments):
    model = make_small(**arguments)
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append((epoch, ids.get_state()["epoch"], logs["loss"]))

    model.fit(ids, epochs=2, verbose=0, shuffle=False, callbacks=[Watch()])
    assert [entry[:2] for entry in seen] == [(0, 1), (1, 2)]


def test_validater_gives_the_numbers_of_evaluate(make, ids):
    model, expected = make_small(optimizer="adam", metrics=["mae"]), []
    valid = make(cat_names=["userId"], cont_names=[], batch_size=96, shuffle=False)

    class Evaluate(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            del epoch
            expected.append((dict(logs), self.model.evaluate(valid, verbose=0, return_dict=True)))

    callbacks = [KerasSequenceValidater(valid), Evaluate()]
    history = model.fit(ids, epochs=2, verbose=0, shuffle=False, callbacks=callbacks).history
    for epoch, (logs, truth) in enumerate(expected):
        for name, value in truth.items():
            assert history[f"val_{name}"][epoch] == pytest.approx(value, rel=1e-6)
            assert logs[f"val_{name}"] == pytest.approx(value, rel=1e-6)
            assert history[name][epoch] != history[f"val_{name}"][epoch]


def test_map_adds_sample_weights_and_keeps_the_length(ids):
    model, weighted = make_small(), ids.map(lambda x, y: (x, y, tf.zeros_like(y, tf.float32)))
    assert len(weighted) == len(ids)
    before = [value.numpy() for value in model.trainable_variables]
    history = model.fit(weighted, epochs=2, verbose=0, shuffle=False).history
    assert history["loss"] == [0.0, 0.0]
    for old, new in zip(before, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(old, new.numpy())


def test_class_weight(ids):
    weight = {0: 0.0, 1: 0.0}
    history = make_small().fit(ids, class_weight=weight, verbose=0, shuffle=False).history
    assert history["loss"] == [0.0]


def test_a_gradient_tape_loop(model, make):
    train = make(cont_names=[], batch_size=250)
    optimizer = keras.optimizers.Adam(0.01)
    losses = []
    for _ in range(3):
        for x, y in train:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(keras.losses.binary_crossentropy(y, model(x)))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            losses.append(float(loss))
    assert np.mean(losses[-4:]) < np.mean(losses[:4])


def test_checkpoint_in_the_midst_of_fit_resumes(make, users):
    columns = {"cat_names": ["userId"], "cont_names": [], "batch_size": 100}
    model, loader, states = make_small(), make(**columns), []

    class Save(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            del batch, logs
            states.append(loader.get_state())

    model.fit(loader, verbose=0, shuffle=False, callbacks=[Save()])
    resumed = make(**columns)
    resumed.set_state(states[3])
    assert states[3]["batch"] == 4
    assert users(resumed) == users(make(**columns))[400:]


@pytest.mark.parametrize(
    "count",
    [
        0,
        pytest.param(2, marks=pytest.mark.long),
        99,
        -1,
        pytest.param(np.int64(3), marks=pytest.mark.long),
        tf.constant(3, tf.int64),
    ],
)
def test_parts_of_the_data_know_their_length(valid, count):
    whole = [*range(len(valid))]
    mapped = valid.map(lambda x, y: (x, y, tf.ones_like(y)))
    for data, expected in ((valid, whole), (mapped, whole), (valid.repeat(2), [*whole, *whole])):
        for part in (data.take(count), data.skip(count)):
            assert len(part) == part.cardinality() == len(list(part))
        assert len(data.take(count)) == (len(expected) if count < 0 else len(expected[:count]))
    assert len(valid.repeat().take(5)) == 5
    assert valid.repeat().skip(5).cardinality() == tf.data.INFINITE_CARDINALITY


def test_a_part_is_trained_on_without_a_warning(ids):
    # Keras warns that data ran out if it has not known the length; warnings are errors here.
    history = make_small().fit(
        ids.take(3), validation_data=ids.skip(1), epochs=2, verbose=0, shuffle=False
    )
    assert len(history.history["val_loss"]) == 2


def test_a_count_that_only_a_graph_knows(train):
    @tf.function
    def rows(count):
        return train.take(count).reduce(0, lambda n, batch: n + tf.shape(batch[1])[0])

    assert rows(tf.constant(2, tf.int64)) == rows(2) > 0


def test_dataset_methods(train, valid, users):
    assert isinstance(train, tf.data.Dataset)
    assert len(users(valid.take(2))) == 192
    assert len(users(valid.repeat(2))) == 2000

    @tf.function
    def count(dataset):
        rows = 0
        for _, y in dataset:
            rows += tf.shape(y)[0]
        return rows

    assert int(count(train)) == 1000


@pytest.mark.parametrize("part", ["loader", "map", "as_dataset"])
def test_no_thread_of_tensorflows_tunes_the_dataset(train, part):
    """An iterator that is freed may wait for such a thread, up to a minute."""
    parts = {
        "loader": train,
        "map": train.map(lambda x, y: (x, y)),
        "as_dataset": train.as_dataset(),
    }
    assert parts[part].options().autotune.enabled is False


def test_what_a_dropped_loader_leaves_does_not_grow_with_its_columns(tmp_path):
    # TensorFlow keeps the functions that it has called.
    columns = [f"x{n}" for n in range(200)]
    pl.DataFrame({name: [0.0, 1.0] for name in columns}).write_parquet(tmp_path / "a.parquet")

    def left():
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(4):
            next(iter(KerasSequenceLoader(tmp_path, batch_size=1, cont_names=columns)))
            gc.collect()
        return len(gc.get_objects()) - before

    gc.collect()
    gc.freeze()  # else each look goes through all that the tests before have left
    left()  # what is imported and made once
    assert left() < 4 * len(columns)


def test_direct_and_compiled_iterators_give_the_same(valid):
    @tf.function
    def step(batches):
        return next(batches)

    compiled = iter(valid)
    for direct in valid:
        tf.nest.map_structure(np.testing.assert_array_equal, direct, step(compiled))


def test_an_iterator_is_read_in_one_way_only(train):
    iterator = iter(train)
    next(iterator)
    with pytest.raises(LoaderError, match=r"fresh iterator in a tf\.function"):
        tf.function(lambda batches: next(batches)[1])(iterator)


def test_errors_in_fit_carry_the_loaders_text(ratings):
    frame = ratings.with_columns(movieId=ratings["movieId"].replace(7, None))
    loader = KerasSequenceLoader(frame, 64, ["rating"], cat_names=["movieId"])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"no nulls in 'movieId'"):
        make_small("movieId").fit(loader, verbose=0, shuffle=False)
