"""A model of several outputs: each has the metrics, and the report names them."""

import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from loader import KerasSequenceLoader
from training import TrainingError, compile_model, optimizers, train

RNG = np.random.default_rng(0)
X = {"a": RNG.random((256, 1)).astype("float32")}
# One that can be learnt and one that is decided the other way round.
LABELS = {"click": (X["a"] > 0.5).astype("float32"), "buy": (X["a"] < 0.5).astype("float32")}


# Metrics and an optimizer that cost little, where no assertion is about them.
CHEAP = {"metrics": [], "optimizer": "sgd"}
LONG = pytest.mark.long
# Each option is tried once with names and once in order; the rest of the pairs takes longer.
CROSSED = [(True, True), (False, False)]
PAIRS = [*CROSSED, *(pytest.param(*pair, marks=LONG) for pair in ((True, False), (False, True)))]


def make_model(named):
    a = keras.Input((1,), name="a")
    outputs = [keras.layers.Dense(1, "sigmoid", name=name)(a) for name in LABELS]
    return keras.Model({"a": a}, dict(zip(LABELS, outputs, strict=True)) if named else outputs)


def predicted_by(model, named):
    """The predictions of each output, by its name."""
    found = model(X)
    found = found if named else dict(zip(LABELS, found, strict=True))
    return {name: tensor.numpy() for name, tensor in found.items()}


@pytest.mark.parametrize(
    ("named", "metrics", "names"),
    [
        pytest.param(True, None, ["auc"], marks=LONG),
        (False, ["mae", "accuracy"], ["accuracy", "mae"]),
        pytest.param(True, [keras.metrics.AUC(name="area", curve="PR")], ["area"], marks=LONG),
        (False, [keras.metrics.BinaryAccuracy(name="high", threshold=0.9)], ["high"]),
        pytest.param(True, (), [], marks=LONG),
    ],
    ids=["default", "names", "object", "object, list", "none"],
)
def test_each_output_has_every_metric(named, metrics, names):
    model = make_model(named)
    y = LABELS if named else tuple(LABELS.values())
    report = train(model, (X, y), (X, y), epochs=2, metrics=metrics, optimizer="sgd")
    made = [f"{output}_{name}" for output in ("buy", "click") for name in [*names, "loss"]]
    assert sorted(report.history) == sorted(
        [*made, "loss", *(f"val_{n}" for n in made), "val_loss"]
    )
    assert report.samples == 512
    score = predicted_by(model, named)
    for name, label in LABELS.items() if "accuracy" in names else ():
        right = ((score[name] > 0.5) == label).mean()
        assert report.history[f"val_{name}_accuracy"][-1] == pytest.approx(right)


def mean_squared_error(y, score):
    """Compute another function than Keras' loss of this name."""
    return 10 * keras.ops.abs(y - score)


def test_a_metric_of_a_function_of_the_user_is_never_another_one():
    """Refuse to recreate it, and count with one for each output."""
    make = keras.metrics.MeanMetricWrapper
    with pytest.raises(TrainingError, match=r"metrics=\{output: \[metric\]\}"):
        train(make_model(True), (X, LABELS), metrics=[make(mean_squared_error, name="mine")])
    model = make_model(True)
    each = {name: [make(mean_squared_error, name="mine")] for name in LABELS}
    report = train(model, (X, LABELS), (X, LABELS), metrics=each, optimizer="sgd")
    for name, score in predicted_by(model, True).items():
        expected = 10 * np.abs(LABELS[name] - score).mean()
        assert report.history[f"val_{name}_mine"] == pytest.approx([expected], rel=1e-5)


