"""A run that was killed goes on as if it had not been."""

import contextlib
import functools
import shutil
import signal
import subprocess
import sys

import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from loader import KerasSequenceLoader, LoaderCheckpoint, LoaderError
from training import TrainingError, models, optimizers, train

# 30 steps an epoch; shuffled, dropped out, with a schedule: all of it has to be where it was.
PROGRAM = """
import os, signal, sys
import keras, numpy as np
from loader import KerasSequenceLoader, LoaderCheckpoint
from training import models, train

folder, die_at = sys.argv[1], int(sys.argv[2])

class Killer(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

keras.utils.set_random_seed(7)
loader = KerasSequenceLoader(
    folder + "/data", batch_size=32, label_names=["label"], cat_names=["userId"],
    cont_names=["age"], seed=3, parts_per_chunk=2,
)
model = models.mlp({"userId": (50, 8)}, ["age"], hidden=(16, 8), dropout=0.3)
schedule = keras.optimizers.schedules.CosineDecay(0.05, 60)
train(
    model, loader, epochs=2, optimizer=keras.optimizers.Adam(schedule), callbacks=[Killer()],
    checkpoint=LoaderCheckpoint(loader, folder + "/checkpoint", save_freq=4),
)
np.savez(folder + "/weights.npz", *model.get_weights())
"""


def write(folder, rows=960):
    random = np.random.default_rng(0)
    user, age = random.integers(0, 50, rows).astype("int32"), random.normal(size=rows)
    label = (user % 2 + age > 0.5).astype("int8")
    frame = pl.DataFrame({"userId": user, "age": age.astype("float32"), "label": label})
    folder.mkdir()
    frame.write_parquet(folder / "rows.parquet", row_group_size=96)
    return folder


def start(folder, die_at):
    return subprocess.Popen([sys.executable, "-c", PROGRAM, folder, str(die_at)])


@pytest.mark.long
def test_killed_it_ends_with_the_same_weights(tmp_path):
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "data")
    # One of them dies in the midst of its second epoch, between two checkpoints.
    processes = start(tmp_path / "whole", -1), start(tmp_path / "killed", 43)
    assert [process.wait() for process in processes] == [0, -signal.SIGKILL]
    assert start(tmp_path / "killed", -1).wait() == 0
    whole, killed = (np.load(tmp_path / name / "weights.npz") for name in ("whole", "killed"))
    for part in whole.files:
        np.testing.assert_allclose(killed[part], whole[part], rtol=1e-4, atol=1e-6)


def make(folder, seed=None):
    keras.utils.set_random_seed(0)
    loader = KerasSequenceLoader(
        folder, 64, label_names=["label"], cat_names=["userId"], cont_names=["age"], seed=seed
    )
    return models.mlp({"userId": (50, 8)}, ["age"], hidden=(8,)), loader


def test_a_folder_is_a_checkpoint_after_each_epoch(tmp_path):
    data = write(tmp_path / "data", 200)
    for epochs, samples in ((1, 200), (3, 400)):
        model, loader = make(data)
        run = {"optimizer": "sgd", "metrics": [], "checkpoint": tmp_path / "checkpoint"}
        report = train(model, loader, epochs=epochs, **run)
        assert report.samples == samples  # since the checkpoint alone


AVERAGED = {"use_ema": True, "ema_momentum": 0.5}


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        pytest.param(keras.optimizers.Adam, {}, marks=pytest.mark.long),
        pytest.param(keras.optimizers.Adam, AVERAGED, marks=pytest.mark.long),
        (optimizers.Adam, AVERAGED),
        (keras.optimizers.SGD, AVERAGED | {"gradient_accumulation_steps": 2}),
    ],
)
def test_of_a_run_that_was_finished_nothing_is_left_to_train(tmp_path, optimizer, settings):
    """The same program, started again after its last epoch, gets its model back.

    With a moving average of the weights Keras ends a run with the average in the model.
    """
    data = write(tmp_path / "data", 200)
    model, loader = make(data)
    run = {"epochs": 2, "checkpoint": tmp_path / "checkpoint"} | (
        {"metrics": []} if settings else {}
    )
    before = train(model, loader, loader, optimizer=optimizer(0.05, **settings), **run)
    again, loader = make(data)
    report = train(again, loader, loader, optimizer=optimizer(0.05, **settings), **run)
    assert (report.samples, report.samples_per_second) == (0, 0)
    assert "Nothing was trained: the checkpoint is from the last epoch" in str(report)
    if (
        not settings
    ):  # Keras validates an epoch before the run ends, and so before the average is set
        assert report.val_auc == pytest.approx(before.val_auc, abs=1e-6)
    for own, other in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(own, other)


