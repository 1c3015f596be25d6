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


def network(*, steps=True, name=None, units=3, activation="softmax"):
    keras.utils.set_random_seed(3)
    a = keras.Input((4, 1), name="a")
    x = a if steps else keras.layers.Flatten()(a)
    output = keras.layers.Dense(units, activation)(x)
    return keras.Model({"a": a}, {name: output} if name else output)


def entropies(model, classes):
    """-log of the probability that the model gives each class."""
    predicted = keras.tree.flatten(model(X))[0].numpy()
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


@pytest.mark.parametrize(("kind", "rank"), [("arrays", 2), ("dataset", 2), ("dataset", 1)])
def test_the_only_output_of_a_dictionary_is_weighed(kind, rank):
    a = keras.Input((4, 1), name="a")
    click = keras.layers.Dense(1, "sigmoid")(keras.layers.Flatten()(a))
    model = keras.Model({"a": a}, {"click": click})
    y = (CLASSES[:, :1] > 0).astype("float32")
    chances = model(X)["click"].numpy()
    entropies = -np.log(np.where(y > 0, chances, 1 - chances))
    expected = (np.where(y > 0, 20.0, 1.0) * entropies).mean()
    y = y if rank == 2 else y[:, 0]
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


class Batches(keras.utils.PyDataset):
    """Four batches of 16 rows."""

    num_batches = 4

    def __init__(self, y, **options):
        super().__init__(**options)
        self.y, self.begun = y, 0

    def __getitem__(self, number):
        rows = slice(16 * number, 16 * number + 16)
        return keras.tree.map_structure(lambda part: part[rows], (X, self.y))

    def on_epoch_begin(self):
        self.begun += 1


@pytest.mark.parametrize(
    ("name", "steps", "one_hot", "rank"),
    [
        (None, False, False, 1),
        pytest.param(None, False, False, 2, marks=pytest.mark.long),
        (None, False, True, 2),
        pytest.param("level", False, False, 1, marks=pytest.mark.long),
        (None, True, False, 2),
        pytest.param(None, True, False, 3, marks=pytest.mark.long),
        ("level", True, True, 3),
    ],
)
@pytest.mark.parametrize(
    "options", [pytest.param({}, marks=pytest.mark.long), {"workers": 2}], ids=["", "workers"]
)
def test_batches_of_a_py_dataset_are_weighed_as_others(name, steps, one_hot, rank, options):
    model = network(steps=steps, name=name)
    classes = CLASSES if steps else CLASSES[:, 0]
    expected = np.mean(np.vectorize(WEIGHTS.get)(classes) * entropies(model, classes))
    y = np.eye(3, dtype="float32")[classes] if one_hot else classes
    y = y if y.ndim == rank else y[..., None]
    data = Batches({name: y} if name else y, **options)
    report = train(
        model,
        data,
        epochs=2,
        optimizer=optimizers.SGD(0.0),
        loss="categorical_crossentropy" if one_hot else "sparse_categorical_crossentropy",
        metrics=[],
        class_weight=WEIGHTS,
    )
    assert report.history["loss"] == pytest.approx([expected] * 2, rel=1e-4)
    assert data.begun == 2


def test_shares_of_a_py_dataset_have_the_weight_of_no_class():
    """Keras' own weights would take 0.6 for 1."""
    model = network(steps=False, units=1, activation="sigmoid")
    y = np.where(CLASSES[:, :1] > 0, 1.0, 0.6)
    chances = model(X).numpy()
    entropies = -y * np.log(chances) - (1 - y) * np.log(1 - chances)
    expected = (np.where(y == 1, 20.0, 1.0) * entropies).mean()
    settings = {"optimizer": optimizers.SGD(0.0), "metrics": [], "class_weight": {1: 20.0}}
    report = train(model, Batches(y), **settings)
    assert report.history["loss"][0] == pytest.approx(expected, rel=1e-4)


def test_each_output_of_a_py_dataset_has_its_own_weights():
    keras.utils.set_random_seed(3)
    a = keras.Input((4, 1), name="a")
    x = keras.layers.Flatten()(a)
    outputs = {name: keras.layers.Dense(3, "softmax", name=name)(x) for name in ("low", "high")}
    # Of several labels none is weighed.
    outputs["tags"] = keras.layers.Dense(4, "sigmoid", name="tags")(x)
    model = keras.Model({"a": a}, outputs)
    predicted = keras.tree.map_structure(np.asarray, model(X))
    classes = CLASSES[:, 0]
    each = {n: -np.log(predicted[n][np.arange(64), classes]) for n in ("low", "high")}
    tags = (CLASSES > 0).astype("float32")
    y = {"low": np.eye(3, dtype="float32")[classes], "high": classes, "tags": tags}
    report = train(
        model,
        Batches(y),
        optimizer=optimizers.SGD(0.0),
        loss={
            "low": "categorical_crossentropy",
            "high": "sparse_categorical_crossentropy",
            "tags": "binary_crossentropy",
        },
        metrics=[],
        class_weight={"low": WEIGHTS},
    )
    weights = np.vectorize(WEIGHTS.get)(classes)
    assert report.history["low_loss"][0] == pytest.approx((weights * each["low"]).mean(), rel=1e-4)
    assert report.history["high_loss"][0] == pytest.approx(each["high"].mean(), rel=1e-4)
    chances = np.where(tags > 0, predicted["tags"], 1 - predicted["tags"])
    assert report.history["tags_loss"][0] == pytest.approx(-np.log(chances).mean(), rel=1e-4)


def test_several_labels_of_one_output_of_a_py_dataset_have_no_class():
    y = (CLASSES[:, :3] > 1).astype("float32")
    with pytest.raises(TrainingError, match=r"one class.*shape \(16, 3\).*binary_crossentropy"):
        train(network(steps=False), Batches(y), class_weight={1: 5.0})
