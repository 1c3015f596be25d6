import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError, train


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
