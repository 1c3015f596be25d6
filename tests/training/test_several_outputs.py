"""A model of several outputs: each has the metrics, and the report names them."""

import keras
import numpy as np
import pytest

from training import TrainingError, train

RNG = np.random.default_rng(0)
X = {"a": RNG.random((256, 1)).astype("float32")}
# One that can be learnt and one that is decided the other way round.
LABELS = {"click": (X["a"] > 0.5).astype("float32"), "buy": (X["a"] < 0.5).astype("float32")}


def make_model(named):
    a = keras.Input((1,), name="a")
    outputs = [keras.layers.Dense(1, "sigmoid", name=name)(a) for name in LABELS]
    return keras.Model({"a": a}, dict(zip(LABELS, outputs, strict=True)) if named else outputs)


@pytest.mark.parametrize("named", [True, False], ids=["dict", "list"])
@pytest.mark.parametrize(
    ("metrics", "names"),
    [
        (None, ["auc"]),
        (["auc", "accuracy"], ["accuracy", "auc"]),
        ([keras.metrics.AUC(name="area", curve="PR")], ["area"]),
        ((), []),
    ],
    ids=["default", "names", "object", "none"],
)
def test_each_output_has_every_metric(named, metrics, names):
    model = make_model(named)
    y = LABELS if named else tuple(LABELS.values())
    report = train(model, (X, y), (X, y), epochs=2, metrics=metrics)
    made = [f"{output}_{name}" for output in ("buy", "click") for name in [*names, "loss"]]
    assert sorted(report.history) == sorted(
        [*made, "loss", *(f"val_{n}" for n in made), "val_loss"]
    )
    assert report.samples == 512
    score = model.predict(X, verbose=0)
    score = score if named else dict(zip(LABELS, score, strict=True))
    for name, label in LABELS.items() if "accuracy" in names else ():
        right = ((score[name] > 0.5) == label).mean()
        assert report.history[f"val_{name}_accuracy"][-1] == pytest.approx(right)


def test_training_with_metrics_is_split_for_one_output():
    model = make_model(named=True)
    with pytest.raises(TrainingError, match=r"one output to split the step .*Received: 2. Use"):
        train(model, (X, LABELS), split=True)
