"""Model and loader go on together where they were, also after the process was killed."""

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest

from loader import KerasSequenceLoader, LoaderCheckpoint, LoaderError
from workflow.files.sealed import sealed, unsealed


def make_model():
    keras.utils.set_random_seed(0)
    price = keras.Input((1,), name="price")
    hidden = keras.layers.Dense(4, "relu")(price)
    model = keras.Model({"price": price}, keras.layers.Dense(1, "sigmoid")(hidden))
    model.compile(keras.optimizers.SGD(0.01, 0.9), "binary_crossentropy")
    return model


@pytest.fixture
def make_prices(make):
    return lambda **options: make(cat_names=[], **{"batch_size": 100, **options})


class StopAfter(keras.callbacks.Callback):
    """Ends training as a crash would: with an error."""

    def __init__(self, batches):
        super().__init__()
        self.left = batches

    def on_train_batch_end(self, batch, logs=None):
        del batch, logs
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def train(loader, folder, callbacks=(), epochs=3, data=None, **fit):
    model = make_model()
    checkpoint = LoaderCheckpoint(loader, folder, save_freq=4)
    model.fit(
        loader if data is None else data,
        epochs=epochs,
        initial_epoch=checkpoint.restore(model),
        callbacks=[checkpoint, *callbacks],
        verbose=0,
        shuffle=False,
        **fit,
    )
    return model


