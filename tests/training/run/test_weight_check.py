"""Weights of rows: those of each output, in the shape of its losses."""

from itertools import product

import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError, optimizers, train

# Steps are of no use to a server.
pytestmark = pytest.mark.filterwarnings("ignore:The model cannot be exported")

RNG = np.random.default_rng(0)
X = {"a": RNG.random((64, 5, 2)).astype("float32")}
STEP, LAST = (RNG.random(shape).astype("float32") for shape in ((64, 5, 1), (64, 1)))
W = RNG.random((64, 5)).astype("float32")


def network(form):
    keras.utils.set_random_seed(3)
    a = keras.Input((5, 2), name="a")
    step = keras.layers.Dense(1, name="step")(a)
    last = keras.layers.Dense(1, name="last")(keras.layers.Flatten()(a))
    outputs = {
        "dict": {"step": step, "last": last},
        "list": [step, last],
        "step": step,
        "last": last,
    }
    return keras.Model({"a": a}, outputs[form])


def learnt(form, weights, loss="mse", kind="dataset"):
    y = {"dict": {"step": STEP, "last": LAST}, "list": (STEP, LAST), "step": STEP, "last": LAST}
    data = (X, y[form], weights)
    data = data if kind == "arrays" else tf.data.Dataset.from_tensors(data)
    model = network(form)
    predicted = keras.tree.map_structure(np.asarray, model(X))
    report = train(model, data, loss=loss, optimizer=optimizers.SGD(0.0), metrics=[])
    return report.history["loss"], predicted


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
@pytest.mark.parametrize(
    ("form", "weights", "loss", "shown"),
    [
        ("dict", {"step": W}, "mse", r"\{'step': \.\.\., 'last': \.\.\.\}.*Received: \{'step': "),
        ("dict", {"step": W, "lats": W[:, 0]}, "mse", r"'last': \.\.\.\}.*Received: .*'lats': "),
        ("dict", {"last": W[:, 0]}, {"step": "mse"}, r": \{'step': \.\.\.\}, of ones.*Received: "),
        ("list", (W,), "mse", r"\(\.\.\., \.\.\.\).*Received: \(\.\.\.\)"),
        ("list", {"step": W, "last": W}, "mse", r"\(\.\.\., \.\.\.\).*Received: \{'step': "),
        ("last", {"last": W[:, 0]}, "mse", r"\. Received: \{'last': "),
        ("last", (W[:, 0],), "mse", r"\. Received: \(\.\.\.\)"),
    ],
)
def test_weights_that_are_not_of_the_outputs(form, weights, loss, shown, kind):
    message = f"weights of rows in train_data as one array.*{shown}"
    with pytest.raises(TrainingError, match=message):
        learnt(form, weights, loss, kind)


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
@pytest.mark.parametrize(
    ("form", "weights", "message"),
    [
        (
            "step",
            W[:, 0],
            r"\(N, 5\) or \(N, 1\) .* \(N, 5, 1\).*step\. Received: \(N\)\..*\[-1, 1\]",
        ),
        ("dict", W[:, 0], r"\(N, 5\) or \(N, 1\) .*Received: \(N\)"),
        ("step", W[:, :3], r".*Received: \(N, 3\)"),
        ("last", W, r"\(N\) or \(N, 1\) in train_data.* \(N, 1\).*each row\. Received: \(N, 5\)\."),
        ("dict", {"step": W, "last": W}, r"\(N\) or \(N, 1\) .*Received: \(N, 5\)\."),
        ("list", (W[:, 0], W[:, 0]), r"\(N, 5\) or \(N, 1\) .*Received: \(N\)\."),
    ],
)
def test_weights_of_another_shape_than_the_losses(form, weights, message, kind):
    with pytest.raises(TrainingError, match=f"Expected weights of shape {message}"):
        learnt(form, weights, kind=kind)


def test_as_many_rows_as_steps_are_refused_too():
    """Keras would weigh steps by what are weights of rows."""
    data = X["a"][:5], STEP[:5], W[:5, 0]
    with pytest.raises(TrainingError, match=r"Received: \(N\)"):
        train(network("step"), ({"a": data[0]}, *data[1:]), loss="mse", metrics=[])


def test_weights_of_validation_data_are_checked():
    with pytest.raises(TrainingError, match=r"in validation_data.*Received: \(N\)"):
        train(network("step"), (X, STEP), (X, STEP, W[:, 0]), loss="mse", metrics=[])


STEPS = {"steps": W, "column": W[..., None], "rows": W[:, :1]}
LASTS = {"vector": W[:, 0], "column": W[:, :1]}
# Each shape once; all of the pairs take longer.
PAIRS = [
    ("steps", "vector", "arrays"),
    ("column", "column", "dataset"),
    ("rows", "vector", "dataset"),
]
REST = [each for each in product(STEPS, LASTS, ("arrays", "dataset")) if each not in PAIRS]


@pytest.mark.parametrize(
    ("step", "last", "kind"),
    [*PAIRS, *(pytest.param(*each, marks=pytest.mark.long) for each in REST)],
)
def test_weights_of_each_shape_that_fits(step, last, kind):
    step, last = STEPS[step], LASTS[last]
    (loss,), predicted = learnt("dict", {"step": step, "last": last}, kind=kind)
    steps = (predicted["step"] - STEP)[..., 0] ** 2 * step.reshape(64, -1)
    expected = steps.mean() + ((predicted["last"] - LAST) ** 2 * W[:, :1]).mean()
    # Arrays are two batches of 32 rows.
    assert loss == pytest.approx(expected, rel=1e-4)


def test_weights_of_the_outputs_that_are_trained_are_enough():
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        (loss,), predicted = learnt("dict", {"last": W[:, 0]}, {"last": "mse"})
    assert loss == pytest.approx(((predicted["last"] - LAST) ** 2 * W[:, :1]).mean(), rel=1e-4)


def test_a_loss_of_the_user_may_have_another_shape():
    """A loss for each row, of the sum of its steps."""

    def loss(y, y_pred):
        return keras.ops.sum((y - y_pred) ** 2, axis=(1, 2))

    (found,), predicted = learnt("step", W[:, 0], loss)
    expected = (((predicted - STEP) ** 2).sum(axis=(1, 2)) * W[:, 0]).mean()
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
def test_truth_values_are_weights_of_0_and_1(kind):
    known = W[:, 0] > 0.5
    (loss,), predicted = learnt("last", known, kind=kind)
    assert loss == pytest.approx(((predicted - LAST) ** 2 * known[:, None]).mean(), rel=1e-4)