@pytest.mark.parametrize(("named", "xla"), PAIRS)
def test_the_split_step_trains_several_outputs_as_keras_does(named, xla):
    """Twice, since Keras makes most metrics in their first use."""
    y = LABELS if named else tuple(LABELS.values())
    found = []
    for settings in ({"split": False}, {"split": True, "xla": xla}):
        keras.utils.set_random_seed(3)
        model = make_model(named)
        losses = {"click": "binary_crossentropy", "buy": "mse"}
        metrics = {"click": ["accuracy"], "buy": ["mae"]}
        weights = {"click": 1.0, "buy": 0.5}
        compile_model(model, "adagrad", losses, metrics=metrics, loss_weights=weights, **settings)
        runs = [model.fit(X, y, batch_size=100, verbose=0, shuffle=False).history for _ in "ab"]
        found.append((runs, model.get_weights()))
    (expected, weights), (histories, split) = found
    for run, one in zip(histories, expected, strict=True):
        assert {name: values[0] for name, values in run.items()} == pytest.approx(
            {name: values[0] for name, values in one.items()}, abs=1e-5
        )
    for own, others in zip(split, weights, strict=True):
        np.testing.assert_allclose(own, others, rtol=0, atol=1e-6)


@LONG
def test_several_outputs_in_16_bits():
    """The precision of the split step, which several outputs have if they ask for it."""
    report, _ = measured(True, AMOUNT, loss={"click": "binary_crossentropy", "buy": "mse"})
    rounded, _ = measured(
        True,
        AMOUNT,
        loss={"click": "binary_crossentropy", "buy": "mse"},
        precision="bfloat16",
    )
    assert set(report.history) == set(rounded.history)
    assert rounded.history["loss"][0] == pytest.approx(report.history["loss"][0], rel=0.02)


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
    assert train(make_model(named=True), loader, **CHEAP).samples == 256


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
        assert train(model, (X, y), **CHEAP).samples == 256


@pytest.mark.parametrize(
    ("labels", "what"),
    [
        (tuple(LABELS.values()), "labels"),
        ([*LABELS.values()], "labels"),
        ((LABELS, (CLICK, CLICK)), "weights of rows"),
    ],
    ids=["tuple", "list", "weights"],
)
def test_labels_by_position_of_outputs_with_names(labels, what):
    """Keras pairs them with the names in sorted order: buy with the label of click."""
    data = (X, *labels) if what != "labels" else (X, labels)
    told = rf"{what} by name in train_data.*Received: 2 without names.*'click': \.\.\., 'buy'"
    with pytest.raises(TrainingError, match=told):
        train(make_model(named=True), data)


# Not what a network of one weight predicts, so that every loss differs.
AMOUNT = {"click": LABELS["click"], "buy": 3.0 * X["a"] + 1.0}


def entropies(prediction):
    return -np.log(np.where(CLICK > 0, prediction, 1 - prediction))


def measured(named, data, **settings):
    """The report of a step that changes nothing, and the predictions."""
    keras.utils.set_random_seed(3)
    model = make_model(named)
    predictions = predicted_by(model, named)
    data = (X, data if named else tuple(data.values()))
    return train(model, data, optimizer=optimizers.SGD(0.0), **settings), predictions


@pytest.mark.parametrize(("named", "in_order"), PAIRS)
@pytest.mark.parametrize(
    ("weights", "buy"),
    [
        pytest.param(None, 1.0, marks=LONG),
        ({"buy": 0.25}, 0.25),
        pytest.param([1.0, 0.25], 0.25, marks=LONG),
    ],
    ids=["none", "of one", "in order"],
)
def test_each_output_has_its_own_loss_and_metrics(named, weights, buy, in_order):
    losses = {"buy": "mean_squared_error", "click": keras.losses.BinaryCrossentropy()}
    report, predicted = measured(
        named,
        AMOUNT,
        loss=[losses["click"], losses["buy"]] if in_order else losses,
        metrics={"buy": ["mean_absolute_error"]},
        loss_weights=weights,
    )
    squares = (predicted["buy"] - AMOUNT["buy"]) ** 2
    entropy = entropies(predicted["click"]).mean()
    expected = {
        "buy_loss": squares.mean(),
        "buy_mean_absolute_error": np.abs(predicted["buy"] - AMOUNT["buy"]).mean(),
        "click_loss": entropy,
        "loss": entropy + buy * squares.mean(),
    }
    assert {name: values[0] for name, values in report.history.items()} == pytest.approx(
        expected, rel=1e-3
    )


