"""Labels and weights that a loss would change without a word, or cannot learn."""

from functools import cache

import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError, train
from training.run.label_values import LabelValues

LONG = pytest.mark.long
X = {"a": np.linspace(0, 1, 64, dtype="float32").reshape(64, 1)}
CLASSES = np.arange(64).reshape(64, 1) % 4


# Metrics and an optimizer that cost little, where no assertion is about them.
CHEAP = {"metrics": [], "optimizer": "sgd"}
NUMBERED = "sparse_categorical_crossentropy"


def network(units, activation, outputs=1):
    keras.utils.set_random_seed(3)
    a = keras.Input((1,), name="a")
    made = [keras.layers.Dense(units, activation, name=f"y{n}")(a) for n in range(outputs)]
    return keras.Model(
        {"a": a}, made[0] if outputs == 1 else {f"y{n}": out for n, out in enumerate(made)}
    )


def changed(labels, value):
    labels = labels.astype("float32")
    labels[40] = value  # of the second batch
    return labels


@pytest.mark.parametrize(
    ("loss", "split"),
    [(NUMBERED, None), (keras.losses.SparseCategoricalCrossentropy(name="own"), False)],
)
def test_a_class_with_a_fraction_is_refused(loss, split):
    data = X, changed(CLASSES, 1.5)
    with pytest.raises(TrainingError, match=r"whole numbers as labels .*Received: 1\.5\."):
        train(network(4, "softmax"), data, loss=loss, split=split, **CHEAP)


def test_a_class_with_a_fraction_is_refused_in_validation_data():
    data = (X, CLASSES), (X, changed(CLASSES, 2.25))
    with pytest.raises(TrainingError, match=r"whole numbers as labels .*Received: 2\.25\."):
        train(network(4, "softmax"), *data, loss=NUMBERED, **CHEAP)


def test_a_class_that_is_null_is_named():
    data = X, changed(CLASSES, np.nan)
    with pytest.raises(TrainingError, match=r"labels from 0 to 3.*Received: NaN"):
        train(network(4, "softmax"), data, loss=NUMBERED, **CHEAP)


def batches_of(labels):
    return tf.data.Dataset.from_tensor_slices((X, labels)).batch(16)


@cache
def trained_by_keras():
    model = network(4, "softmax")
    model.compile("sgd", NUMBERED)
    model.fit(batches_of(CLASSES), verbose=0, shuffle=False)
    return model.get_weights()


