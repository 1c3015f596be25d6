"""Layers of a model's dense part against loops in numpy."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError
from training.layers import (
    CrossNetwork,
    DotProductInteraction,
    SequenceEmbedding,
    XDeepFMOuterProduct,
)

TYPES = (None, "field_all", "field_each", "field_interaction")


def stack(rows=3, vectors=4, width=5, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, vectors, width)).astype("float32")


def products_by_hand(x, kind, kernel, self_interaction):
    pairs = [(i, j) for i in range(x.shape[1]) for j in range(i + 1 - self_interaction, x.shape[1])]
    if kind is None:
        return np.array([[row[i] @ row[j] for i, j in pairs] for row in x])
    matrices = {
        "field_all": [kernel for _ in pairs],
        "field_each": [kernel[i].T for i, _ in pairs] if kind == "field_each" else None,
        "field_interaction": kernel,
    }[kind]
    forms = list(zip(pairs, matrices, strict=True))
    return np.array([[row[i] @ matrix @ row[j] for (i, j), matrix in forms] for row in x])


@pytest.mark.parametrize("self_interaction", [False, True])
@pytest.mark.parametrize("kind", TYPES)
def test_products_equal_a_loop_over_pairs(kind, self_interaction):
    layer = DotProductInteraction(kind, self_interaction)
    x = stack()
    result = layer(x)
    assert len(layer.weights) == (kind is not None)
    kernel = layer.kernel.numpy() if kind else None
    expected = products_by_hand(x, kind, kernel, self_interaction)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    assert layer.compute_output_shape(x.shape) == tuple(result.shape)
    assert keras.layers.Dense(1)(result).shape == (3, 1)  # its static shape is the real one


def test_the_matrix_of_the_last_field_makes_nothing_of_pairs_as_in_fibinet():
    layer = DotProductInteraction("field_each")
    x = tf.constant(stack(vectors=6))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(x) ** 2)
    norms = tf.norm(tf.reshape(tape.gradient(loss, layer.kernel), (6, -1)), axis=1).numpy()
    assert norms[5] == 0
    assert (norms[:5] > 0).all()


@pytest.mark.parametrize("self_interaction", [False, True])
@pytest.mark.parametrize("kind", TYPES[:3])
def test_the_gradient_of_products_is_that_of_differences(kind, self_interaction):
    layer = DotProductInteraction(kind, self_interaction, dtype="float64")
    x = tf.constant(stack(2, 3, 2), tf.float64)
    layer(x)
    weights = np.random.default_rng(1).normal(size=layer.compute_output_shape((2, 3, 2)))

    def loss(x):
        return tf.reduce_sum(layer(x) * weights)

    ((analytic,), (numeric,)) = tf.test.compute_gradient(loss, [x])
    np.testing.assert_allclose(analytic, numeric, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", TYPES)
def test_one_vector_has_no_pairs(kind):
    """A dense layer over nothing would end the process."""
    with pytest.raises(TrainingError, match=r"two vectors a row .* Received: 1"):
        DotProductInteraction(kind)(stack(2, 1, 4))
    assert DotProductInteraction(kind, self_interaction=True)(stack(2, 1, 4)).shape == (2, 1)


def test_products_compile_with_xla():
    layer = DotProductInteraction()
    x = stack()
    compiled = tf.function(layer, jit_compile=True)
    np.testing.assert_allclose(compiled(tf.constant(x)), layer(x), rtol=1e-5)


@pytest.mark.parametrize("rank", [None, 2])
def test_the_cross_network_equals_its_formula(rank):
    layer = CrossNetwork(2, rank)
    x = stack()[:, 0]
    result = layer(x).numpy()
    for bias in layer.biases:
        bias.assign(np.random.default_rng(2).normal(size=bias.shape))
    result = layer(x).numpy()
    expected = x
    for kernels, bias in zip(layer.kernels, layer.biases, strict=True):
        linear = expected
        for kernel in kernels:
            linear = linear @ kernel.numpy()
        expected = x * (linear + bias.numpy()) + expected
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    parameters = sum(weight.numpy().size for weight in layer.weights)
    assert parameters == 2 * (5 + (25 if rank is None else 20))


def test_the_outer_product_equals_a_loop():
    layer = XDeepFMOuterProduct(3)
    first, second = stack(2, 4, 5), stack(2, 6, 5, seed=1)
    result = layer((first, second)).numpy()
    kernel = layer.kernel.numpy().reshape(4, 6, 3)
    expected = np.zeros((2, 3, 5))
    for k, i, j in itertools.product(range(3), range(4), range(6)):
        expected[:, k] += kernel[i, j, k] * first[:, i] * second[:, j]
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    assert layer.compute_output_shape((first.shape, second.shape)) == (2, 3, 5)


@pytest.mark.parametrize("rank", [None, 2])
def test_the_initializer_of_the_matrices_is_the_users(rank):
    x = stack()
    np.testing.assert_array_equal(CrossNetwork(2, rank, "zeros")(x[:, 0]), x[:, 0])
    assert not np.any(DotProductInteraction("field_all", kernel_initializer="zeros")(x))
    assert not np.any(XDeepFMOuterProduct(3, "zeros")((x, x)))


@pytest.mark.parametrize(
    "make",
    [
        DotProductInteraction("field_each", self_interaction=True),
        lambda x: CrossNetwork(2, rank=3)(keras.layers.Flatten()(x)),
        lambda x: XDeepFMOuterProduct(3)((x, x)),
    ],
)
def test_keras_saves_and_loads_them(tmp_path, make):
    inputs = keras.Input((4, 5))
    model = keras.Model(inputs, make(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(stack()), model(stack()))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DotProductInteraction("all"), "field_interaction. Received: 'all'"),
        (lambda: DotProductInteraction()(tf.ones((2, 3))), "vectors, width.*stack"),
        (lambda: CrossNetwork(0), "depth as a whole number from 1. Received: 0"),
        (lambda: CrossNetwork(2, rank=1.5), "rank as a whole number from 1. Received: 1.5"),
        (lambda: DotProductInteraction()(keras.Input((None, 4))), r"Received: \(None, None, 4\)"),
        (lambda: CrossNetwork()(tf.ones((2, 3, 4))), r"\(N, width\)"),
        (lambda: CrossNetwork()(keras.Input((None,))), r"Received: \(None, None\)"),
        (lambda: XDeepFMOuterProduct(0), "dim as a whole number from 1. Received: 0"),
        (lambda: SequenceEmbedding(9, 4, 0), "length as a whole number from 1. Received: 0"),
        (
            lambda: SequenceEmbedding(9, 4, 3)(
                tf.ones((2, 1), tf.int64), tf.ones((2, 1), tf.int64)
            ),
            r"sequence of shape \(N, 3\) .*Received: \(2, 1\)",
        ),
        (lambda: XDeepFMOuterProduct(2.5), "dim as a whole number from 1. Received: 2.5"),
        (lambda: XDeepFMOuterProduct(2)((tf.ones((2, 3, 4)), tf.ones((2, 3, 5)))), "4 and 5"),
        (lambda: XDeepFMOuterProduct(2)((tf.ones((2, 3, 4)), tf.ones((2, 3)))), "a pair of inputs"),
        (lambda: XDeepFMOuterProduct(2)([tf.ones((2, 3, 4))] * 3), "a pair of inputs"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(TrainingError, match=message):
        call()
