"""Weights of classes in the loss, for labels of every shape."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError, optimizers, train

# Labels of steps are of no use to a server.
pytestmark = pytest.mark.filterwarnings("ignore:The model cannot be exported")

RNG = np.random.default_rng(0)
WEIGHTS = {0: 1.0, 1: 5.0, 2: 0.5}
X = {"a": RNG.random((64, 4, 1)).astype("float32")}
CLASSES = RNG.integers(0, 3, (64, 4))


def network(*, steps=True, name=None, units=3):
    keras.utils.set_random_seed(3)
    a = keras.Input((4, 1), name="a")
    x = a if steps else keras.layers.Flatten()(a)
    output = keras.layers.Dense(units, "softmax")(x)
    return keras.Model({"a": a}, {name: output} if name else output)


def entropies(model, classes):
    """-log of the probability that the model gives each class."""
    predicted = keras.tree.flatten(model.predict(X, verbose=0))[0]
    return -np.log(np.take_along_axis(predicted, classes[..., None], axis=-1))[..., 0]


@pytest.mark.parametrize(
    ("name", "steps", "one_hot", "kind"),
    [
        ("level", False, False, "dataset"),
        ("level", True, True, "arrays"),
        (None, True, False, "arrays"),
        (None, True, True, "dataset"),
        (None, False, True, "dataset"),
    ],
)
def test_each_row_or_step_has_the_weight_of_its_class(name, steps, one_hot, kind):
    model = network(steps=steps, name=name)
    classes = CLASSES if steps else CLASSES[:, 0]
    expected = np.mean(np.vectorize(WEIGHTS.get)(classes) * entropies(model, classes))
    y = np.eye(3, dtype="float32")[classes] if one_hot else classes
    y = {name: y} if name else y
    report = train(
        model,
        (X, y) if kind == "arrays" else tf.data.Dataset.from_tensors((X, y)),
        optimizer=optimizers.SGD(0.0),
        loss="categorical_crossentropy" if one_hot else "sparse_categorical_crossentropy",
        metrics=[],
        class_weight=WEIGHTS,
    )
    assert report.history["loss"][0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
def test_several_labels_of_one_output_have_no_class(kind):
    y = (CLASSES[:, :3] > 1).astype("float32")
    data = (X, y) if kind == "arrays" else tf.data.Dataset.from_tensors((X, y))
    with pytest.raises(TrainingError, match=r"one class.*shape \(64, 3\).*binary_crossentropy"):
        train(network(steps=False), data, class_weight={1: 5.0})


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
def test_the_only_output_of_a_dictionary_is_weighed(kind):
    a = keras.Input((4, 1), name="a")
    click = keras.layers.Dense(1, "sigmoid")(keras.layers.Flatten()(a))
    model = keras.Model({"a": a}, {"click": click})
    y = (CLASSES[:, :1] > 0).astype("float32")
    chances = model.predict(X, verbose=0)["click"]
    entropies = -np.log(np.where(y > 0, chances, 1 - chances))
    expected = (np.where(y > 0, 20.0, 1.0) * entropies).mean()
    data = (
        (X, {"click": y}) if kind == "arrays" else tf.data.Dataset.from_tensors((X, {"click": y}))
    )
    report = train(model, data, optimizer=optimizers.SGD(0.0), class_weight={1: 20.0}, metrics=[])
    assert report.history["loss"][0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("units", "loss", "weights", "text"),
    [
        (3, "sparse_categorical_crossentropy", {3: 2.0}, "from 0 to 2, .*Received: 3"),
        (3, keras.losses.CategoricalCrossentropy(), {-1: 2.0}, "from 0 to 2, .*Received: -1"),
        (3, "sparse_categorical_crossentropy", {0.5: 2.0}, "from 0 to 2, .*Received: 0.5"),
        (1, "binary_crossentropy", {1: 1.0, 2: 5.0}, "0 and 1, .*Received: 2"),
    ],
)
def test_a_weight_of_a_label_that_no_row_can_have_is_refused(units, loss, weights, text):
    model, y = network(steps=False, units=units), np.zeros((64, 1))
    with pytest.raises(TrainingError, match=text):
        train(model, (X, y), loss=loss, class_weight=weights, metrics=[])