def assert_same(one, other):
    for a, b in zip(one.variables, other.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    for a, b in zip(one.optimizer.variables, other.optimizer.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    """The model of a training that nothing interrupted."""
    loader = KerasSequenceLoader(folder, 100, ["rating"], cont_names=["price"], seed=7)
    return train(loader, tmp_path_factory.mktemp("whole"))


def test_an_interrupted_training_ends_with_the_very_same_model(make_prices, tmp_path, whole):
    """After 4 batches, which were saved just then, 9, of which 8 were, and 20, an epoch's end."""
    for saved, crash in ((0, 4), (4, 9), (8, 20)):
        with pytest.raises(KeyboardInterrupt):
            train(make_prices(seed=7 + saved), tmp_path / "killed", [StopAfter(crash - saved)])
    loader = make_prices(seed=99)  # the checkpoint's seed counts
    resumed = train(loader, tmp_path / "killed")
    assert_same(resumed, whole)
    assert loader.get_state()["epoch"] == 3


def test_batches_that_keras_read_ahead_are_not_lost(make_prices, tmp_path):
    """`class_weight` makes Keras prefetch, so that the loader is ahead of the model."""
    weights = {"class_weight": {0: 1.0, 1: 2.0}}
    whole = train(make_prices(), tmp_path / "whole", **weights)
    with pytest.raises(KeyboardInterrupt):
        train(make_prices(), tmp_path / "killed", [StopAfter(15)], **weights)
    assert json.loads((tmp_path / "killed/checkpoint.json").read_text())["loader"]["batch"] == 4
    assert_same(train(make_prices(), tmp_path / "killed", **weights), whole)


def test_steps_per_execution_and_map(make_prices, tmp_path):
    loader = make_prices()
    model = make_model()
    model.compile("sgd", "mse", steps_per_execution=4)
    checkpoint = LoaderCheckpoint(loader, tmp_path, save_freq=1)
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            del batch, logs
            state = json.loads((tmp_path / "checkpoint.json").read_text())
            seen.append((state["epoch"], state["loader"]["epoch"], state["loader"]["batch"]))

    mapped = loader.map(lambda x, y: (x, y))
    model.fit(mapped, epochs=2, callbacks=[checkpoint, Watch()], verbose=0, shuffle=False)
    # After its last batches an epoch is not saved before it has been validated.
    assert seen == [(0, 0, 4), (0, 0, 8), (0, 0, 8), (1, 1, 4), (1, 1, 8), (1, 1, 8)]
    assert json.loads((tmp_path / "checkpoint.json").read_text())["epoch"] == 2


def test_a_rate_that_a_callback_has_set_counts_though_the_first_run_restored_nothing(
    make_prices, tmp_path
):
    model, loader = make_model(), make_prices()
    halving = keras.callbacks.LearningRateScheduler(lambda _, rate: rate / 2)
    callbacks = [halving, LoaderCheckpoint(loader, tmp_path)]
    model.fit(loader, callbacks=callbacks, verbose=0, shuffle=False)
    resumed = make_model()
    assert LoaderCheckpoint(make_prices(), tmp_path).restore(resumed) == 1
    assert float(resumed.optimizer.learning_rate) == pytest.approx(0.01 / 2)


@pytest.mark.parametrize(
    "fit",
    [
        "loader, epochs=2",
        "loader.repeat(), epochs=5, steps_per_epoch=10",
    ],
)
@pytest.mark.long
def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(folder, tmp_path, fit, monkeypatch):
    """SIGKILL a training of 50 steps that saves after every batch, then start it again."""
    program = textwrap.dedent(
        f"""
        import sys, warnings
        warnings.simplefilter("error", UserWarning)
        sys.path.insert(0, {str(folder.parent)!r})
        import keras
        from loader import KerasSequenceLoader, LoaderCheckpoint
        keras.utils.set_random_seed(0)
        price = keras.Input((1,), name="price")
        model = keras.Model({{"price": price}}, keras.layers.Dense(1)(price))
        model.compile("adam", "mse")
        loader = KerasSequenceLoader(
            {str(folder)!r}, 40, ["rating"], cont_names=["price"], seed=int(sys.argv[1])
        )
        checkpoint = LoaderCheckpoint(loader, {str(tmp_path)!r}, save_freq=1)
        epoch = checkpoint.restore(model)
        print("at", loader.get_state()["epoch"] * 25 + loader.get_state()["batch"], flush=True)
        class Tell(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                print("batch", flush=True)
        model.fit({fit}, initial_epoch=epoch, callbacks=[checkpoint, Tell()], verbose=0,
                  shuffle=False)
        print("done", [float(v.numpy().sum()) for v in model.variables], flush=True)
        """
    )

    def run(seed, kill_after):
        lines, trained = [], 0
        with subprocess.Popen(
            [sys.executable, "-c", program, str(seed)], stdout=subprocess.PIPE, text=True
        ) as process:
            for line in process.stdout:
                lines.append(line.strip())
                trained += line == "batch\n"
                if trained == kill_after:
                    process.send_signal(signal.SIGKILL)
                    break
        start = next(int(line.split()[1]) for line in lines if line.startswith("at"))
        return start, trained, lines[-1]

    start, trained, _ = run(1, 27)
    assert (start, trained) == (0, 27)
    start, _, resumed = run(2, None)
    assert start in (27, 28), "the batch after the last one told may have been saved as well"
    for file in tmp_path.iterdir():
        file.unlink()
    monkeypatch.setattr(sys, "argv", ["", "1"])
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(program, {})  # noqa: S102
    assert printed.getvalue().splitlines()[-1] == resumed, "a kill left another model than none"


@pytest.fixture(scope="module")
def saved(folder, tmp_path_factory):
    """A checkpoint that is whole; a test spoils a copy."""
    loader = KerasSequenceLoader(folder, 100, ["rating"], cont_names=["price"])
    path = tmp_path_factory.mktemp("saved")
    train(loader, path, epochs=1)
    return path


def test_one_checkpoint_is_kept_and_a_finished_training_is_not_repeated(make_prices, saved):
    assert len(list(saved.glob("*.weights.h5"))) == 1
    assert LoaderCheckpoint(make_prices(), saved).restore(make_model()) == 1


@pytest.fixture
def damaged(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "damaged")


def edited(**changes):
    return lambda content: sealed({**unsealed(content, ""), **changes})


SPOILT = {
    "half an object": lambda _: b"{",
    "a list": lambda _: b"[]",
    "no sum": lambda _: b'{"format": 2, "epoch": 0, "loader": {}}',
    "another epoch": lambda content: content.replace(b'"epoch": 1', b'"epoch": 3', 1),
    "a newer format": edited(format=11),
    "more": edited(more=1),
    "weights outside": edited(weights="../0123456789abcdef.weights.h5"),
    "best weights outside": edited(best={"0": {"weights": "../0123456789abcdef.weights.h5"}}),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_damaged_checkpoint(make_prices, damaged, name):
    path = damaged / "checkpoint.json"
    path.write_bytes(SPOILT[name](path.read_bytes()))
    with pytest.raises(LoaderError, match=r"checkpoint\.json.*Remove the folder"):
        LoaderCheckpoint(make_prices(), damaged).restore(make_model())


def test_any_changed_byte_of_the_weights_is_refused_before_the_model_is_touched(
    make_prices, damaged
):
    (path,) = damaged.glob("*.weights.h5")
    raw, model, checkpoint = (
        path.read_bytes(),
        make_model(),
        LoaderCheckpoint(make_prices(), damaged),
    )
    before = [variable.numpy() for variable in model.variables]
    places = [*range(0, len(raw), len(raw) // 200), len(raw) - 1]
    for content in [raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :] for at in places] + [
        raw[:-1],
        raw + b"\0",
        b"",
    ]:
        path.write_bytes(content)
        with pytest.raises(LoaderError, match=rf"{path.name}, with checksum .* damaged"):
            checkpoint.restore(model)
    path.unlink()
    with pytest.raises(LoaderError, match=r"Received: no such file or directory\."):
        checkpoint.restore(model)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    path.write_bytes(raw)
    assert checkpoint.restore(model) == 1


def test_the_next_save_removes_what_a_kill_left_and_nothing_else(make_prices, damaged):
    own = {"0123456789abcdef.weights.h5", "checkpoint.json.01234567.partial"}
    others = {"best.weights.h5", "notes.partial", "0.weights.h5"}
    for name in own | others:
        (damaged / name).write_text("")
    train(make_prices(), damaged, epochs=2)
    left = {path.name for path in damaged.iterdir()}
    assert left & own == set()
    assert others <= left
    assert len(left) == len(others) + 2


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_save_that_fails_leaves_the_checkpoint_before(make_prices, damaged, monkeypatch, call):
    def full(*_):
        raise OSError(28, "No space left on device")

    before = {path.name: path.read_bytes() for path in damaged.iterdir()}
    monkeypatch.setattr(os, call, full)
    with pytest.raises(
        LoaderError, match=r"write a checkpoint to .*No space left.*free some space"
    ):
        train(make_prices(), damaged, epochs=2)
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in damaged.iterdir()} == before


@pytest.mark.parametrize(
    "room",
    [
        pytest.param(1_000, marks=pytest.mark.long),
        20_000,
        pytest.param(50_000, marks=pytest.mark.long),
    ],
)
def test_a_disk_that_is_full_ends_in_the_error_alone(tmp_path, room):
    """HDF5 does not survive that a file cannot be written: the process crashed at its end."""
    program = textwrap.dedent(f"""
        import resource
        import keras
        import numpy as np
        from loader import KerasSequenceLoader, LoaderCheckpoint, LoaderError

        resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, resource.RLIM_INFINITY))
        x = keras.Input((1,), name="x")
        hidden = keras.layers.Dense(100)(keras.layers.Dense(100)(x))
        model = keras.Model({{"x": x}}, keras.layers.Dense(1)(hidden))
        model.compile("adam", "mse")
        rows = {{"x": np.zeros(10, "float32"), "y": np.ones(10, "float32")}}
        loader = KerasSequenceLoader(rows, 5, ["y"], cont_names=["x"])
        try:
            model.fit(loader, verbose=0, callbacks=[LoaderCheckpoint(loader, "checkpoint")])
        except LoaderError as error:
            print(error)
    """)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "write a checkpoint to checkpoint. Received: [Errno 27] File too large" in done.stdout
    assert "free some space" in done.stdout
    assert "h5py" not in done.stderr
    assert list(tmp_path.rglob("*.h5")) == []


def test_of_two_runs_with_one_folder_the_second_ends_and_the_checkpoint_is_whole(
    make_prices, tmp_path
):
    """A nightly job that is started twice: neither removes or replaces what the other has saved."""

    class OtherRun(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            del logs
            if epoch == 1:
                train(make_prices(), tmp_path, epochs=2)

    with pytest.raises(
        LoaderError, match=r"this run alone to save into .*another run .*of its own"
    ):
        train(make_prices(), tmp_path, [OtherRun()])
    assert LoaderCheckpoint(make_prices(), tmp_path).restore(make_model()) == 2
    assert len(list(tmp_path.glob("*.weights.h5"))) == 1
    train(make_prices(), tmp_path)  # resumes


def test_another_model(make_prices, damaged):
    price = keras.Input((1,), name="price")
    other = keras.Model(price, keras.layers.Dense(7)(keras.layers.Dense(7)(price)))
    other.compile("sgd", "mse")
    with pytest.raises(
        LoaderError, match=r"Expected the model of the checkpoint .*units=\d.* Received: .*units=7"
    ):
        LoaderCheckpoint(make_prices(), damaged).restore(other)
    # The cause is told, and not the model, which has other inputs by it.
    with pytest.raises(LoaderError, match=r"the sample_weight of .*: None\. Received: userId\."):
        LoaderCheckpoint(make_prices(sample_weight="userId"), damaged).restore(other)


def test_epochs_that_are_not_the_loaders(make_prices, tmp_path):
    with pytest.raises(LoaderError, match=r"steps=5 in fit\. Pass loader\.repeat\(\)"):
        train(make_prices(), tmp_path, steps_per_epoch=5)
    loader = make_prices()
    with pytest.raises(LoaderError, match="steps=3 in fit"):
        train(loader, tmp_path, data=loader.take(3))
    with pytest.raises(LoaderError, match="save_freq as a whole number"):
        LoaderCheckpoint(make_prices(), tmp_path, save_freq=0)


# An epoch of the loader has 10 batches, and one of Keras 7 or, to read it twice, 20.
@pytest.mark.parametrize(
    ("steps", "crash"),
    [
        (7, 3),
        pytest.param(7, 7, marks=pytest.mark.long),
        pytest.param(7, 13, marks=pytest.mark.long),
        (20, 27),
    ],
)
def test_epochs_of_any_number_of_steps_go_on_in_the_midst(make_prices, tmp_path, steps, crash):
    weights = {0: 1.0, 1: 2.0}  # Keras reads ahead

    def run(folder, callbacks=()):
        loader, epochs = make_prices(), []
        told = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, _: epochs.append(epoch))
        more = {"steps_per_epoch": steps, "epochs": 4, "class_weight": weights}
        data = loader.repeat()
        model = train(loader, tmp_path / folder, [told, *callbacks], data=data, **more)
        return model, epochs, json.loads((tmp_path / folder / "checkpoint.json").read_text())

    whole, epochs, saved = run("whole")
    assert epochs == [0, 1, 2, 3]
    assert (saved["epoch"], saved["steps"]) == (4, 0)
    assert saved["loader"]["epoch"] * 10 + saved["loader"]["batch"] == 4 * steps
    with pytest.raises(KeyboardInterrupt):
        run("killed", [StopAfter(crash)])
    resumed, rest, after = run("killed")
    assert rest == epochs[-len(rest) :]
    assert_same(resumed, whole)
    assert after["loader"] == saved["loader"]


def test_an_evaluation_on_the_same_loader_takes_nothing_from_training(make_prices, tmp_path):
    loader = make_prices()
    more = {"steps_per_epoch": 7, "epochs": 3, "validation_data": loader}
    train(loader, tmp_path, data=loader.repeat(), **more)
    # The evaluations took the epochs 1 and 3, which began between those of training.
    saved = json.loads((tmp_path / "checkpoint.json").read_text())["loader"]
    assert (saved["epoch"], saved["batch"]) == (4, 1)
