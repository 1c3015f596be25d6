import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from loader import KerasSequenceLoader
from training import TrainingError, models, train
from training.split.step import SplitStep


def test_the_report_counts_every_row_and_learns(model, batches):
    report = train(
        model,
        batches(1000, 64),
        batches(300, 128, seed=5000),
        epochs=4,
        optimizer=keras.optimizers.Adam(0.03),
    )
    assert report.samples == 4000
    assert report.val_auc > 0.95
    assert report.loss_curve[-1] < 0.5 * report.loss_curve[0]
    assert len(report.history["val_loss"]) == 4
    assert set(report.history) == {"auc", "loss", "val_auc", "val_loss"}
    assert 0 < report.seconds < 120
    assert report.samples_per_second == pytest.approx(4000 / report.seconds)


def test_the_loss_curve_adds_up_to_the_epochs_losses(model, batches):
    report = train(model, batches(640, 64), epochs=2, optimizer="sgd", metrics=())
    assert len(report.loss_curve) == 20
    halves = np.reshape(report.loss_curve, (2, 10)).mean(axis=1)
    np.testing.assert_allclose(halves, report.history["loss"], rtol=1e-4)


def test_the_report_reads_as_a_table(model, batches):
    lines = str(train(model, batches(100, 64))).splitlines()
    assert lines[0].startswith("100 samples in ")
    assert [line.split()[0] for line in lines[1:]] == ["auc", "loss"]


def test_arrays_do_as_well():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, "sigmoid")])
    x = np.random.default_rng(0).normal(size=(70, 2))
    report = train(model, (x, x[:, :1] > 0), (x, x[:, :1] > 0))
    assert report.samples == 70
    assert report.val_auc is not None


@pytest.mark.parametrize("metrics", [None, ()])
def test_a_loss_that_is_no_number_ends_the_run(model, batches, metrics):
    dataset = batches(640, 64).map(lambda x, y: (x, y * float("nan")))
    with pytest.raises(TrainingError, match=r"Received: nan at step 1 of epoch 1.*learning rate"):
        train(model, dataset, epochs=3, metrics=metrics)


def test_a_nan_can_be_let_through(model, batches):
    dataset = batches(128, 64).map(lambda x, y: (x, y * float("nan")))
    report = train(model, dataset, metrics=(), stop_on_nan=False)
    assert np.isnan(report.history["loss"][0])


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras says so as well
def test_no_data_and_no_epochs_are_refused(model, batches):
    with pytest.raises(TrainingError, match="at least one row"):
        train(model, tf.data.Dataset.take(batches(64, 64), 0))
    with pytest.raises(TrainingError, match="epochs=0"):
        train(model, batches(64, 64), epochs=0)


def parquet_loader(folder, rows):
    """A loader over two files of the rows."""
    folder.mkdir()
    features = {name: rows.features[name][:, 0] for name in ("userId", "movieId")}
    values, lengths = (part[:, 0] for part in rows.features["genres"])
    frame = pl.DataFrame(features).with_columns(
        genres=pl.Series([list(part) for part in np.split(values, np.cumsum(lengths)[:-1])]),
        label=pl.Series(rows.label[:, 0]),
    )
    for number, part in enumerate((frame[: len(frame) // 2], frame[len(frame) // 2 :])):
        part.write_parquet(folder / f"{number}.parquet")
    return KerasSequenceLoader(
        folder,
        batch_size=32,
        label_names=["label"],
        cat_names=["userId", "movieId", "genres"],
        cont_names=[],
        shuffle=True,
        seed=1,
    )


def test_a_checkpoint_holds_the_loaders_position_and_is_gone_on_from(tmp_path, sizes, rows):
    def run(epochs, folder):
        keras.utils.set_random_seed(0)
        network = models.mlp(sizes, hidden=(8,), id_dtypes={"genres": ("int64", "int32")})
        loader = parquet_loader(folder, rows(200))
        report = train(network, loader, epochs=epochs, checkpoint=tmp_path / "checkpoint")
        return network, report

    once, _ = run(2, tmp_path / "a")
    (tmp_path / "checkpoint").rename(tmp_path / "whole")
    run(1, tmp_path / "b")
    twice, report = run(2, tmp_path / "c")
    assert report.samples == 200  # of the second epoch alone
    for own, other in zip(twice.get_weights(), once.get_weights(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-6)
    with pytest.raises(TrainingError, match=r"more epochs than.*has: 2\. Received: epochs=2"):
        run(2, tmp_path / "d")


def test_a_checkpoint_of_other_data_is_refused(model, batches, tmp_path):
    with pytest.raises(TrainingError, match=r"KerasSequenceLoader.*BackupAndRestore"):
        train(model, batches(64, 64), checkpoint=tmp_path / "checkpoint")


def test_patience_ends_the_run_with_the_best_weights(model, batches):
    labels = tf.random.Generator.from_seed(0)
    noise = batches(256, 64).map(lambda x, y: (x, tf.round(labels.uniform(tf.shape(y)))))
    report = train(
        model, noise, batches(256, 64, seed=9000), epochs=30, optimizer=keras.optimizers.Adam(0.1),
        patience=2,
    )  # fmt: skip
    losses = report.history["val_loss"]
    assert 3 <= len(losses) < 30
    best = model.evaluate(batches(256, 64, seed=9000), verbose=0, return_dict=True)["loss"]
    assert best == pytest.approx(min(losses), rel=1e-4)


@pytest.mark.parametrize("options", [{"patience": 3}, {"patience": 0, "validation_data": True}])
def test_early_stopping_needs_something_to_look_at(model, batches, options):
    if options.get("validation_data"):
        options = {**options, "validation_data": batches(64, 64)}
    with pytest.raises(TrainingError, match="validation_data and a patience"):
        train(model, batches(64, 64), **options)


def test_validated_ids_are_named_and_the_model_is_as_before(model, batches, rows):
    def beyond(x, y):
        return {**x, "movieId": x["movieId"] + 20}, y

    broken = batches(128, 64).map(beyond)
    with pytest.raises(TrainingError, match=r"ids of column movieId in 0 \.\. 39.*: \d+ \.\. 5\d$"):
        train(model, broken, validate_ids=True)
    model.fit(broken, verbose=0, shuffle=False)
    assert np.isfinite(model(rows(5).features)).all()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_split_step_learns_as_well(model, batches, precision):
    report = train(
        model,
        batches(1000, 64),
        batches(300, 128, seed=5000),
        epochs=3,
        optimizer=keras.optimizers.Adam(0.03),
        split=True,
        precision=precision,
        steps_per_execution=4,
    )
    assert report.samples == 3000
    assert report.val_auc > 0.95
    assert isinstance(model.train_step, SplitStep)


def test_a_trained_model_is_saved_and_loaded_by_keras(model, batches, tmp_path):
    train(model, batches(64, 64))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.evaluate(batches(64, 64), verbose=0, return_dict=True)["samples"] == 64
