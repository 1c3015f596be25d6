import keras
import numpy as np
import pytest
import tensorflow as tf

from training import compile_model, layers
from training.split.aligned import AlignedDense, TurnedDense, faster_dense


@pytest.mark.parametrize("kind", [AlignedDense, TurnedDense])
@pytest.mark.parametrize("shape", [(4, 1), (4, 7), (4, 8), (4, 13), (4, 3, 13)])
def test_another_product_changes_nothing(kind, shape):
    options = {"activation": "relu", "kernel_initializer": "normal", "bias_initializer": "normal"}
    own, other = kind(5, **options), keras.layers.Dense(5, **options)
    x = tf.random.stateless_normal(shape, (0, 1))
    for layer in (own, other):
        layer.build(x.shape)
    own.set_weights(other.get_weights())
    results = []
    for layer in (own, other):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        kernel, bias = layer.trainable_variables
        results.append([y, *tape.gradient(y, [x, kernel.value, bias.value])])
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


class OwnDense(keras.layers.Dense):
    """Of a user."""


@pytest.mark.parametrize(
    ("layer", "width", "on_a_cpu", "by_xla"),
    [
        (keras.layers.Dense(5), 13, TurnedDense, AlignedDense),
        (keras.layers.Dense(13), 13, None, AlignedDense),
        (keras.layers.Dense(5), 16, None, None),
        (OwnDense(5), 13, None, None),
        (keras.layers.ReLU(), 13, None, None),
    ],
)
def test_only_plain_layers_of_odd_widths_are_replaced(layer, width, on_a_cpu, by_xla):
    layer.build((None, width))
    assert faster_dense(layer, xla=False) is on_a_cpu
    assert faster_dense(layer, xla=True) is by_xla


def test_a_layer_that_cannot_be_made_anew_is_trained_all_the_same(batches, losses):
    class Odd(keras.layers.Layer):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def call(self, x):
            return self.factor * x

    def model():
        keras.utils.set_random_seed(0)
        user = keras.Input((1,), name="userId", dtype="int32")
        x = Odd(2.0)(layers.EmbeddingBag(50, 5, embeddings_initializer="normal")(user))
        return keras.Model({"userId": user}, keras.layers.Dense(1, "sigmoid")(x))

    dataset = batches(192, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    plain, split = model(), model()
    plain.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", jit_compile=False)
    compile_model(split, keras.optimizers.SGD(0.1), xla=True)
    np.testing.assert_allclose(losses(split, dataset), losses(plain, dataset), rtol=1e-5)
