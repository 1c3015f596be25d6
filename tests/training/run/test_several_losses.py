"""Several losses of one output: their sum is learnt, or they are refused."""

import itertools
from functools import cache

import keras
import numpy as np
import pytest

from training import TrainingError, compile_model, optimizers, train

RNG = np.random.default_rng(0)
X = {"a": RNG.random((64, 1)).astype("float32")}
Y = {"click": (RNG.random((64, 1)) > 0.5).astype("float32"), "qty": 3.0 * X["a"]}
LOSSES = {"click": ["binary_crossentropy", keras.losses.MeanSquaredError()], "qty": "mae"}


def network(form, names=tuple(Y)):
    keras.utils.set_random_seed(3)
    a = keras.Input((1,), name="a")
    made = [keras.layers.Dense(1, "sigmoid", name=name)(a) for name in names]
    outputs = {"dict": dict(zip(names, made, strict=True)), "list": made, "one": made[0]}
    return keras.Model({"a": a}, outputs[form])


def parts(model):
    """The three losses, by numpy."""
    predicted = model(X)
    predicted = predicted.values() if isinstance(predicted, dict) else predicted
    click, qty = (tensor.numpy() for tensor in predicted)
    entropy = -np.log(np.where(Y["click"] > 0, click, 1 - click))
    return entropy, (click - Y["click"]) ** 2, np.abs(qty - Y["qty"])


WEIGHTS = {
    "none": (None, (1, 1, 1)),
    "one for both": ({"click": 0.5}, (0.5, 0.5, 1)),
    "of each": ({"click": [0.5, 2], "qty": 3}, (0.5, 2, 3)),
    "in order": ([(0.5, None), 3.0], (0.5, 1, 3)),
}
# Each of the ways to give losses and weights once, with another step.
USUAL = [("dict", True, True, "of each"), ("dict", False, False, "in order")]
EVERY = itertools.product(["dict", "list"], [True, False], [True, False], WEIGHTS)


@pytest.mark.parametrize(
    ("form", "split", "in_order", "weighted"),
    [*USUAL, *(pytest.param(*each, marks=pytest.mark.long) for each in EVERY if each not in USUAL)],
)
def test_losses_of_one_of_several_outputs_are_added_up(form, split, in_order, weighted):
    model, (weights, each) = network(form), WEIGHTS[weighted]
    y = Y if form == "dict" else tuple(Y.values())
    expected = sum(w * part.mean() for w, part in zip(each, parts(model), strict=True))
    report = train(
        model, (X, y), (X, y), loss=[*LOSSES.values()] if in_order else LOSSES,
        loss_weights=weights, split=split, optimizer=optimizers.SGD(0.0),
    )  # fmt: skip
    assert report.history["loss"] == pytest.approx([expected], rel=1e-4)
    assert report.history["val_loss"] == pytest.approx([expected], rel=1e-5)
    # The area under the curve, as one of the losses is of a probability.
    assert "click_auc" in report.history
    assert "qty_auc" not in report.history


@cache
def trained_by_keras():
    model = network("dict")
    model.compile("sgd", LOSSES)
    model.fit(X, Y, verbose=0, batch_size=32)
    return model.get_weights()


@pytest.mark.parametrize("split", [True, False], ids=["split", "keras"])
def test_the_weights_after_training_are_those_of_keras(split):
    own = network("dict")
    train(own, (X, Y), loss=LOSSES, split=split, optimizer="sgd", metrics=[])
    for one, expected in zip(own.get_weights(), trained_by_keras(), strict=True):
        np.testing.assert_allclose(one, expected, rtol=0, atol=1e-6)