def other(frame):
    """Other rows, as many, in as many row groups."""
    return frame.with_columns(age=pl.col("age") + 1)


@pytest.mark.parametrize("epochs", [1, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("of", ["files", "a frame"])
def test_new_data_are_not_taken_for_those_of_the_checkpoint(tmp_path, of, epochs):
    """The next night's data in the same checkpoint: neither trained on nor passed over in silence."""
    night = write(tmp_path / "night", 200)
    copy = shutil.copytree(night, tmp_path / "copy")
    frame = pl.read_parquet(night / "rows.parquet")
    (tmp_path / "next").mkdir()
    other(frame).write_parquet(tmp_path / "next/rows.parquet", row_group_size=96)
    read = {"files": lambda folder: folder, "a frame": pl.read_parquet}[of]
    run = {"optimizer": "sgd", "metrics": [], "checkpoint": tmp_path / "checkpoint"}
    for folder, samples in (
        (night, 200),
        (copy, 0),
    ):  # a copy of the data is that of the checkpoint
        assert train(*make(read(folder)), epochs=1, **run).samples == samples
    fresh, loader = make(read(tmp_path / "next"))
    before = fresh.get_weights()
    with pytest.raises(
        LoaderError, match=r"data of the checkpoint in .*Received: other data.*folder"
    ):
        train(fresh, loader, epochs=epochs, **run)
    for own, unread in zip(fresh.get_weights(), before, strict=True):
        np.testing.assert_array_equal(own, unread)


def test_within_an_epoch_other_settings_of_the_loader_are_refused_with_a_remedy(tmp_path):
    """Before the model is touched: it would go on with weights of one place and rows of another."""
    data = write(tmp_path / "data", 640)

    def loader_of(batch_size):
        return KerasSequenceLoader(
            data, batch_size, ["label"], cat_names=["userId"], cont_names=["age"], seed=3
        )

    def run(model, batch_size, **options):
        loader = loader_of(batch_size)
        saver = LoaderCheckpoint(loader, tmp_path / "checkpoint", save_freq=3)
        return train(model, loader, optimizer="sgd", metrics=[], checkpoint=saver, **options)

    class StopError(Exception):
        pass

    def stop(batch, logs):  # noqa: ARG001 - Keras passes it by name
        if batch == 4:
            raise StopError

    stopper = keras.callbacks.LambdaCallback(on_train_batch_end=stop)
    with pytest.raises(StopError):
        run(make(data)[0], 64, callbacks=[stopper])
    model = make(data)[0]
    before = model.get_weights()
    with pytest.raises(
        LoaderError, match=r"settings of the checkpoint in .*batch_size.*earlier"
    ) as e:
        run(model, 32)
    assert "legs" not in str(e.value)
    for own, untouched in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(own, untouched)
    assert run(model, 64).samples == 640 - 3 * 64


def test_a_mapped_loader_has_its_checkpoint_too(tmp_path):
    model, loader = make(write(tmp_path / "data", 200))
    mapped = loader.map(lambda x, y: (x, 1 - y))
    saver = LoaderCheckpoint(loader, tmp_path / "checkpoint")
    assert train(model, mapped, optimizer="sgd", metrics=[], checkpoint=saver).samples == 200
    with pytest.raises(TrainingError, match=r"KerasSequenceLoader.*checkpoint=LoaderCheckpoint"):
        train(model, mapped, checkpoint=tmp_path / "checkpoint")
    (tmp_path / "file").touch()
    with pytest.raises(TrainingError, match=r"checkpoint as a folder.*file, a file"):
        train(model, loader, checkpoint=tmp_path / "file")


@pytest.mark.parametrize("save_freq", ["epoch", 1])
def test_no_checkpoint_is_made_of_nan(tmp_path, save_freq):
    model, loader = make(write(tmp_path / "data", 200))
    saver = LoaderCheckpoint(loader, tmp_path / "checkpoint", save_freq=save_freq)
    diverging = {"optimizer": keras.optimizers.SGD(1e30), "metrics": []}
    with pytest.raises(TrainingError, match="loss to stay a number"):
        train(model, loader, epochs=2, checkpoint=saver, **diverging)
    fresh, loader = make(tmp_path / "data")
    fresh.compile("sgd", "binary_crossentropy")
    LoaderCheckpoint(loader, tmp_path / "checkpoint").restore(fresh)
    assert all(np.isfinite(weights).all() for weights in fresh.get_weights())


@pytest.mark.parametrize("entry", ["train", "fit"])
@pytest.mark.parametrize("folder", ["/proc/run", "file/run"])
def test_a_folder_that_cannot_be_written_is_an_error_before_the_first_step(
    tmp_path, monkeypatch, entry, folder
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    model, loader = make(write(tmp_path / "data", 200))
    model.compile("adam", "binary_crossentropy")
    calls = {
        "train": lambda: train(model, loader, checkpoint=folder),
        "fit": lambda: model.fit(
            loader, callbacks=[LoaderCheckpoint(loader, folder)], shuffle=False
        ),
    }
    with pytest.raises(LoaderError, match=f"write a checkpoint to {folder}. Received: ") as raised:
        calls[entry]()
    assert int(model.optimizer.iterations) == 0
    assert "intact" not in str(raised.value)  # there is none


class Crash(keras.callbacks.Callback):
    """End the run as a crash would, with an error, in an epoch."""

    def __init__(self, epoch, batch):
        super().__init__()
        self.at, self.epoch = (epoch, batch), 0

    def on_epoch_begin(self, epoch, logs=None):
        del logs
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        del logs
        if (self.epoch, batch) == self.at:
            raise KeyboardInterrupt


def patient_run(folder, data, callbacks=(), save_freq=None, *, validated=True, **settings):
    """Train on noise, so that the validation soon gets worse; the weights and the epochs that it took."""
    valid = make(data.parent / "valid", seed=3)[1] if validated else None
    model, loader = make(data, seed=3)
    checkpoint = folder if save_freq is None else LoaderCheckpoint(loader, folder, save_freq)
    settings = {"epochs": 8, "patience": 2, "optimizer": keras.optimizers.SGD(0.3, 0.9), **settings}
    settings = {"metrics": ["accuracy"] if callbacks else [], **settings}
    report = train(model, loader, valid, checkpoint=checkpoint, callbacks=callbacks, **settings)
    return model.get_weights(), report.samples / 200, float(model.optimizer.learning_rate)


untested_run = functools.partial(patient_run, validated=False, patience=None)


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    random, folder = np.random.default_rng(5), tmp_path_factory.mktemp("noise")
    for name in ("data", "valid"):
        frame = pl.read_parquet(write(folder / name, 200) / "rows.parquet")
        label = pl.Series("label", random.integers(0, 2, 200).astype("int8"))
        frame.with_columns(label).write_parquet(folder / name / "rows.parquet", row_group_size=96)
    return folder / "data"


class CrashInValidation(keras.callbacks.Callback):
    """End the run before the validation of its third epoch."""

    def on_test_begin(self, logs=None):
        del logs
        if int(self.model.optimizer.iterations) == 3 * 4:
            raise KeyboardInterrupt


def plateau(monitor="val_loss", min_delta=1e-4):
    return keras.callbacks.ReduceLROnPlateau(
        monitor, patience=1, factor=0.3, cooldown=1, min_delta=min_delta
    )


def halving():
    return keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2 if epoch else rate)


def averaging():
    return optimizers.SGD(0.3, 0.9, **AVERAGED)


def stopping():
    return keras.callbacks.EarlyStopping(
        "val_accuracy", mode="max", patience=2, restore_best_weights=True
    )


def assert_same(one, other):
    for own, others in zip(one, other, strict=True):
        np.testing.assert_array_equal(own, others)


@pytest.mark.parametrize(
    ("made", "settings"),
    [
        pytest.param((), {}, marks=pytest.mark.long),
        pytest.param((plateau,), {"patience": None}, marks=pytest.mark.long),
        ((plateau, stopping), {"patience": 3, "optimizer": averaging}),
        pytest.param((stopping,), {"patience": None}, marks=pytest.mark.long),
        pytest.param((), {"optimizer": averaging}, marks=pytest.mark.long),
        pytest.param((halving,), {"patience": None}, marks=pytest.mark.long),
        pytest.param((lambda: plateau("loss", 0.02),), {"patience": None}, marks=pytest.mark.long),
    ],
    ids=["patience", "plateau", "all", "stopping", "average", "halving", "loss of training"],
)
@pytest.mark.parametrize(
    ("crash", "save_freq"),
    [
        pytest.param(lambda: Crash(1, 2), None, marks=pytest.mark.long),
        (lambda: Crash(2, 2), 1),
        pytest.param(CrashInValidation, 2, marks=pytest.mark.long),
    ],
    ids=["second", "within the third", "validation"],
)
def test_a_run_that_decides_by_its_epochs_ends_as_without_the_interruption(
    noise, tmp_path, made, settings, crash, save_freq
):
    def run(name, *more, **options):
        given = {key: value() if callable(value) else value for key, value in settings.items()}
        callbacks = [*(one() for one in made), *more]
        options = {"metrics": ["accuracy"], **given, **options}
        return patient_run(tmp_path / name, noise, callbacks, **options)

    whole, epochs, rate = run("whole")
    assert settings.get("patience", 2) is None or 2 < epochs < 8
    with contextlib.suppress(KeyboardInterrupt):
        run("killed", crash(), save_freq=save_freq)
    resumed, _, resumed_rate = run("killed", save_freq=save_freq)
    assert_same(resumed, whole)
    assert resumed_rate == rate
    again, more, _ = run("killed", save_freq=save_freq)
    assert more == 0
    assert_same(again, whole)


def two_outputs(data):
    """A model of two outputs, and its loader."""
    keras.utils.set_random_seed(0)
    age = keras.Input((1,), name="age")
    hidden = keras.layers.Dense(4, "relu")(age)
    outputs = {
        "label": keras.layers.Dense(1, "sigmoid")(hidden),
        "userId": keras.layers.Dense(1)(hidden),
    }
    loader = KerasSequenceLoader(
        data, 64, label_names=["label", "userId"], cat_names=[], cont_names=["age"], seed=3
    )
    return keras.Model({"age": age}, outputs), loader


@pytest.mark.parametrize(
    ("made", "settings", "stops"),
    [
        (lambda data: make(data, seed=3), {"metrics": ["auc"]}, (2,)),
        (
            lambda data: make(data, seed=3),
            {"split": False, "class_weight": {0: 1.0, 1: 3.0}, "metrics": ["mae"]},
            (2,),
        ),
        pytest.param(
            two_outputs,
            {"loss": {"label": "binary_crossentropy", "userId": "mse"}, "metrics": ["mae"]},
            (0, 2),
            marks=pytest.mark.long,
        ),
        (two_outputs, {"loss": "mse", "metrics": ["mae"], "split": True}, (0, 2)),
    ],
    ids=["split", "class_weight", "two outputs", "two outputs, split"],
)
def test_metrics_of_a_resumed_epoch_are_those_of_all_its_rows(
    noise, tmp_path, made, settings, stops
):
    settings = {"optimizer": "sgd"} | settings

    def run(name, *callbacks):
        model, loader = made(noise)
        saver = LoaderCheckpoint(loader, tmp_path / name, save_freq=1)
        return train(model, loader, epochs=3, callbacks=callbacks, checkpoint=saver, **settings)

    report = run("whole")
    assert report.samples == 3 * 200
    whole = report.history
    for batch in stops:
        with contextlib.suppress(KeyboardInterrupt):
            run("killed", Crash(1, batch))
    resumed = run("killed")
    assert resumed.history.keys() == whole.keys()
    for name, values in resumed.history.items():
        np.testing.assert_allclose(values, whole[name][1:], rtol=1e-6, err_msg=name)
    assert np.mean(resumed.loss_curve) == pytest.approx(np.mean(whole["loss"][1:]), rel=1e-5)


def test_rows_before_an_interruption_are_counted_over_all_workers(tmp_path):
    """Three workers stop after two batches of 20, then two after one: 160 rows, of which each of two has 80."""
    data, found = write(tmp_path / "data", 400), []
    for workers, batches in ((3, 2), (2, 1), (2, 1), (1, 1)):
        model, _ = make(data)
        loader = KerasSequenceLoader(
            data, 20, ["label"], cat_names=["userId"], cont_names=["age"], seed=3, global_size=workers,
            global_rank=0,
        )  # fmt: skip
        model.compile("sgd", "binary_crossentropy")
        saver = LoaderCheckpoint(loader, tmp_path / "run")
        saver.restore(model)
        found.append(saver.rows_before)
        model.fit(loader, callbacks=[Pause(0, batches - 1), saver], verbose=0, shuffle=False)
    assert found == [0, 120 / 2, 160 / 2, 200]


def test_a_learning_rate_that_is_given_anew_counts(noise, tmp_path):
    """An equal one is that of the callbacks: see the test above."""
    rates = [0.01, 0.002, 0.002]
    for epochs, rate in enumerate(rates, start=1):
        optimizer = keras.optimizers.SGD(rate)
        *_, last = untested_run(tmp_path / "run", noise, optimizer=optimizer, epochs=epochs)
        assert last == pytest.approx(rate)
    assert len(list((tmp_path / "run").glob("*.weights.h5"))) == 1  # the last


def test_another_optimizer_is_refused(noise, tmp_path):
    """Adagrad has a slot of each weight, as SGD with momentum has, of another meaning."""
    momentum = keras.optimizers.SGD(0.01, momentum=0.9)
    untested_run(tmp_path / "run", noise, optimizer=momentum, epochs=1)
    with pytest.raises(LoaderError, match=r"Expected the optimizer .*SGD. Received: Adagrad"):
        untested_run(tmp_path / "run", noise, optimizer=keras.optimizers.Adagrad(0.01))


@pytest.mark.parametrize(
    "name",
    [
        "Adam",
        pytest.param("SGD", marks=pytest.mark.long),
        pytest.param("Adagrad", marks=pytest.mark.long),
    ],
)
def test_an_optimizer_of_keras_is_not_that_of_the_same_name_here(noise, tmp_path, name):
    """Its state has the same shapes, but it is not updated in the rows of a batch alone."""
    run = functools.partial(untested_run, tmp_path / "run", noise)
    run(optimizer=name.lower(), epochs=1)
    with pytest.raises(LoaderError, match=f", training's {name}. Received: {name}, whose state"):
        run(optimizer=getattr(keras.optimizers, name)(), epochs=2)


def test_a_callback_that_is_added_leaves_the_others_their_counts(noise, tmp_path):
    before, after = plateau(), plateau()
    patient_run(tmp_path / "run", noise, [before], patience=None, epochs=3, metrics=[])
    found = []
    look = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda *_: found.append((after.best, after.wait))
    )
    callbacks = [plateau("loss"), stopping(), after, look]
    patient_run(tmp_path / "run", noise, callbacks, patience=None, epochs=4)
    assert found == [(before.best, before.wait)]


def test_a_baseline_that_is_never_reached_ends_no_run_that_gets_better(tmp_path):
    data = write(tmp_path / "data", 200)
    for epochs in (3, 4):
        early = keras.callbacks.EarlyStopping("loss", patience=1, baseline=0.0)
        model, loader = make(data, seed=3)
        run = {"callbacks": [early], "checkpoint": tmp_path / "run", "metrics": []}
        train(model, loader, epochs=epochs, optimizer="sgd", **run)
        assert int(model.optimizer.iterations) == epochs * 4


def test_a_callback_ends_the_run_with_the_last_batch_of_a_resumed_epoch(noise, tmp_path):
    class Enough(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            del batch, logs
            self.model.stop_training = int(self.model.optimizer.iterations) == 8

    for callback in (Crash(1, 2), Enough()):
        model, loader = make(noise, seed=3)
        saver = LoaderCheckpoint(loader, tmp_path / "run", save_freq=1)
        with contextlib.suppress(KeyboardInterrupt):
            run = {"callbacks": [callback], "checkpoint": saver, "metrics": []}
            train(model, loader, epochs=4, optimizer="sgd", **run)
    assert int(model.optimizer.iterations) == 8


class Pause(Crash):
    """End the run within an epoch, as a job does whose time is over."""

    def on_train_batch_end(self, batch, logs=None):
        del logs
        self.model.stop_training = (self.epoch, batch) == self.at


def test_an_epoch_that_a_callback_stops_is_counted_once(noise, tmp_path):
    """A part of an epoch is no epoch for ReduceLROnPlateau and EarlyStopping; a whole one is, stopped or not."""

    def run(name, *more):
        callbacks = [plateau(), stopping(), *more]
        return patient_run(tmp_path / name, noise, callbacks, patience=None)

    whole, _, rate = run("whole")
    for at in ((2, 0), (3, 3)):
        run("paused", Pause(*at))
    resumed, _, resumed_rate = run("paused")
    assert_same(resumed, whole)
    assert resumed_rate == rate


VALIDATIONS = {
    "a share": lambda read, _: read(global_size=2, global_rank=1),
    "without the last batch": lambda read, _: read(drop_last=True),
    # Of a share, mapped, without the last batch: all that the first ones are alone.
    "mapped": lambda read, _: read(global_size=2, global_rank=1, drop_last=True).map(
        lambda x, y: (x, 1 - y)
    ),
    "a part": lambda read, _: read().take(1),
    "that of training": lambda _, loader: loader,
}


@pytest.mark.parametrize(
    ("crash", "save_freq"),
    [
        (lambda: Crash(2, 2), "epoch"),
        pytest.param(lambda: Crash(2, 2), 1, marks=pytest.mark.long),
        pytest.param(CrashInValidation, 2, marks=pytest.mark.long),
    ],
    ids=["after the second", "within the third", "validation"],
)
@pytest.mark.parametrize(
    "validation",
    [
        name
        if name in ("mapped", "that of training")
        else pytest.param(name, marks=pytest.mark.long)
        for name in VALIDATIONS
    ],
)
def test_validation_goes_on_with_the_rows_of_its_next_epoch(
    noise, tmp_path, validation, crash, save_freq
):
    def run(name, *callbacks, seed=3):
        model, loader = make(noise, seed=3)
        read = functools.partial(
            KerasSequenceLoader, noise.parent / "valid", 64, ["label"], cat_names=["userId"],
            cont_names=["age"], seed=seed,
        )  # fmt: skip
        valid = VALIDATIONS[validation](read, loader)
        saver = LoaderCheckpoint(loader, tmp_path / name, save_freq)
        run = {"optimizer": "sgd", "callbacks": callbacks, "checkpoint": saver, "metrics": []}
        report = train(model, loader, valid, epochs=4, **run)
        return report.history, model.get_weights()

    whole, weights = run("whole")
    with contextlib.suppress(KeyboardInterrupt):
        run("killed", crash())
    resumed, after = run("killed", seed=99)  # a loader without a seed has another one each time
    for name, values in resumed.items():
        np.testing.assert_allclose(values, whole[name][-len(values) :], rtol=1e-6, err_msg=name)
    assert_same(after, weights)


def test_weights_that_are_swapped_after_an_epoch_are_refused(noise, tmp_path):
    optimizer = keras.optimizers.Adam(0.05, use_ema=True)
    swaps = [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)]
    with pytest.raises(LoaderError, match="swap_on_epoch=False"):
        patient_run(tmp_path / "run", noise, swaps, optimizer=optimizer, patience=None)


def test_epochs_that_are_added_count_on(noise, tmp_path):
    whole, epochs, _ = patient_run(tmp_path / "whole", noise)
    # The checkpoint of the best epoch is kept as well.
    assert len(list((tmp_path / "whole").glob("*.weights.h5"))) == 2
    for count in (int(epochs) - 1, 8):
        weights, _, _ = patient_run(tmp_path / "parts", noise, epochs=count)
    assert epochs < 8
    assert_same(weights, whole)
    # With more patience it goes on.
    assert patient_run(tmp_path / "parts", noise, patience=8)[1] == 8 - epochs


def test_a_checkpoint_before_the_callbacks_that_it_saves_is_refused(noise, tmp_path):
    model, loader = make(noise)
    model.compile("sgd", "binary_crossentropy")
    early = keras.callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True)
    saver = LoaderCheckpoint(loader, tmp_path / "run", callbacks=[early])
    with pytest.raises(LoaderError, match="Put it last among the callbacks"):
        model.fit(loader, epochs=4, callbacks=[saver, early], verbose=0, shuffle=False)
    model, loader = make(noise)
    model.compile("sgd", "binary_crossentropy")
    saver = LoaderCheckpoint(loader, tmp_path / "other", callbacks=[early])
    model.fit(loader, epochs=4, callbacks=[early, saver], verbose=0, shuffle=False)


