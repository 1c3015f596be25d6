"""Weights of rows by their label, beside those that Keras and a sum in numpy give."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError, optimizers, train

X = {"a": np.linspace(0, 1, 64, dtype="float32").reshape(64, 1)}
CLASSES = np.arange(64) % 3
WEIGHTS = {0: 1.0, 1: 5.0, 2: 0.5}


def network(units=3, activation="softmax", name=None):
    keras.utils.set_random_seed(3)
    a = keras.Input((1,), name="a")
    made = keras.layers.Dense(units, activation)(a)
    return keras.Model({"a": a}, made if name is None else {name: made})


def fed(kind, x, y):
    return (x, y) if kind == "arrays" else tf.data.Dataset.from_tensors((x, y))


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
@pytest.mark.parametrize("loss", ["categorical_crossentropy", "sparse_categorical_crossentropy"])
def test_classes_are_weighed_whichever_way_they_are_labelled(kind, loss):
    labels = CLASSES.reshape(64, 1) if loss.startswith("sparse") else np.eye(3)[CLASSES]
    model = network()
    chances = model.predict(X, verbose=0)[np.arange(64), CLASSES]
    expected = (np.array([1.0, 5.0, 0.5])[CLASSES] * -np.log(chances)).mean()
    settings = {"optimizer": optimizers.SGD(0.0), "loss": loss, "metrics": []}
    report = train(model, fed(kind, X, labels), class_weight=WEIGHTS, **settings)
    assert report.history["loss"][0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
def test_the_only_output_of_a_dictionary_is_weighed(kind):
    model = network(1, "sigmoid", "click")
    y = (CLASSES > 0).astype("float32").reshape(64, 1)
    chances = model.predict(X, verbose=0)["click"]
    entropies = -np.log(np.where(y > 0, chances, 1 - chances))
    expected = (np.where(y > 0, 20.0, 1.0) * entropies).mean()
    data = fed(kind, X, {"click": y})
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
    model = network(units, "softmax" if units > 1 else "sigmoid")
    with pytest.raises(TrainingError, match=text):
        train(model, (X, CLASSES.reshape(64, 1) * 0), loss=loss, class_weight=weights, metrics=[])
