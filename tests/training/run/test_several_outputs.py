"""A model of several outputs: each has the metrics, and the report names them."""

import keras
import numpy as np
import polars as pl
import pytest

from loader import KerasSequenceLoader
from training import TrainingError, train

RNG = np.random.default_rng(0)
X = {"a": RNG.random((256, 1)).astype("float32")}
# One that can be learnt and one that is decided the other way round.
LABELS = {"click": (X["a"] > 0.5).astype("float32"), "buy": (X["a"] < 0.5).astype("float32")}


def make_model(named):
    a = keras.Input((1,), name="a")
    outputs = [keras.layers.Dense(1, "sigmoid", name=name)(a) for name in LABELS]
    return keras.Model({"a": a}, dict(zip(LABELS, outputs, strict=True)) if named else outputs)


@pytest.mark.parametrize(
    ("named", "metrics", "names"),
    [
        (True, None, ["auc"]),
        (False, ["auc", "accuracy"], ["accuracy", "auc"]),
        (True, [keras.metrics.AUC(name="area", curve="PR")], ["area"]),
        (False, [keras.metrics.AUC(name="area", curve="PR")], ["area"]),
        (True, (), []),
    ],
    ids=["default", "names", "object", "object, list", "none"],
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


CLICK = LABELS["click"]
OTHERS = {
    "one array": CLICK,
    "one of a tuple": (CLICK,),
    "one by name": {"click": CLICK},
    "another name": {"click": CLICK, "sell": CLICK},
    "one too many": {**LABELS, "sell": CLICK},
    "one too many in a tuple": (CLICK, CLICK, CLICK),
}


@pytest.mark.parametrize("named", [True, False], ids=["dict", "list"])
@pytest.mark.parametrize("y", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("argument", ["train_data", "validation_data"])
def test_labels_that_are_not_the_outputs(named, y, argument):
    told = ", ".join(map(repr, y)) if isinstance(y, dict) else "without names"
    message = rf"labels 'click', 'buy' in {argument}.*these outputs.*Received: \d,? {told}\. Name"
    data = {"train_data": (X, LABELS if named else tuple(LABELS.values())), argument: (X, y)}
    with pytest.raises(TrainingError, match=message):
        train(make_model(named), **data)


def test_a_loader_of_one_label_is_told_with_its_name():
    data = pl.DataFrame({"a": X["a"][:, 0], "click": CLICK[:, 0], "buy": 1 - CLICK[:, 0]})
    columns = {"batch_size": 64, "cat_names": [], "cont_names": ["a"]}
    loader = KerasSequenceLoader(data, label_names=["click"], **columns)
    with pytest.raises(TrainingError, match=r"labels 'click', 'buy' .*Received: 1, 'click'\."):
        train(make_model(named=True), loader)
    loader = KerasSequenceLoader(data, label_names=["buy", "click"], **columns)
    assert train(make_model(named=True), loader).samples == 256


@pytest.mark.parametrize("y", [{"other": CLICK}, {}], ids=["another name", "none"])
def test_a_named_label_for_one_output(y):
    a = keras.Input((1,), name="a")
    for outputs in (keras.layers.Dense(1, name="click")(a), {"click": keras.layers.Dense(1)(a)}):
        with pytest.raises(TrainingError, match=r"one label in train_data.*Received"):
            train(keras.Model({"a": a}, outputs), (X, y))


def test_the_label_of_one_output_with_a_name():
    a = keras.Input((1,), name="a")
    model = keras.Model({"a": a}, {"click": keras.layers.Dense(1, "sigmoid")(a)})
    for y in (CLICK, (CLICK,), {"click": CLICK}):
        assert train(model, (X, y)).samples == 256
