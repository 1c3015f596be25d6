"""Metrics that count rows by their weights."""

import keras
import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, roc_auc_score

from training import train

RNG = np.random.default_rng(0)
X = {"a": RNG.normal(size=(300, 1)).astype("float32")}
Y = (X["a"] + RNG.normal(size=(300, 1)) > 0).astype("float32")
WEIGHTS = RNG.gamma(1.0, size=300).astype("float32")


def area():
    return keras.metrics.AUC(num_thresholds=5_000, name="area")


@pytest.mark.parametrize("split", [True, False])
def test_rows_count_by_their_weights(split):
    keras.utils.set_random_seed(1)
    a = keras.Input((1,), name="a")
    model = keras.Model({"a": a}, keras.layers.Dense(1, "sigmoid")(a))
    one = area()  # of which each use counts for itself
    report = train(
        model,
        (X, Y, WEIGHTS),
        (X, Y, WEIGHTS),
        epochs=2,
        optimizer=keras.optimizers.SGD(0.0),
        metrics=[one],
        weighted_metrics=[one, "mae"],
        split=split,
    )
    score = model(X).numpy()[:, 0]
    wanted = {
        "area": roc_auc_score(Y[:, 0], score),
        "weighted_area": roc_auc_score(Y[:, 0], score, sample_weight=WEIGHTS),
        "mae": mean_absolute_error(Y[:, 0], score, sample_weight=WEIGHTS),
    }
    for name, value in wanted.items():
        for found in (report.history[name], report.history[f"val_{name}"]):
            assert found == pytest.approx([value] * 2, abs=1e-4), name


@pytest.mark.parametrize("split", [True, False])
def test_rows_of_each_output_count_by_its_weights(split):
    """A row of unknown outcome has the weight 0 for that output alone."""
    a = keras.Input((1,), name="a")
    outputs = {name: keras.layers.Dense(1, "sigmoid")(a) for name in ("click", "buy")}
    model = keras.Model({"a": a}, outputs)
    known = (X["a"][:, 0] > 0).astype("float32")
    data = (X, {"click": Y, "buy": Y}, {"click": np.ones(300, "float32"), "buy": known})
    report = train(
        model,
        data,
        optimizer=keras.optimizers.SGD(0.0),
        metrics=[],
        weighted_metrics={"buy": ["mae"]},
        split=split,
    )
    assert sorted(report.history) == ["buy_loss", "buy_mae", "click_loss", "loss"]
    score = model(X)["buy"].numpy()[:, 0]
    wanted = mean_absolute_error(Y[:, 0], score, sample_weight=known)
    assert report.history["buy_mae"] == pytest.approx([wanted])


def test_weights_of_classes_count():
    a = keras.Input((1,), name="a")
    model = keras.Model({"a": a}, keras.layers.Dense(1, "sigmoid")(a))
    report = train(
        model,
        (X, Y),
        optimizer=keras.optimizers.SGD(0.0),
        metrics=[],
        weighted_metrics=["mae"],
        class_weight={1: 3.0},
    )
    score = model(X).numpy()[:, 0]
    weights = np.where(Y[:, 0] == 1, 3.0, 1.0)
    wanted = mean_absolute_error(Y[:, 0], score, sample_weight=weights)
    assert report.history["mae"] == pytest.approx([wanted])