@pytest.mark.parametrize(("named", "both"), PAIRS)
def test_a_list_of_lists_has_the_metrics_of_each_output(named, both):
    second = ["mean_absolute_error"] if both else None
    report, predicted = measured(named, LABELS, metrics=[["accuracy"], second])
    expected = {"click_accuracy": ((predicted["click"] > 0.5) == LABELS["click"]).mean()}
    if second:
        expected["buy_mean_absolute_error"] = np.abs(predicted["buy"] - LABELS["buy"]).mean()
    found = {name: values[0] for name, values in report.history.items() if "loss" not in name}
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("named", [True, False], ids=["dict", "list"])
def test_auc_is_measured_of_probabilities(named):
    losses = {"click": "binary_focal_crossentropy", "buy": "huber"}
    report, _ = measured(named, AMOUNT, loss=losses)
    assert set(report.history) == {"click_auc", "click_loss", "buy_loss", "loss"}


def test_auc_is_not_measured_of_other_numbers():
    losses = {
        "name": "mse",
        "function": keras.losses.mean_squared_error,
        "object": keras.losses.MeanSquaredError(),
    }
    a = keras.Input((1,), name="a")
    model = keras.Model({"a": a}, {name: keras.layers.Dense(1, name=name)(a) for name in losses})
    report = train(model, (X, dict.fromkeys(losses, AMOUNT["buy"])), loss=losses, optimizer="sgd")
    assert set(report.history) == {"loss", "name_loss", "function_loss", "object_loss"}


@pytest.mark.parametrize("named", [True, False], ids=["dict", "list"])
def test_an_output_without_a_loss_is_not_trained(named):
    model = make_model(named)
    before = model.get_layer("buy").get_weights()
    y = LABELS if named else tuple(LABELS.values())
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        train(model, (X, y), loss={"click": "binary_crossentropy"}, **CHEAP)
    for old, new in zip(before, model.get_layer("buy").get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(("named", "is_dataset"), PAIRS)
def test_rows_are_weighed_by_the_label_of_an_output(named, is_dataset):
    model = make_model(named)
    predicted = predicted_by(model, named)
    y = LABELS if named else tuple(LABELS.values())
    data = tf.data.Dataset.from_tensors((X, y)) if is_dataset else (X, y)
    weights = {"click": {0: 0.5, 1: 20.0}}
    report = train(model, data, optimizer=optimizers.SGD(0.0), class_weight=weights, metrics=[])
    expected = (np.where(CLICK > 0, 20.0, 0.5) * entropies(predicted["click"])).mean()
    assert report.history["click_loss"][0] == pytest.approx(expected, rel=1e-3)
    buy = -np.log(np.where(LABELS["buy"] > 0, predicted["buy"], 1 - predicted["buy"])).mean()
    assert report.history["buy_loss"][0] == pytest.approx(buy, rel=1e-3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"loss": {"click": "mse", "buy_": "mse"}},
            r"loss by the names of the outputs, click, buy\. Received: buy_\. Did",
        ),
        ({"loss": ["mse"]}, r"loss for each of the model's 2 outputs.*\['mse'\]"),
        ({"loss": {"click": "msee", "buy": "mse"}}, "loss as an object of Keras.*'msee'"),
        ({"metrics": {"other": ["auc"]}}, "metrics by the names.*Received: other"),
        ({"metrics": {"click": "auc"}}, "metrics as a list.*Received: 'auc'"),
        ({"metrics": [["auc"]]}, r"metrics for each of the model's 2 outputs.*\[\['auc'\]\]"),
        ({"metrics": {"click": ["acu"]}}, "metric as an object.*Did you mean 'auc'"),
        ({"loss_weights": {"clik": 2.0}}, "loss_weights by the names.*Did you mean 'click'"),
        ({"loss_weights": [1.0]}, "loss_weights for each of the model's 2"),
        ({"loss_weights": {"click": "high"}}, "loss_weights as numbers from 0.*'high'"),
        ({"loss_weights": {"click": -1.0}}, "loss_weights as numbers from 0"),
        ({"class_weight": {1: 20.0}}, r"class_weight of each output by its name.*\{1: 20.0\}"),
        (
            {"class_weight": {"click": 20.0}},
            "class_weight as a dictionary of label.*Received: 20.0",
        ),
        (
            {"class_weight": {"klick": {1: 2.0}}},
            "class_weight of each output.*Did you mean 'click'",
        ),
    ],
)
@pytest.mark.parametrize("named", [True, False], ids=["dict", "list"])
def test_settings_that_do_not_fit_the_outputs(named, settings, message):
    y = LABELS if named else tuple(LABELS.values())
    with pytest.raises(TrainingError, match=message):
        train(make_model(named), (X, y), **settings)