def test_a_backup_without_the_position_of_the_loader_is_refused(tmp_path):
    model, loader = make(write(tmp_path / "data", 200))
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    for data in (loader, loader.map(lambda x, y: (x, 1 - y))):
        with pytest.raises(TrainingError, match=r"checkpoint=folder.*Received: .*BackupAndRestore"):
            train(model, data, callbacks=[backup])
    rows = next(iter(loader))
    run = {"optimizer": "sgd", "metrics": [], "callbacks": [backup]}
    assert train(model, tf.data.Dataset.from_tensors(rows), **run).samples == 64


def numbers(data, hidden="relu", order=("age", "height"), **options):
    """A model of two numbers, in an order, and its loader."""
    keras.utils.set_random_seed(0)
    inputs = {name: keras.Input((1,), name=name) for name in ("age", "height")}
    together = keras.layers.Concatenate()([inputs[name] for name in order])
    output = keras.layers.Dense(1, "sigmoid")(keras.layers.Dense(4, hidden)(together))
    options = {"label_names": ["label"], "cont_names": ["age", "height"]} | options
    return keras.Model(inputs, output), KerasSequenceLoader(
        data, 64, cat_names=[], seed=3, **options
    )


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    folder = write(tmp_path_factory.mktemp("people") / "rows", 200)
    frame = pl.read_parquet(folder / "rows.parquet")
    more = {"height": -pl.col("age"), "other": 1 - pl.col("label")}
    frame.with_columns(**more).write_parquet(folder / "rows.parquet", row_group_size=96)
    return folder


