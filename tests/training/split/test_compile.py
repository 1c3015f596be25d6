"""Optimizers whose updates of a repeated row depend on the number of workers."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError, compile_model, optimizers
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
    "make",
    [
        keras.optimizers.Adam,
        keras.optimizers.RMSprop,
        lambda: keras.optimizers.SGD(clipnorm=1.0),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()),
    ],
)
def test_an_optimizer_that_takes_repeated_rows_one_by_one_is_named(make):
    optimizer = make()
    own = getattr(optimizer, "inner_optimizer", optimizer)
    with pytest.warns(UserWarning, match=f"Received: {type(own).__name__} of Keras"):
        warn_of_repeated_rows(optimizer)


@pytest.mark.parametrize(
    "make",
    [
        lambda: optimizers.Adam(clipnorm=1.0),
        lambda: optimizers.LossScaleOptimizer(optimizers.Adagrad()),
        lambda: keras.optimizers.SGD(momentum=0.9),
    ],
)
def test_optimizers_that_sum_repeated_rows_are_taken_in_silence(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_repeated_rows(make())


@pytest.mark.parametrize("split", [True, False])
def test_a_fixed_scale_of_the_loss_that_keras_cannot_take_is_refused(built, split):
    with pytest.raises(TrainingError, match=r"Received: SGD, for .*LossScaleOptimizer\("):
        compile_model(built(), keras.optimizers.SGD(loss_scale_factor=8.0), split=split)
    compile_model(built(), optimizers.SGD(loss_scale_factor=8.0), split=split)
    dense = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    compile_model(dense, keras.optimizers.SGD(loss_scale_factor=8.0), split=split)
    frozen = built()
    frozen.layers[-3].trainable = False
    compile_model(frozen, keras.optimizers.SGD(loss_scale_factor=8.0), split=split)


@pytest.mark.parametrize("split", [True, False])
def test_columns_that_the_model_does_not_take_are_left_out(split):
    """Keras assigns columns by position: "a" would feed "b", and "b" feed "c"."""
    b, c = (keras.Input((1,), name=name) for name in "bc")
    output = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")(b + 2 * c)
    model = keras.Model({"b": b, "c": c}, output)
    compile_model(model, optimizers.SGD(0.0), "mean_squared_error", split=split)
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


def one_table():
    keras.utils.set_random_seed(3)
    user = keras.Input((1,), name="userId", dtype="int64")
    x = keras.layers.Flatten()(keras.layers.Embedding(50, 4)(user))
    x = keras.layers.Dense(8, "relu")(x)
    return keras.Model({"userId": user}, keras.layers.Dense(1, "sigmoid")(x))


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_later_compile_of_keras_has_its_own_step(fitted, precision):
    rng = np.random.default_rng(5)
    users = {"userId": rng.integers(0, 50, (96, 1))}
    labels = (users["userId"] % 2).astype("float32")
    split, plain = one_table(), one_table()
    compile_model(split, keras.optimizers.SGD(0.1), metrics=["accuracy"], precision=precision)
    if fitted:
        split.fit(users, labels, verbose=0)
        split.evaluate(users, labels, verbose=0)
        plain.set_weights(split.get_weights())
    histories = []
    for model in (split, plain):
        model.compile(keras.optimizers.SGD(0.5), "mse", metrics=["mae"], run_eagerly=True)
        histories.append(model.fit(users, labels, epochs=2, shuffle=False, verbose=0).history)
    assert histories[0] == histories[1]
    for one, other in zip(split.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert split.evaluate(users, labels, verbose=0) == plain.evaluate(users, labels, verbose=0)


def test_after_a_compile_of_keras_the_step_can_be_split_again():
    rng = np.random.default_rng(6)
    users = {"userId": rng.integers(0, 50, (96, 1))}
    labels = (users["userId"] % 2).astype("float32")
    split, plain = one_table(), one_table()
    compile_model(split, keras.optimizers.SGD(0.1))
    split.compile("adam", "mse")
    compile_model(split, keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    plain.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    histories = [
        model.fit(users, labels, epochs=2, shuffle=False, verbose=0).history
        for model in (split, plain)
    ]
    for name, values in histories[1].items():
        np.testing.assert_allclose(histories[0][name], values, rtol=1e-5)
    assert type(split.train_step).__module__.startswith("training.")
