"""A network has to do what Keras says of it, without the process that made it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from exporter import ExportError, ServingOptions
from exporter.plan.runtime import RUNTIMES
from training import save_model


def network(function, **output):
    """A network whose only layer is a function, with what its author says of the output."""
    price = keras.Input((1,), name="price")
    return keras.Model(price, {"y": keras.layers.Lambda(function, **output)(price)})


def in_python(tensor):
    return tf.ensure_shape(tf.numpy_function(np.negative, [tensor], tf.float32), (None, 1))


def in_python_now_and_then(tensor):
    return tf.cond(tf.shape(tensor)[0] > 7, lambda: in_python(tensor), lambda: tensor)


def without_symbols(tensor):
    if not keras.backend.is_keras_tensor(tensor):
        raise RuntimeError("A layer's own words.")
    return tensor


UNSERVABLE = {
    "another dtype": (
        lambda x: tf.cast(x, tf.int32),
        r"output y float32 \[N, 1\], as Keras has it\. Received: int32 \(None, 1\).*cast\(output, 'float32'\)",
    ),
    "a dtype that Triton has not": (lambda x: tf.cast(x, tf.complex64), "Received: complex64"),
    "another width": (lambda x: tf.concat([x, x], 1), r"Received: float32 \(None, 2\)"),
    "one row for all": (lambda x: tf.reduce_sum(x, 0, keepdims=True), r"float32 \(1, 1\)"),
    "a rank": (tf.reduce_sum, r"float32 \(\)"),
    "a sparse tensor": (tf.sparse.from_dense, "output 'y' to be dense. Received: a SparseTensor"),
    "Python": (in_python, "TensorFlow's operations. Received: PyFunc, which calls Python"),
    "Python in a branch": (in_python_now_and_then, "Received: PyFunc"),
    "a layer that raises": (without_symbols, "RuntimeError: .*A layer's own words"),
}


@pytest.mark.parametrize("case", UNSERVABLE)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_network_that_no_server_could_load_is_refused(case, runtime, export, tmp_path):
    function, reason = UNSERVABLE[case]
    model = network(function, output_shape=(1,))
    with pytest.raises(ExportError, match=reason):
        export(model, serving=ServingOptions(runtime=runtime))
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_an_output_that_is_multiplied_is_dense(runtime, export):
    price = keras.Input((1,), name="price")
    stars = keras.ops.sigmoid(keras.layers.Dense(1)(price)) * 5.0
    assert stars.sparse  # as Keras has it
    report = export(keras.Model(price, {"stars": stars}), serving=ServingOptions(runtime=runtime))
    assert "stars float32[N, 1]" in str(report)


def test_a_dtype_that_keras_has_wrong_can_be_cast(export):
    price = keras.Input((1,), name="price")
    whole = keras.ops.cast(price, "int64")
    ones = keras.layers.IntegerLookup(vocabulary=[1, 2], output_mode="one_hot")(whole)
    with pytest.raises(
        ExportError, match=r"Received: int64 .*keras\.ops\.cast\(output, 'float32'\)"
    ):
        export(keras.Model(price, {"ones": ones}))
    report = export(keras.Model(price, {"ones": keras.ops.cast(ones, "float32")}))
    assert "ones float32[N, 3]" in str(report)


def test_weights_that_are_not_finite_are_refused(export):
    price = keras.Input((1,), name="price")
    model = keras.Model(price, keras.layers.Dense(1, name="score")(price))
    kernel, bias = model.get_weights()
    model.set_weights([kernel, bias * np.nan])
    with pytest.raises(ExportError, match=r"NaN or infinity in '.*bias.*train again"):
        export(model)


class Counter(keras.layers.Layer):
    def build(self, _):
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

    def call(self, x):
        self.count.assign_add(1.0)
        return x * self.count


class Noise(keras.layers.Layer):
    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x))


class SeededNoise(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(7)

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x), seed=self.seeds)


class TensorFlowNoise(keras.layers.Layer):
    def call(self, x):
        return x + tf.random.normal(tf.shape(x))


class Measured(keras.layers.Layer):
    """Measures what it hands on, also in inference."""

    def __init__(self):
        super().__init__()
        self.mean = keras.metrics.Mean(name="mean_price")

    def call(self, x):
        self.mean.update_state(x)
        return x


CHANGING = {
    Counter: r"the variable \S*count, which each call changes",
    Noise: r"the variable \S*seed_generator_state, which each call changes",
    SeededNoise: r"the variable \S*seed_generator_state, which each call changes",
    TensorFlowNoise: "RandomStandardNormal, which draws random numbers",
}


@pytest.mark.parametrize("layer", CHANGING)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_network_whose_answers_change_is_refused(layer, runtime, export, tmp_path):
    price = keras.Input((1,), name="price")
    model = keras.Model(price, {"y": layer()(price)})
    with pytest.raises(ExportError, match=f"alike in each call.*Received: {CHANGING[layer]}"):
        export(model, serving=ServingOptions(runtime=runtime))
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("runtime", ["tensorflow", "fused_tensorflow"])
def test_a_metric_within_a_layer_is_served_with_it(runtime, export, tmp_path):
    price = keras.Input((1,), name="price")
    layer = Measured()
    model = keras.Model(price, {"y": keras.layers.Dense(1)(layer(price))})
    model.predict(np.float32([[np.nan]]), verbose=0)  # the metric's state is in no answer
    assert np.isnan(layer.mean.result())
    export(model, serving=ServingOptions(runtime=runtime))
    save_model(model, tmp_path / "saved")
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    prices = np.float32([[1.0], [2.0]])
    kernel, bias = model.get_weights()
    np.testing.assert_allclose(served(price=prices)["y"], prices @ kernel + bias, rtol=1e-6)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_variable_that_a_layer_borrows_is_served_with_it(runtime, export):
    prices = tf.Variable([[3.0]])
    borrowed = keras.Variable([[2.0]])
    model = network(lambda x: x * prices * borrowed, output_shape=(1,))
    assert "y float32[N, 1]" in str(export(model, serving=ServingOptions(runtime=runtime)))
