import keras
import numpy as np
import pytest
import tensorflow as tf

from training import compile_model, layers
from training.split.faster_dense import HostDense, XlaDense, faster_dense


@pytest.mark.parametrize("kind", [XlaDense, HostDense])
@pytest.mark.parametrize("shape", [(4, 1), (4, 7), (4, 8), (4, 13), (4, 3, 13)])
@pytest.mark.parametrize("activation", ["relu", "tanh", None])
@pytest.mark.parametrize(("units", "use_bias"), [(1, True), (5, True), (5, False)])
def test_another_product_changes_nothing(kind, shape, activation, units, use_bias):
    options = {
        "activation": activation,
        "use_bias": use_bias,
        "kernel_initializer": "normal",
        "bias_initializer": "normal",
    }
    own, other = kind(units, **options), keras.layers.Dense(units, **options)
    x = tf.random.stateless_normal(shape, (0, 1))
    for layer in (own, other):
        layer.build(x.shape)
    own.set_weights(other.get_weights())
    results = []
    for layer in (own, other):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        weights = [variable.value for variable in layer.trainable_variables]
        results.append([y, *tape.gradient(y, [x, *weights])])
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


def products(function):
    """The inner width of each matrix product that a graph is left with."""
    nodes = function.graph.as_graph_def().node
    by_name = {node.name: node for node in nodes}
    used, waiting = set(), [output.op.name for output in function.outputs]
    while waiting:
        name = waiting.pop().lstrip("^").split(":")[0]
        if name not in used:
            used.add(name)
            waiting.extend(by_name[name].input)
    operations = [function.graph.get_operation_by_name(name) for name in used]
    return sorted(op.inputs[0].shape[1] for op in operations if op.type == "MatMul")


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize(
    ("widths", "widest", "others"),
    [
        ((16, 1, 1), 16, 2),
        ((1, 16, 3), 16, 4),
        ((2, 2), 2, 2),
        ((3, 16), 16, 3),
        ((5, 6, 7), 18, 0),
        ((9,), 9, 0),
    ],
)
def test_parts_are_multiplied_as_one_matrix_would_be(widths, widest, others, use_bias, dtype):
    # An activation without a kink: at relu's, a rounding of bfloat16 decides about a whole gradient.
    options = {"activation": "tanh", "kernel_initializer": "normal", "bias_initializer": "normal"}
    own, other = (
        kind(5, use_bias=use_bias, dtype=dtype, **options)
        for kind in (HostDense, keras.layers.Dense)
    )
    parts = [tf.random.stateless_normal((4, width), (0, width)) for width in widths]
    for layer in (own, other):
        layer.build((None, sum(widths)))
    own.set_weights(other.get_weights())

    @tf.function(autograph=False)
    def forward(layer, parts):
        return layer(tf.concat(parts, axis=1))

    @tf.function(autograph=False)
    def gradients(layer, parts):
        with tf.GradientTape() as tape:
            tape.watch(parts)
            y = layer(tf.concat(parts, axis=1))
        weights = [variable.value for variable in layer.trainable_variables]
        return [y, *tape.gradient(y, [*parts, *weights])]

    loose = {"rtol": 0.02, "atol": 0.02} if dtype != "float32" else {"rtol": 1e-5, "atol": 1e-6}
    for one, two in zip(gradients(own, parts), gradients(other, parts), strict=True):
        np.testing.assert_allclose(tf.cast(one, "float32"), tf.cast(two, "float32"), **loose)
    expected = sorted([others + use_bias, widest]) if others else [widest]
    assert products(forward.get_concrete_function(own, parts)) == expected


def test_a_matrix_from_outside_of_a_function_stays_whole():
    layer = HostDense(5)
    layer.build((None, 9))

    @tf.function(autograph=False)
    def of_the_matrix(parts):
        x = tf.concat(parts, axis=1)

        @tf.function(autograph=False)
        def step(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = layer(x)
            return tape.gradient(y, x)

        return step(x)

    gradient = of_the_matrix([tf.ones((2, 8)), tf.ones((2, 1))])
    np.testing.assert_allclose(gradient, tf.matmul(tf.ones((2, 5)), layer.kernel, transpose_b=True))


class OwnDense(keras.layers.Dense):
    """A user's own layer."""


@pytest.mark.parametrize(
    ("layer", "width", "on_a_cpu", "by_xla"),
    [
        (keras.layers.Dense(5), 13, HostDense, XlaDense),
        (keras.layers.Dense(5), 16, HostDense, XlaDense),
        (OwnDense(5), 13, None, None),
        (keras.layers.ReLU(), 13, None, None),
    ],
)
def test_only_plain_layers_are_replaced(layer, width, on_a_cpu, by_xla):
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
    plain.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", run_eagerly=True)
    compile_model(split, keras.optimizers.SGD(0.1), xla=True)
    np.testing.assert_allclose(losses(split, dataset), losses(plain, dataset), rtol=1e-5)