@pytest.fixture(scope="module")
def interrupted(people, tmp_path_factory):
    """Checkpoints of one run that was killed in its second epoch, by their save_freq."""
    folders = {freq: tmp_path_factory.mktemp("interrupted") / "run" for freq in ("epoch", 1)}
    for save_freq, folder in folders.items():
        with pytest.raises(KeyboardInterrupt):
            run_numbers(people, folder, save_freq, [Crash(1, 2)])
    return folders


@pytest.fixture
def copied(interrupted, tmp_path):
    """A copy of such a checkpoint."""
    return lambda save_freq: shutil.copytree(interrupted[save_freq], tmp_path / f"run {save_freq}")


# Metrics and an optimizer that cost little, where no assertion is about them.
CHEAP = {"metrics": ["mae"], "optimizer": "sgd"}


def run_numbers(data, folder, save_freq, callbacks=(), made=(), epochs=2, **settings):
    model, loader = numbers(data, **dict(made))
    saver = LoaderCheckpoint(loader, folder, save_freq)
    settings = CHEAP | settings
    report = train(model, loader, epochs=epochs, callbacks=callbacks, checkpoint=saver, **settings)
    return report.history, model.get_weights()


OTHER_RUNS = {
    "loss": ({}, {"loss": "mse"}, "the loss .*binary_crossentropy.* Received: mean_squared_error"),
    "class_weight": ({}, {"class_weight": {0: 1.0, 1: 9.0}}, "the class_weight .*: None.*'1': 9"),
    "label": ({"label_names": ["other"]}, {}, r"the label .*: label\. Received: other\."),
    "layer": ({"hidden": "tanh"}, {}, r"the model .*: activation=relu\. Received: activation=tanh"),
    "connection": (
        {"order": ("height", "age")},
        {},
        r"the model .*: age=0\. Received: age=1",
    ),
}


