"""`train` and its optimizers on a GPU, fed by the GPU's loader."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial

import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf
from gpu_workers import joined_on_first_gpu
from worker_processes import found_by, start

from loader import KerasSequenceLoader, LoaderCheckpoint
from training import TrainingError, compile_model, models, optimizers, train
from training.layers import EmbeddingCollection

pytestmark = pytest.mark.timeout(150)

ROWS, BATCH, IDS = 400_000, 8192, 1000


@pytest.fixture(scope="module")
def load(tmp_path_factory, device):
    """Makes loaders of an id, a list, a number and a label; 1 row of 1,000 has null in `holes`."""
    random = np.random.default_rng(0)
    user = random.integers(0, IDS, ROWS)
    tags = np.split(random.integers(0, 50, 2 * ROWS).astype("int32"), range(2, 2 * ROWS, 2))
    age = random.normal(size=ROWS).astype("float32")
    frame = pl.DataFrame(
        {
            "user": user.astype("int32"),
            "tags": tags,
            "age": age,
            "holes": pl.Series(age).set(pl.Series(np.arange(ROWS) % 1000 == 0), None),
            "label": (user % 2 + age > 0.5).astype("int8"),
        }
    )
    path = tmp_path_factory.mktemp("train") / "rows.parquet"
    frame.write_parquet(path, row_group_size=50_000)

    def load(number="age"):
        names = {"cat_names": ["user", "tags"], "cont_names": [number], "seed": 0}
        loader = KerasSequenceLoader(path, BATCH, ["label"], **names)
        assert loader.device == device
        return loader

    return load


def make_model(number="age"):
    keras.utils.set_random_seed(0)
    tables, dtypes = ({"user": (IDS, 16)}, {"tags": (50, 8)}), {"tags": ("int32", "int32")}
    return models.mlp(tables, [number], hidden=(64, 32), dropout=0.1, id_dtypes=dtypes)


def devices():
    return "/cpu:0", tf.test.gpu_device_name() or "/cpu:0"


def test_all_options_at_once(load, tmp_path):
    report = train(
        make_model(), load(), load(), epochs=2, precision="bfloat16",
        class_weight={1: 2.0}, tensorboard=tmp_path / "logs", verbose=True, validate_ids=True,
        patience=2, checkpoint=tmp_path / "all", metrics=["auc", "accuracy"],
        optimizer=keras.optimizers.Adam(0.01),
    )  # fmt: skip
    assert report.samples == 2 * ROWS
    assert report.val_auc >= 0.95


MAKERS = {
    "sgd": partial(optimizers.SGD, 0.5),
    "momentum": partial(optimizers.SGD, 0.1, momentum=0.9),
    "clipnorm": partial(optimizers.SGD, 0.5, clipnorm=0.01),
    "adagrad": partial(optimizers.Adagrad, 0.1),
    "adam": partial(optimizers.Adam, 0.01),
    "float16": lambda: optimizers.LossScaleOptimizer(optimizers.Adagrad(0.1)),
    "keras": partial(keras.optimizers.Adagrad, 0.1),
}


@pytest.mark.usefixtures("whole_floats")
@pytest.mark.parametrize("optimizer", MAKERS)
@pytest.mark.parametrize("lists", [False, True], ids=["ids", "lists"])
def test_the_split_step_changes_tables_as_keras_step_does(optimizer, lists):
    """Small columns and large ones, frequent ids and ids that are unknown."""
    random, rows = np.random.default_rng(0), 20_000
    small, large = {"user": (IDS, 8), "item": (200_000, 8)}, {"tags": (50, 8), "words": (90_000, 8)}
    x = {name: random.zipf(1.3, (rows, 1)) % (height + 1) for name, (height, _) in small.items()}
    x["age"] = random.normal(size=(rows, 1)).astype("float32")
    for name, (height, _) in large.items() if lists else ():
        lengths = random.integers(0, 8, (rows, 1))
        x[name] = (random.zipf(1.3, (lengths.sum(), 1)) % (height + 1), lengths)
    x = tf.nest.map_structure(tf.constant, x)
    y = tf.constant((random.random((rows, 1)) < 0.5).astype("float32"))
    found = []
    for split in (False, True):
        keras.utils.set_random_seed(0)
        dtypes = dict.fromkeys(small, "int64")
        model = models.mlp((small, large if lists else {}), ["age"], hidden=(32,), id_dtypes=dtypes)
        compile_model(model, MAKERS[optimizer](), split=split)
        before = model.get_weights()
        losses = [float(model.train_on_batch(x, y)) for _ in range(3)]
        found.append((losses, model.get_weights()))
    (expected, weights), (losses, own) = found
    assert losses == pytest.approx(expected, rel=1e-4)
    # A step of Adam is as long for a gradient that is hardly more than the rounding of its sum.
    atol = 2e-4 if optimizer == "adam" else 2e-5
    for received, other, first in zip(own, weights, before, strict=True):
        assert not np.array_equal(other, first)
        np.testing.assert_allclose(received, other, rtol=1e-3, atol=atol)


def make_two_outputs():
    """One network for two labels, over a table."""
    keras.utils.set_random_seed(0)
    user, age = keras.Input((1,), name="user", dtype="int64"), keras.Input((1,), name="age")
    vectors = EmbeddingCollection({"user": (IDS, 16)})({"user": user})["user"]
    x = keras.layers.Dense(32, "relu")(keras.layers.Concatenate()([vectors, age]))
    outputs = {
        "click": keras.layers.Dense(1, "sigmoid", name="click")(x),
        "amount": keras.layers.Dense(1, name="amount")(x),
    }
    return keras.Model({"user": user, "age": age}, outputs)


@pytest.mark.parametrize("settings", [{}, {"precision": "bfloat16"}], ids=["float32", "bfloat16"])
def test_the_split_step_trains_several_outputs_as_keras_does(settings):
    random = np.random.default_rng(0)
    x = {
        "user": random.integers(0, IDS, (20_000, 1)),
        "age": random.normal(size=(20_000, 1)).astype("float32"),
    }
    y = {"click": (x["age"] > 0).astype("float32"), "amount": 2 * x["age"] + 1}
    found = []
    for each in ({"split": False}, {"split": True, "steps_per_execution": 4, **settings}):
        model = make_two_outputs()
        compile_model(
            model, optimizers.Adagrad(0.05), {"click": "binary_crossentropy", "amount": "mse"},
            metrics={"click": ["auc"], "amount": ["mae"]},
            loss_weights={"click": 1.0, "amount": 0.5}, **each,
        )  # fmt: skip
        runs = [model.fit(x, y, batch_size=4096, shuffle=False, verbose=0).history for _ in "ab"]
        found.append((runs, model.get_weights()))
    (expected, weights), (histories, split) = found
    tolerance = {"rel": 0.02, "abs": 0.005} if settings else {"abs": 1e-4}
    for run, one in zip(histories, expected, strict=True):
        received = {name: values[0] for name, values in run.items()}
        assert received == pytest.approx({n: v[0] for n, v in one.items()}, **tolerance)
    for own, others in zip(split, weights, strict=True):
        np.testing.assert_allclose(own, others, rtol=0, atol=0.05 if settings else 1e-4)


def test_a_run_that_is_given_up_ends_as_one_that_was_not(load, tmp_path):
    """But for the order of sums: by far less than what one step changes."""

    def fit(name, stop=math.inf):
        class Stop(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002
                if int(self.model.optimizer.iterations) >= stop:
                    raise InterruptedError

        model, data = make_model(), load()
        options = {
            "checkpoint": LoaderCheckpoint(data, tmp_path / name, save_freq=10),
            # What Adam makes of a gradient of zero and one of nearly zero is not nearly the same.
            "optimizer": optimizers.SGD(0.1),
            # Not a divisor of an epoch's steps.
            "steps_per_execution": 8,
        }
        with suppress(InterruptedError):
            train(model, data, epochs=2, callbacks=[Stop()], **options)
        return int(model.optimizer.iterations), model.get_weights()

    def difference(one, other):
        return max(abs(a - b).max() for a, b in zip(one, other, strict=True))

    steps, whole = fit("whole")
    stopped, _ = fit("stopped", 67)
    assert stopped < steps
    resumed, weights = fit("stopped")
    _, short = fit("short", steps - 1)
    assert resumed == steps
    assert difference(weights, whole) <= difference(short, whole) / 10


def test_a_null_float_is_found_and_named(load):
    with pytest.raises(TrainingError, match="column 'holes'"):
        train(make_model("holes"), load("holes"))


def test_ids_out_of_range_give_the_same_on_both_devices():
    model = make_model()
    ids = tf.constant([[0], [IDS - 1], [IDS], [-1], [2**31 - 1], [-(2**31)]])
    empty = tf.zeros((0, 1), tf.int32), tf.zeros((6, 1), tf.int32)
    answers = []
    for place in devices():
        with tf.device(place):
            answers.append(model({"user": ids, "tags": empty, "age": tf.zeros((6, 1))}).numpy())
    np.testing.assert_allclose(answers[0], answers[1], rtol=1e-3)
    assert len(set(answers[0][2:, 0])) == 1


@pytest.mark.parametrize(
    "make_optimizer",
    [
        partial(optimizers.SGD, 0.01),
        partial(optimizers.SGD, 0.01, momentum=0.9),
        partial(optimizers.SGD, 0.01, clipnorm=1.0),
        partial(optimizers.Adagrad, 0.1),
        partial(optimizers.Adam, 0.1),
        partial(optimizers.Adam, 0.1, amsgrad=True),
    ],
    ids=["sgd", "momentum", "clipnorm", "adagrad", "adam", "amsgrad"],
)
def test_rows_of_a_table_change_the_same_on_both_devices(make_optimizer):
    """Rows that come again and again in a step, too."""
    random = np.random.default_rng(0)
    steps = [
        (random.zipf(1.3, 20_000) % IDS, random.normal(size=(20_000, 8)).astype("float32"))
        for _ in range(3)
    ]

    def table(place):
        optimizer = make_optimizer()
        with tf.device(place):
            variable = keras.Variable(np.ones((IDS, 8), "float32"))
            optimizer.build([variable])

            @tf.function
            def step(rows, values):
                slices = tf.IndexedSlices(values, rows, tf.constant((IDS, 8)))
                optimizer.apply([slices], [variable])

            for rows, values in steps:
                step(tf.constant(rows), tf.constant(values))
            return variable.numpy()

    expected, received = map(table, devices())
    assert not np.array_equal(expected, np.ones_like(expected))
    np.testing.assert_allclose(received, expected, rtol=2e-4, atol=2e-5)


def test_keras_own_step_and_predictions_take_lists(load):
    """Keras compiles by XLA what it takes for compilable, and XLA knows no sum of segments."""
    model = make_model()
    model.compile(keras.optimizers.SGD(0.1), "binary_crossentropy")
    model.fit(load(), verbose=0, shuffle=False, steps_per_epoch=3)
    x, _ = next(iter(load()))
    apart = keras.Model(model.input, model.output)
    np.testing.assert_allclose(
        apart.predict_on_batch(x), model.predict_on_batch(x), rtol=1e-5, atol=1e-6
    )


def test_rows_of_arrays_are_counted_once():
    x = {"a": np.linspace(0, 1, 256, dtype="float32").reshape(256, 1)}
    a = keras.Input((1,), name="a")
    model = keras.Model({"a": a}, keras.layers.Dense(1, "sigmoid")(a))
    assert train(model, (x, x["a"] > 0.5), epochs=2).samples == 512


@pytest.mark.parametrize("split", [None, False])
@pytest.mark.parametrize("label", [3, -1, 7])
@pytest.mark.parametrize("is_validation", [False, True])
def test_a_class_that_the_output_does_not_have_is_named(label, is_validation, split):
    x = {"a": np.linspace(0, 1, 64, dtype="float32").reshape(64, 1)}
    a = keras.Input((1,), name="a")
    model = keras.Model({"a": a}, keras.layers.Dense(3, "softmax")(a))
    good, wrong = (x, np.ones((64, 1), "int32")), (x, np.full((64, 1), label, "int32"))
    data = (good, wrong) if is_validation else (wrong,)
    with pytest.raises(TrainingError, match=rf"labels from 0 to 2.*3 classes. Received: {label}\."):
        train(model, *data, loss="sparse_categorical_crossentropy", split=split)


def test_two_workers_on_one_gpu_are_refused(tmp_path, device):
    if device == "cpu":
        pytest.skip("a processor is shared by any number of workers")
    for error in found_by(start(2, tmp_path, joined_on_first_gpu), tmp_path):
        assert "a GPU of its own for each worker. Received: a GPU (NVIDIA" in error
        assert "CUDA_VISIBLE_DEVICES=<number of its GPU>" in error