def test_rows_are_weighed_by_class_in_each_loss_of_an_output():
    model = network("dict")
    weights = np.where(Y["click"] > 0, 20.0, 0.5)
    entropy, square, absolute = parts(model)
    expected = (weights * (entropy + square)).mean() + absolute.mean()
    report = train(
        model, (X, Y), loss=LOSSES, class_weight={"click": {0: 0.5, 1: 20.0}},
        optimizer=optimizers.SGD(0.0), metrics=[],
    )  # fmt: skip
    assert report.history["loss"] == pytest.approx([expected], rel=1e-4)
    with pytest.raises(TrainingError, match=r"0 and 1, .*Received: 2"):
        train(model, (X, Y), loss=LOSSES, class_weight={"click": {2: 2.0}})


@pytest.mark.parametrize("order", [1, -1])
def test_labels_that_one_of_the_losses_does_not_take_are_found(order):
    wrong = {**Y, "click": Y["click"] * 3}
    loss = {**LOSSES, "click": LOSSES["click"][::order]}
    with pytest.raises(TrainingError, match=r"labels from 0 to 1 .* in 'click'\. Received: 3\."):
        train(network("dict"), (X, wrong), loss=loss, metrics=[], optimizer="sgd")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": {"click": []}}, r"losses in the list of an output\. Received: \[\]"),
        ({"loss": {"click": ["mse", None]}}, r"losses in the list of an output.*None"),
        ({"loss": {"click": ["mse", "msee"]}}, "loss as an object of Keras.*'msee'"),
        ({"loss_weights": {"click": [1.0]}}, r"loss_weights as numbers.*each of its losses"),
        ({"loss_weights": {"click": [1.0, -1.0]}}, "loss_weights as numbers from 0"),
        ({"loss_weights": {"qty": [1.0, 2.0]}}, "loss_weights as numbers from 0"),
    ],
)
def test_settings_of_several_losses_that_do_not_fit(settings, message):
    with pytest.raises(TrainingError, match=message):
        train(network("dict"), (X, Y), **{"loss": LOSSES, **settings})


@pytest.mark.parametrize("loss", [LOSSES["click"], {"click": LOSSES["click"]}], ids=["", "by name"])
@pytest.mark.parametrize("form", ["one", "list", "dict"])
@pytest.mark.parametrize("split", [True, False], ids=["split", "keras"])
def test_several_losses_of_the_only_output_are_refused(loss, form, split):
    """Keras would learn the first one alone."""
    model = network(form, ["click"])
    if form != "dict" or isinstance(loss, list):
        with pytest.raises(
            TrainingError, match=r"one loss, as the model has one output.*their sum"
        ):
            compile_model(model, loss=loss, split=split)
    with pytest.raises(TrainingError, match=r"one loss, as the model has one output.*their sum"):
        train(model, (X, Y["click"]), loss=loss, split=split)


@pytest.mark.parametrize("split", [True, False], ids=["split", "keras"])
def test_keras_adds_up_the_losses_of_an_output_with_a_name(split):
    model = network("dict", ["click"])
    predicted = model(X)["click"].numpy()
    entropy = -np.log(np.where(Y["click"] > 0, predicted, 1 - predicted)).mean()
    compile_model(model, "sgd", {"click": LOSSES["click"]}, split=split)
    found = model.evaluate(X, {"click": Y["click"]}, verbose=0, return_dict=True)["loss"]
    assert found == pytest.approx(entropy + ((predicted - Y["click"]) ** 2).mean(), rel=1e-5)


def test_the_sum_as_one_function_is_learnt():
    model = network("one", ["click"])
    predicted = model(X).numpy()
    entropy = -np.log(np.where(Y["click"] > 0, predicted, 1 - predicted)).mean()

    def both(y, y_pred):
        own = keras.losses.binary_crossentropy(y, y_pred)
        return own + keras.losses.mean_squared_error(y, y_pred)

    report = train(model, (X, Y["click"]), loss=both, optimizer=optimizers.SGD(0.0))
    expected = entropy + ((predicted - Y["click"]) ** 2).mean()
    assert report.history["loss"] == pytest.approx([expected], rel=1e-4)
