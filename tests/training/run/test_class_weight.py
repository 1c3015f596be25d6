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
        train(network(steps=False), data, class_weight=WEIGHTS)