def test_settings_by_name_for_an_output_without_one():
    a = keras.Input((1,), name="a")
    model = keras.Model({"a": a}, keras.layers.Dense(1, "sigmoid")(a))
    with pytest.raises(TrainingError, match=r"loss for the one output\. Received: click"):
        train(model, (X, CLICK), loss={"click": "mse"})


def test_an_output_without_a_label_is_trained_in_a_model_of_the_others():
    model = make_model(named=True)
    remedy = (
        r"train a model of them.*keras\.Model\(model\.input, {'click': model\.output\['click'\]}\)"
    )
    with pytest.raises(TrainingError, match=remedy):
        train(model, (X, {"click": CLICK}))
    clicks = keras.Model(model.input, {"click": model.output["click"]})
    before = model.get_layer("click").get_weights()[0]
    train(clicks, (X, {"click": CLICK}), **CHEAP)
    assert not np.array_equal(model.get_layer("click").get_weights()[0], before)


class Own(keras.Model):
    """A model whose outputs Keras knows once it has been called."""

    def __init__(self, names):
        super().__init__()
        self.made = {name: keras.layers.Dense(1, "sigmoid", name=name) for name in names}

    def call(self, x):
        return {name: layer(x["a"]) for name, layer in self.made.items()}


def test_the_losses_of_a_class_of_ones_own_name_its_outputs():
    losses = {"click": "binary_crossentropy", "buy": "mse"}
    own, keras_own = Own(losses), Own(losses)
    for model in (own, keras_own):
        model(X)
    keras_own.set_weights(own.get_weights())
    data = tf.data.Dataset.from_tensor_slices((X, LABELS)).batch(64)
    sgd = keras.optimizers.SGD(0.5)
    report = train(own, data, loss=losses, class_weight={"click": {1: 3.0}}, optimizer=sgd)
    weights = {"click": np.where(LABELS["click"] == 1, 3.0, 1.0)[:, 0], "buy": np.ones(256)}
    weighed = tf.data.Dataset.from_tensor_slices((X, LABELS, weights)).batch(64)
    keras_own.compile(keras.optimizers.SGD(0.5), losses)
    history = keras_own.fit(weighed, shuffle=False, verbose=0).history
    assert report.history["loss"][0] == pytest.approx(history["loss"][0], rel=1e-6)
    for one, other in zip(own.get_weights(), keras_own.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert {"click_auc", "click_loss", "buy_loss"} < {*report.history}


def test_a_loss_of_one_output_is_not_taken_for_all_of_a_class_of_ones_own():
    data = tf.data.Dataset.from_tensor_slices((X, LABELS)).batch(64)
    with pytest.raises(TrainingError, match=r"for the one output\. Received: click"):
        train(Own(LABELS), data, loss={"click": "binary_crossentropy"}, metrics=[])


def test_a_missing_label_of_one_output_is_to_be_filled_and_weighed():
    labels = {**LABELS, "buy": np.where(X["a"] < 0.2, np.nan, LABELS["buy"])}
    with pytest.raises(TrainingError, match=r"a weight of 0 for this one: .*\{output: weights\}"):
        train(make_model(named=True), (X, labels))