@pytest.mark.parametrize(
    "dtype",
    ["float64", "int8", *(pytest.param(dtype, marks=LONG) for dtype in ("float32", "int64"))],
)
def test_classes_of_any_dtype_are_learnt_as_by_keras(dtype):
    model = network(4, "softmax")
    train(model, batches_of(CLASSES.astype(dtype)), loss=NUMBERED, **CHEAP)
    for own, other in zip(model.get_weights(), trained_by_keras(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-6)


@pytest.mark.parametrize(
    ("loss", "label"),
    [
        ("binary_crossentropy", 1.2),
        ("bce", -0.25),
        (keras.losses.BinaryCrossentropy(), 1.2),
        ("binary_focal_crossentropy", -0.25),
    ],
)
def test_a_single_label_beyond_0_and_1_is_refused(loss, label):
    """One in 64, so that the mean loss stays above zero."""
    data = X, changed(CLASSES % 2, label)
    with pytest.raises(TrainingError, match=rf"labels from 0 to 1 for binary.*Received: {label}\."):
        train(network(1, "sigmoid"), data, loss=loss, **CHEAP)


def test_shares_from_0_to_1_are_learnt():
    assert train(network(1, "sigmoid"), (X, X["a"]), **CHEAP).samples == 64


@pytest.mark.parametrize("form", ["names", "order"])
def test_the_output_is_named_whose_label_is_wrong(form):
    model, wrong = network(1, "sigmoid", 2), changed(CLASSES % 2, 3.0)
    labels = {"y0": CLASSES % 2, "y1": wrong}
    if form == "order":
        model = keras.Model(model.input, list(model.output.values()))
        labels = tuple(labels.values())
    with pytest.raises(TrainingError, match=r"labels from 0 to 1 .* in '.+'\. Received: 3\."):
        train(model, (X, labels), **CHEAP)
    # Another loss of that output takes it.
    losses = ["binary_crossentropy", "mse"]
    if form == "names":
        losses = dict(zip(labels, losses, strict=True))
    assert train(model, (X, labels), loss=losses, **CHEAP).samples == 64


@pytest.mark.parametrize("loss", ["binary_crossentropy", "mse"])
def test_weights_of_rows_below_zero_are_refused(loss):
    weights = changed(np.ones(64), -0.5)
    with pytest.raises(TrainingError, match=r"weights of rows of at least 0\. Received: -0\.5"):
        train(network(1, "sigmoid"), (X, CLASSES % 2, weights), loss=loss, **CHEAP)


def test_weights_of_rows_that_are_null_are_named():
    weights = np.full(64, np.nan)
    with pytest.raises(TrainingError, match=r"in the first batch, in the weights of rows"):
        train(network(1, "sigmoid"), (X, CLASSES % 2, weights), **CHEAP)


@pytest.mark.parametrize("labels", [CLASSES, CLASSES[:, 0]], ids=["column", "vector"])
def test_the_loss_of_classes_is_named_where_the_usual_one_does_not_fit(labels):
    with pytest.raises(TrainingError, match=r"4\).*loss=.sparse_categorical_crossentropy"):
        train(network(4, "softmax"), (X, labels), **CHEAP)


@pytest.mark.parametrize(
    ("label", "received"),
    [(4, r"4\."), (-1, r"-1\."), (np.nan, "NaN, a null of a float column"), (7e6, r"7000000\.")],
)
def test_a_class_beyond_the_output_is_found_where_tensorflow_gives_nan(label, received):
    """On a GPU, TensorFlow's loss of such a class is NaN, and of validation data it is nothing else."""
    labels = LabelValues({"": "sparse_categorical_crossentropy"}, {"y": 4})
    labels.look(tf.constant(CLASSES, tf.float32), None)
    labels.check()
    labels.look(tf.constant(changed(CLASSES, label)), None)
    with pytest.raises(
        TrainingError, match=rf"labels from 0 to 3, .* 4 classes\. Received: {received}"
    ):
        labels.check()


def test_a_class_that_the_loss_leaves_out_may_be_beyond_the_output():
    loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=-1)
    labels = LabelValues({"a": loss, "b": loss}, {"b": None, "a": 4})
    labels.look({"a": tf.constant([[-1], [3]]), "b": tf.constant([[9], [-1]])}, None)
    labels.check()
    labels.look({"a": tf.constant([[-2], [3]]), "b": tf.constant([[9], [-1]])}, None)
    with pytest.raises(TrainingError, match=r"0 to 3, .*Received: -2\."):
        labels.check()


KEPT = np.arange(64) % 3 > 0


@cache
def trained_by_keras_without():
    """The loss and the weights that Keras finds with 0.5 as label of the rows without weight."""
    model = network(1, "sigmoid")
    labels = np.where(KEPT, CLASSES[:, 0] % 2, 0.5).reshape(64, 1).astype("float32")
    model.compile("sgd", "binary_crossentropy")
    weights = KEPT.astype("float32")
    fitted = model.fit(X, labels, sample_weight=weights, batch_size=64, verbose=0)
    return [fitted.history["loss"][0], *model.get_weights()]


