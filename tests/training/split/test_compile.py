"""Optimizers whose updates of a repeated row depend on the number of workers."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from training import compile_model, optimizers
from training.split.compile import warn_of_repeated_rows


def first_update(optimizer, rows, gradients):
    """The size of Adam's mean of squares after a step, of the row 1 of a table."""
    table = keras.Variable(np.zeros((3, 1), "float32"))
    optimizer.build([table])
    gradient = tf.IndexedSlices(tf.constant(gradients), tf.constant(rows), (3, 1))
    optimizer.apply([gradient], [table])
    return float(optimizer._velocities[0].numpy()[1, 0])


def test_keras_squares_the_gradients_of_a_repeated_row_one_by_one():
    """In numpy: 0.3**2 + 0.5**2 against (0.3 + 0.5)**2, times 1 - beta_2."""
    repeated, summed = ([1, 1], [[0.3], [0.5]]), ([1], [[0.8]])
    keras_own = [first_update(keras.optimizers.Adam(0.01), *each) for each in (repeated, summed)]
    np.testing.assert_allclose(keras_own, [0.001 * 0.34, 0.001 * 0.64], rtol=1e-4)
    ours = [first_update(optimizers.Adam(0.01), *each) for each in (repeated, summed)]
    np.testing.assert_allclose(ours, [0.001 * 0.64] * 2, rtol=1e-4)


@pytest.mark.parametrize(
    "optimizer",
    [
        keras.optimizers.Adam(),
        keras.optimizers.RMSprop(),
        keras.optimizers.SGD(clipnorm=1.0),
        keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()),
    ],
)
def test_an_optimizer_that_takes_repeated_rows_one_by_one_is_named(optimizer):
    own = getattr(optimizer, "inner_optimizer", optimizer)
    with pytest.warns(UserWarning, match=f"Received: {type(own).__name__} of Keras"):
        warn_of_repeated_rows(optimizer)


@pytest.mark.parametrize(
    "optimizer",
    [
        optimizers.Adam(clipnorm=1.0),
        optimizers.LossScaleOptimizer(optimizers.Adagrad()),
        keras.optimizers.SGD(momentum=0.9),
    ],
)
def test_optimizers_that_sum_repeated_rows_are_taken_in_silence(optimizer):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_repeated_rows(optimizer)


def test_columns_that_the_model_does_not_take_are_left_out():
    """Keras assigns columns by position: "a" would feed "b", and "b" feed "c"."""
    b, c = (keras.Input((1,), name=name) for name in "bc")
    output = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")(b + 2 * c)
    model = keras.Model({"b": b, "c": c}, output)
    compile_model(model, optimizers.SGD(0.0), "mean_squared_error")
    x = {
        name: np.full((64, 1), value, "float32")
        for name, value in {"a": 100, "b": 1, "c": 10}.items()
    }
    data = tf.data.Dataset.from_tensors((x, np.zeros((64, 1), "float32")))
    history = model.fit(data, validation_data=data, shuffle=False, verbose=0).history
    assert history == {"loss": [21.0**2], "val_loss": [21.0**2]}
    assert model.predict(x, verbose=0).tolist() == [[21.0]] * 64


@pytest.mark.parametrize("which", ["metrics", "weighted_metrics"])
@pytest.mark.parametrize("split", [True, False])
def test_a_metric_that_has_counted_before_begins_anew(which, split):
    """Keras resets the object only after its first epoch, which so counts rows of another model's run."""
    error = keras.metrics.MeanAbsoluteError(name="error")
    model = keras.Sequential([keras.Input((1,), name="a"), keras.layers.Dense(1)])
    model.layers[0].set_weights([np.zeros((1, 1)), np.zeros(1)])
    for label in (4.0, 1.0):
        data = tf.data.Dataset.from_tensors((np.ones((8, 1)), np.full((8, 1), label)))
        still = keras.optimizers.SGD(0.0)  # predicts 0 for ever: the error is the label
        compile_model(model, still, "mse", split=split, **{which: [error]})
        assert model.fit(data, shuffle=False, verbose=0).history["error"] == [label]
