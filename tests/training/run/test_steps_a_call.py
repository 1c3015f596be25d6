"""32 steps a call of epochs of 45 steps: the same training, told less often."""

import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from loader import KerasSequenceLoader, LoaderCheckpoint
from training import TrainingError, models, optimizers, train
from training.run.steps import default_steps

ROWS, BATCH, STEPS = 45 * 16 - 5, 16, 45


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    random = np.random.default_rng(0)
    user, age = random.integers(0, 50, ROWS).astype("int32"), random.normal(size=ROWS)
    label = (user % 2 + age > 0.5).astype("int8")
    frame = pl.DataFrame({"userId": user, "age": age.astype("float32"), "label": label})
    file = tmp_path_factory.mktemp("data") / "rows.parquet"
    frame.write_parquet(file, row_group_size=100)
    return file


def load(path):
    return KerasSequenceLoader(
        path, BATCH, ["label"], cat_names=["userId"], cont_names=["age"], seed=3
    )


def make():
    keras.utils.set_random_seed(0)
    return models.mlp({"userId": (50, 8)}, ["age"], hidden=(16, 8), dropout=0.3)


class Told(keras.callbacks.Callback):
    """Keeps what it is called with, and gives up when a step of the run is over."""

    def __init__(self, stop=None):
        super().__init__()
        self.batches, self.stop = [], stop

    def on_train_batch_end(self, batch, logs=None):
        del logs
        self.batches.append(batch)
        if int(self.model.optimizer.iterations) == self.stop:
            raise InterruptedError


def fit(path, steps, *, split=True, stop=None, checkpoint=None, validated=True, **options):
    network, told, loader = make(), Told(stop), load(path)
    valid = load(path) if validated else None
    saver = checkpoint and LoaderCheckpoint(loader, checkpoint, save_freq=6)
    report = train(
        network, loader, valid, epochs=2, optimizer=optimizers.Adagrad(0.1), split=split,
        steps_per_execution=steps, callbacks=[told], checkpoint=saver, **options,
    )  # fmt: skip
    return network, report, told


@pytest.fixture(scope="module")
def single(path):
    return fit(path, 1)


@pytest.fixture(scope="module")
def many(path):
    return fit(path, 32)


def check_same(one, other):
    for own, weights in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(own, weights, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("split", [True, pytest.param(False, marks=pytest.mark.long)])
def test_the_training_is_the_same(path, single, many, split):
    network, report, told = many if split else fit(path, 32, split=False)
    assert (single[2].batches, told.batches) == (2 * list(range(STEPS)), 2 * [31, 63])
    assert report.samples == single[1].samples == 2 * ROWS
    assert set(report.history) == {"auc", "loss", "val_auc", "val_loss"}
    for name, values in single[1].history.items():
        np.testing.assert_allclose(report.history[name], values, rtol=1e-4)
    check_same(network, single[0])
    # `predict` would make one graph of 32 batches.
    assert network.steps_per_execution == 1
    assert network.get_compile_config()["steps_per_execution"] == 1


@pytest.mark.parametrize("steps", [1, pytest.param(7, marks=pytest.mark.long), 32])
def test_the_loss_curve_is_of_rows(path, single, many, steps):
    _, report, _ = {1: single, 32: many}.get(steps) or fit(path, steps)
    assert len(report.loss_curve) == min(50, 2 * -(-STEPS // steps))
    mean, first = np.mean(report.loss_curve), report.history["loss"][0]
    np.testing.assert_allclose(mean, np.mean(report.history["loss"]), rtol=1e-5)
    np.testing.assert_allclose(np.mean(np.split(np.array(report.loss_curve), 2)[0]), first, 1e-2)


def test_a_run_given_up_within_an_epoch_goes_on(path, single, tmp_path):
    run = {"checkpoint": tmp_path, "metrics": [], "validated": False}
    with pytest.raises(InterruptedError):
        fit(path, 8, stop=STEPS + 16, **run)
    network, report, told = fit(path, 32, **run)
    assert report.samples == ROWS - 8 * BATCH
    assert told.batches == [31, 63]
    check_same(network, single[0])


def test_what_is_no_number_is_told_by_the_steps_of_its_call(path):
    def late(number, batch):
        x, y = batch
        return x, tf.where(number < 40, tf.cast(y, tf.float32), float("nan"))

    rows = tf.data.Dataset.enumerate(load(path)).map(late)
    rows = rows.apply(tf.data.experimental.assert_cardinality(STEPS))
    with pytest.raises(TrainingError, match="at steps 33 to 45 of epoch 1"):
        train(make(), rows, split=True, steps_per_execution=32)


def test_the_default_keeps_callbacks_for_each_batch():
    def each(*_):
        pass

    quiet = [
        keras.callbacks.LambdaCallback(on_epoch_end=each),
        keras.callbacks.ModelCheckpoint("model.keras"),
    ]
    assert default_steps(quiet, on_gpu=True) == 32
    assert default_steps(quiet, on_gpu=False) == 1
    for callback in (Told(), keras.callbacks.LambdaCallback(on_train_batch_begin=each)):
        assert default_steps([*quiet, callback], on_gpu=True) == 1