@pytest.mark.parametrize(
    ("shape", "rank"),
    [
        ((64,), 2),
        ((64, 1), 1),
        pytest.param((64,), 1, marks=LONG),
        pytest.param((64, 1), 2, marks=LONG),
    ],
)
def test_labels_of_rows_without_weight_are_left_out(shape, rank):
    labels = np.where(KEPT, CLASSES[:, 0] % 2, -1).reshape((64, 1)[:rank])
    weights, model = KEPT.astype("float32").reshape(shape), network(1, "sigmoid")
    report = train(model, tf.data.Dataset.from_tensors((X, labels, weights)), **CHEAP)
    found = [report.history["loss"][0], *model.get_weights()]
    for own, other in zip(found, trained_by_keras_without(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-7)
    weights[0] = 1.0
    with pytest.raises(TrainingError, match=r"labels from 0 to 1 .*Received: -1\."):
        train(network(1, "sigmoid"), (X, labels, weights), **CHEAP)


STEPS = np.arange(64 * 3).reshape(64, 3) % 2
LEFT_OUT = np.arange(64 * 3).reshape(64, 3) % 5 == 0


def network_of_steps(*, masked):
    """A network of rows (64, 3, 2), whose mask leaves out steps of zeros."""
    keras.utils.set_random_seed(3)
    a = keras.Input((3, 2), name="a")
    hidden = keras.layers.Masking()(a) if masked else a
    return keras.Model({"a": a}, keras.layers.Dense(1, "sigmoid")(hidden))


@pytest.mark.filterwarnings("ignore:The model cannot be exported")
@pytest.mark.parametrize(
    ("masked", "split"),
    [(True, True), (True, False), (False, False), pytest.param(False, True, marks=LONG)],
    ids=["mask, split", "mask", "weights", "weights, split"],
)
def test_labels_of_steps_without_weight_or_behind_a_mask_are_left_out(masked, split):
    x = np.random.default_rng(1).random((64, 3, 2)).astype("float32")
    x[LEFT_OUT] = 0.0
    weights = () if masked else ((~LEFT_OUT).astype("float32"),)
    labels = np.where(LEFT_OUT, -1, STEPS)[..., np.newaxis]
    model = network_of_steps(masked=masked)
    chances = model({"a": x}).numpy()[..., 0]
    entropies = -np.log(np.where(STEPS, chances, 1 - chances))[~LEFT_OUT]
    expected = entropies.mean() if masked else entropies.sum() / LEFT_OUT.size
    report = train(
        model,
        tf.data.Dataset.from_tensors(({"a": x}, labels, *weights)),
        optimizer=keras.optimizers.SGD(0.0), metrics=[], split=split,
    )  # fmt: skip
    assert report.history["loss"] == pytest.approx([expected], rel=1e-5)
    wrong = np.where(LEFT_OUT[..., np.newaxis], -1, 2 * labels)
    with pytest.raises(TrainingError, match=r"labels from 0 to 1 .*Received: 2\."):
        train(model, ({"a": x}, wrong, *weights), **CHEAP, split=split)


@pytest.mark.parametrize("form", ["names", pytest.param("order", marks=LONG), "one for all"])
def test_each_output_leaves_out_its_own_rows(form):
    model, kept = network(1, "sigmoid", 2), (np.arange(64) % 3 > 0).reshape(64, 1)
    labels = {"y0": np.where(kept, CLASSES % 2, -1), "y1": CLASSES % 2}
    weights = {"y0": kept.astype("float32"), "y1": np.ones((64, 1), "float32")}
    if form != "names":
        model = keras.Model(model.input, list(model.output.values()))
        labels = tuple(labels.values())
    given = {"names": weights, "order": tuple(weights.values()), "one for all": weights["y0"]}[form]
    assert train(model, tf.data.Dataset.from_tensors((X, labels, given)), **CHEAP).samples == 64
    if form != "one for all":
        turned = dict(zip(weights, reversed(weights.values()), strict=True))
        given = turned if form == "names" else tuple(turned.values())
        with pytest.raises(TrainingError, match=r"in 'y0.*'\. Received: -1\."):
            train(model, tf.data.Dataset.from_tensors((X, labels, given)), **CHEAP)


def test_a_class_beyond_the_output_is_refused_also_without_weight():
    """TensorFlow's loss of it is NaN or an error, which no weight removes."""
    labels = LabelValues({"": "sparse_categorical_crossentropy"}, {"y": 4})
    labels.look(tf.constant(changed(CLASSES, 1.5)), tf.constant(changed(np.ones(64), 0.0)))
    labels.check()
    labels.look(tf.constant(changed(CLASSES, 4)), tf.constant(changed(np.ones(64), 0.0)))
    with pytest.raises(TrainingError, match=r"labels from 0 to 3, .*Received: 4\..*ignore_class"):
        labels.check()