@pytest.mark.parametrize("other", OTHER_RUNS)
@pytest.mark.parametrize("save_freq", ["epoch", 1])
def test_a_checkpoint_of_another_run_is_refused_before_the_model_is_touched(
    people, copied, other, save_freq
):
    made, settings, message = OTHER_RUNS[other]
    model, loader = numbers(people, **made)
    before, saver = model.get_weights(), LoaderCheckpoint(loader, copied(save_freq), save_freq)
    for epochs in (1, 2):  # nothing is left to train, and the rest
        with pytest.raises(LoaderError, match=f"(?s)Expected {message}"):
            train(model, loader, epochs=epochs, checkpoint=saver, **CHEAP, **settings)
        assert_same(model.get_weights(), before)


@pytest.mark.parametrize(
    "metrics",
    [
        ["auc"],
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in (["mse"], [keras.metrics.AUC(50)])
        ),
    ],
)
def test_other_metrics_count_from_the_next_epoch_on(people, copied, tmp_path, metrics):
    whole, weights = run_numbers(people, tmp_path / "whole", "epoch", metrics=metrics)
    resumed, after = run_numbers(people, copied("epoch"), "epoch", metrics=metrics)
    for own, other in zip(resumed.values(), whole.values(), strict=True):  # Keras numbers the names
        np.testing.assert_allclose(own, other[1:], rtol=1e-6)
    assert_same(after, weights)
    with pytest.raises(LoaderError, match=r"Expected the metrics .*within an epoch"):
        run_numbers(people, copied(1), 1, metrics=metrics)


def test_the_same_run_in_other_words_resumes(people, tmp_path):
    """Names of layers that Keras has counted further, a lambda on another line, names of one loss."""

    def run(folder, loss, *callbacks):
        keras.layers.Dense(1)  # takes a number
        model, loader = numbers(people, hidden=eval("\n" * len(loss) + "lambda x: x * x"))  # noqa: S307
        settings = {"callbacks": callbacks, "checkpoint": tmp_path / folder, "metrics": []}
        settings |= {"optimizer": "sgd", "split": False}
        train(model, loader, epochs=2, loss=loss, **settings)
        return model.get_weights()

    whole = run("whole", "mse")
    with contextlib.suppress(KeyboardInterrupt):
        run("killed", "mse", Crash(1, 2))
    assert_same(run("killed", "mean_squared_error"), whole)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": optimizers.SGD(use_ema=True)},
        {"optimizer": optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 9))},
        {"precision": "float16"},
    ],
)
def test_an_optimizer_with_another_state_is_refused_with_a_remedy(people, copied, settings):
    with pytest.raises(LoaderError, match=r"(?s)variables.*schedule.*use_ema.*float16"):
        run_numbers(people, copied("epoch"), "epoch", **settings)
