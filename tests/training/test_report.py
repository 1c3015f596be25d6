"""The report of a run: while it trains, at its end, and in TensorBoard."""

import io
import xml.etree.ElementTree as ET
from dataclasses import replace

import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf
from rich.console import Console

from loader import KerasSequenceLoader
from training import TrainingError, TrainingReport, train
from training.run.label_values import LabelValues
from training.run.progress import EpochLines
from training.run.watch import Watch

# Metrics and an optimizer that cost little, where no assertion is about them.
CHEAP = {"metrics": [], "optimizer": "sgd"}


@pytest.fixture
def model():
    age = keras.Input((1,), name="age")
    return keras.Model({"age": age}, keras.layers.Dense(1, "sigmoid")(age))


@pytest.fixture
def batches():
    def made(count, size):
        age = np.random.default_rng(0).normal(size=(count, 1))
        rows = {"age": age.astype("float32")}, (age > 0).astype("float32")
        return tf.data.Dataset.from_tensor_slices(rows).batch(size)

    return made


@pytest.fixture
def report():
    history = {"auc": (0.5, 0.75), "loss": (0.7, 0.6)}
    return TrainingReport(1000, 2.0, (0.8, 0.7, 0.6, 0.5), history)


def test_it_is_a_table_in_80_columns(report):
    assert str(report).splitlines() == [
        "1,000 samples in 2.0 s, 500 samples/s",
        "auc   0.5000  0.7500",
        "loss  0.7000  0.6000",
    ]
    mixed = replace(report, mixing=12_000)
    assert str(mixed).splitlines()[1] == "A batch draws from 12,000 row groups."
    in_order = replace(report, mixing=1)
    assert str(in_order).splitlines()[1] == "A batch draws from one row group."
    many = TrainingReport(1, 1.0, (), {"val_accuracy": tuple(n / 100 for n in range(50))})
    last = str(many).splitlines()[-1]
    assert last.endswith("0.4800  0.4900")
    assert len(last) <= 80


@pytest.mark.parametrize(
    "change", [lambda loader: loader.map(lambda x, y: (x, y)), lambda loader: loader.take(2)]
)
def test_it_says_what_a_batch_of_a_changed_loader_draws_from(model, change):
    frame = pl.DataFrame({"age": np.arange(100, dtype="float32"), "label": [0, 1] * 50})
    loader = KerasSequenceLoader(frame, 50, ["label"], cont_names=["age"], seed=0)
    report = train(model, change(loader), **CHEAP)
    assert report.mixing == loader.mixing() == 1
    assert "A batch draws from one row group." in str(report)


def test_its_repr_is_one_line_and_its_history_a_frame(report):
    assert repr(report) == "TrainingReport(samples=1000, seconds=2.0, auc=0.7500, loss=0.6000)"
    assert pl.DataFrame(report.history)["auc"].to_list() == [0.5, 0.75]


def test_its_curve_is_a_picture(report):
    drawn = ET.fromstring(report.to_svg())  # noqa: S314 - our own
    lines = [part.get("points") for part in drawn if part.tag.endswith("polyline")]
    curve = next(points for points in lines if len(points.split()) == 4)
    heights = [float(point.split(",")[1]) for point in curve.split()]
    assert heights == sorted(heights)  # a falling loss, and SVG counts from above
    assert "<svg" in report._repr_html_()


def test_progress_is_a_line_for_each_epoch(model, batches, capsys):
    train(model, batches(128, 64), batches(64, 64), epochs=2, verbose=True, optimizer="sgd")
    header, *epochs = capsys.readouterr().out.splitlines()
    titles = "epoch    seconds  samples/s        auc       loss    val_auc   val_loss"
    assert header.split() == titles.split()
    assert [line.split()[0] for line in epochs] == ["1/2", "2/2"]
    assert all(len(line) <= 80 for line in (header, *epochs))


def test_progress_in_a_terminal_is_a_bar_that_goes_away(model, batches):
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80)
    watch = Watch(None, None, LabelValues({}, {}), stop_on_nan=True, saver=None)
    model.compile("sgd", "binary_crossentropy")
    data = batches(256, 64)
    model.fit(data, callbacks=[watch, EpochLines(watch, console)], verbose=0, shuffle=False)
    assert "4/4" in file.getvalue()
    assert file.getvalue().splitlines()[-1].split()[0] == "1/1"


@pytest.mark.parametrize("ended_by", [KeyboardInterrupt, OSError])
def test_a_run_that_is_ended_within_an_epoch_shows_the_terminals_cursor_again(
    model, batches, capsys, monkeypatch, ended_by
):
    monkeypatch.setenv("FORCE_COLOR", "1")  # which rich takes for a terminal

    class Ends(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002
            raise ended_by

    with pytest.raises(ended_by):
        train(model, batches(256, 64), callbacks=[Ends()], verbose=True, **CHEAP)
    said = capsys.readouterr().out
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    assert said.count(hidden) == said.count(shown) == 1


def events(folder):
    """Tag -> (step, value) of the event files, and the plugin that shows them."""
    found, plugins = {}, set()
    for path in sorted(folder.glob("events.*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                number = float(tf.make_ndarray(value.tensor))
                found.setdefault(value.tag, []).append((event.step, number))
                plugins.add(value.metadata.plugin_data.plugin_name)
    return found, plugins


def test_a_full_disk_is_not_taken_for_a_lack_of_memory(model, batches, tmp_path, full_disk):
    """TensorFlow has one error for both, where no byte is left."""
    with full_disk(1), pytest.raises(TrainingError, match=rf"able to write {tmp_path}/train\. Rec"):
        train(model, batches(64, 64), tensorboard=tmp_path, **CHEAP)


@pytest.mark.parametrize(
    ("together", "steps"),
    [(1, [99, 199, 389, 489]), (32, [127, 223, 289, 290 + 127, 290 + 223, 290 + 289])],
)
def test_tensorboard_finds_curves(model, batches, tmp_path, together, steps):
    report = train(
        model, batches(290 * 4, 4), batches(64, 64), epochs=2, tensorboard=tmp_path,
        optimizer="sgd", steps_per_execution=together,
    )  # fmt: skip
    curves, plugins = events(tmp_path / "train")
    assert plugins == {"scalars"}
    assert [step for step, _ in curves["batch_loss"]] == steps
    assert curves["epoch_auc"] == [
        (epoch, pytest.approx(auc)) for epoch, auc in enumerate(report.history["auc"])
    ]
    assert curves["epoch_learning_rate"] == [(0, pytest.approx(0.01)), (1, pytest.approx(0.01))]
    assert curves["epoch_samples_per_second"][0][1] > 0
    validation, _ = events(tmp_path / "validation")
    assert [value for _, value in validation["epoch_loss"]] == pytest.approx(
        report.history["val_loss"]
    )


def test_curves_go_on_after_each_epoch_where_the_optimizer_counts_fewer_updates(
    model, batches, tmp_path
):
    """Epochs of 7 steps, of which the optimizer counts one."""
    kept = keras.optimizers.SGD(0.01, gradient_accumulation_steps=7)
    data = batches(290 * 4, 4)
    train(model, data, epochs=2, tensorboard=tmp_path, optimizer=kept, metrics=[])
    curves, _ = events(tmp_path / "train")
    assert [step for step, _ in curves["batch_loss"]] == [99, 199, 389, 489]
