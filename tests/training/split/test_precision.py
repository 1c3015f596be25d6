import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.common.global_state import set_global_attribute
from keras.src.saving.serialization_lib import in_safe_mode

from training import TrainingError, compile_model, layers, models, optimizers
from training.split.cut import cut
from training.split.precision import faster


@pytest.mark.long
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_sixteen_bits_learn_as_well_and_leave_the_model_as_it_is(batches, precision, built, losses):
    dataset = batches(10 * 64, 64)
    plain, split = built(), built()
    config = split.get_config()
    for model, options in ((plain, {}), (split, {"precision": precision, "xla": True})):
        compile_model(model, optimizers.Adam(0.02), **options)
    exact, rounded = losses(plain, dataset, 4), losses(split, dataset, 4)
    assert exact[-1] < 0.5 * exact[0]
    np.testing.assert_allclose(rounded[-5:].mean(), exact[-5:].mean(), atol=0.03)
    assert not np.allclose(rounded, exact, rtol=1e-6)  # it is no float32
    assert split.get_config() == config
    assert {weight.dtype for weight in split.weights} == {"float32"}
    assert split(next(iter(dataset))[0]).dtype == tf.float32


def test_float16_scales_the_loss(batches, built):
    model = built()
    compile_model(model, "adagrad", precision="float16")
    assert isinstance(model.optimizer, optimizers.LossScaleOptimizer)
    assert isinstance(model.optimizer.inner_optimizer, optimizers.Adagrad)
    model.fit(batches(128, 64), verbose=0, shuffle=False)
    assert model.optimizer.inner_optimizer.iterations.numpy() == 2


@pytest.fixture(scope="module")
def unscaled(batches, built):
    """A model that was trained without a scale of its loss."""
    model = built()
    compile_model(model, optimizers.SGD(0.1))
    model.fit(batches(4 * 32, 32), verbose=0, shuffle=False)
    return model


@pytest.mark.parametrize(
    ("kind", "xla"),
    [
        (optimizers.LossScaleOptimizer, True),
        (keras.optimizers.LossScaleOptimizer, False),
        pytest.param(optimizers.LossScaleOptimizer, False, marks=pytest.mark.long),
        pytest.param(keras.optimizers.LossScaleOptimizer, True, marks=pytest.mark.long),
    ],
)
def test_a_scale_that_grows_scales_the_loss_and_its_gradients(batches, built, kind, xla, unscaled):
    scaled = built()
    optimizer = kind(optimizers.SGD(0.1), initial_scale=8.0, dynamic_growth_steps=1)
    compile_model(scaled, optimizer, xla=xla)
    scaled.fit(batches(4 * 32, 32), verbose=0, shuffle=False)
    assert optimizer.dynamic_scale.numpy() == 8 * 2**4
    for one, other in zip(unscaled.weights, scaled.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_the_last_layers_keep_float32(sizes):
    def policies(model):
        copy = faster(cut(model).tower, "mixed_bfloat16", xla=False)
        return {layer.name: layer.compute_dtype for layer in copy.layers if layer.weights}, copy

    computed, copy = policies(models.mlp(sizes, hidden=(16, 8), output_name="click"))
    assert computed.pop("click") == "float32"
    assert set(computed.values()) == {"bfloat16"}
    assert {weight.dtype for weight in copy.weights} == {"float32"}
    model = models.wide_and_deep(sizes, ["age"], hidden=(16, 8))
    computed, copy = policies(model)
    # The logit of the deep part, the sum and the probability.
    assert [layer.compute_dtype for layer in copy.layers][-3:] == ["float32"] * 3
    assert sorted(computed.values()) == ["bfloat16", "bfloat16", "float32"]
    assert {layer.compute_dtype for layer in model.layers} == {"float32"}


def test_the_last_layers_of_a_model_inside_it_keep_float32():
    inner = [keras.layers.Dense(8, "relu"), keras.layers.Dense(1), keras.layers.ReLU()]
    user = keras.Input((1,), name="user", dtype="int64")
    x = keras.layers.Dense(8)(layers.EmbeddingBag(50, 4)(user))
    model = keras.Model(user, keras.Sequential(inner)(x))
    copy = faster(cut(model).tower, "mixed_bfloat16", xla=False)
    computed = {layer.name: layer.compute_dtype for layer in copy.layers[-1].layers}
    assert [computed[layer.name] for layer in inner] == ["bfloat16", "float32", "float32"]


def test_a_layer_of_another_dtype_keeps_it():
    """A function of keras.ops, which has none, is in between."""
    user = keras.Input((1,), name="user", dtype="int64")
    x = keras.layers.Dense(8, dtype="float64", name="exact")(layers.EmbeddingBag(50, 4)(user))
    x = keras.layers.Dense(4, name="own")(keras.ops.abs(x))
    model = keras.Model(user, keras.layers.Dense(1)(x))
    copy = faster(cut(model).tower, "mixed_bfloat16", xla=False)
    computed = {name: copy.get_layer(name).compute_dtype for name in ("exact", "own")}
    assert computed == {"exact": "float64", "own": "bfloat16"}


@keras.saving.register_keras_serializable("tests")
def doubled(x):
    return 2 * keras.ops.relu(x)


def test_a_function_that_keras_cannot_find_is_refused_with_advice_that_holds():
    """Keras recreates no lambda; the advice names the layer, and followed, it trains."""

    def model_with(activation):
        user = keras.Input((1,), name="userId", dtype="int32")
        x = layers.EmbeddingBag(50, 4)(user)
        x = keras.layers.Dense(4, activation, name="mine")(x)
        return keras.Model(user, keras.layers.Dense(1)(x))

    with pytest.warns(UserWarning, match="lambda"), pytest.raises(TrainingError) as refused:
        compile_model(model_with(lambda x: 2 * keras.ops.relu(x)), precision="bfloat16")
    text = str(refused.value)
    assert "Received: 'mine' of Dense: Could not interpret activation" in text
    assert "@keras.saving.register_keras_serializable()" in text
    assert len(text) < 600
    compile_model(model_with(doubled), precision="bfloat16")


class WithoutSize(keras.layers.Layer):
    """A layer whose config lacks its size."""

    def get_config(self):
        return {"name": self.name}

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self._size))

    def call(self, x):
        return keras.ops.matmul(x, self.kernel)


class OfSize(WithoutSize):
    def __init__(self, size, **options):
        super().__init__(**options)
        self._size = size


class OfUsualSize(OfSize):
    def __init__(self, size=3, **options):
        super().__init__(size, **options)


@pytest.mark.parametrize(
    ("kind", "message"),
    [(OfSize, "get_config.*set_dtype_policy"), (OfUsualSize, r"shapes \[.*3\).* for \[.*4\)")],
)
def test_a_layer_that_cannot_be_made_anew_is_told_of(kind, message):
    user = keras.Input((1,), name="userId", dtype="int32")
    x = kind(4)(layers.EmbeddingBag(50, 4)(user))
    model = keras.Model(user, keras.layers.Dense(1)(x))
    with pytest.raises(TrainingError, match=message):
        compile_model(model, precision="bfloat16")


class Weighed(keras.layers.Layer):
    """A layer that Keras cannot make anew: it has no config, and a tensor as an argument."""

    def __init__(self, factors, *, trained=False):
        super().__init__(name="weighed")
        self.factors = keras.Variable(factors) if trained else factors

    def call(self, x):
        return x * keras.ops.cast(self.factors, x.dtype)


@pytest.mark.parametrize("trained", [False, True])
def test_a_layer_without_a_config_computes_in_float32_or_is_told_of(trained):
    keras.utils.set_random_seed(0)
    user = keras.Input((1,), name="user", dtype="int64")
    x = keras.layers.Dense(8, "relu")(layers.EmbeddingBag(50, 4)(user))
    x = Weighed(tf.fill([8], 50.0), trained=trained)(x)
    model = keras.Model({"user": user}, keras.layers.Dense(1)(x))
    given = (model, optimizers.SGD(0.0), "mean_squared_error")
    if trained:
        with pytest.raises(TrainingError, match="Received: 'weighed' of Weighed: "):
            compile_model(*given, precision="bfloat16")
        return
    compile_model(*given, precision="bfloat16")
    rows = {"user": np.arange(64).reshape(-1, 1) % 50}, np.ones((64, 1), "float32")
    (trained,) = model.fit(*rows, batch_size=64, verbose=0).history["loss"]
    assert trained == pytest.approx(model.evaluate(*rows, verbose=0), rel=0.05)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("place", [-1, -2])
def test_a_variable_that_is_frozen_alone_stays(batches, built, precision, place):
    model = built()
    model.layers[place].bias.trainable = False
    before = [weight.numpy() for weight in model.weights]
    compile_model(model, optimizers.SGD(0.5), precision=precision)
    model.fit(batches(128, 64), verbose=0, shuffle=False)
    for weight, old in zip(model.weights, before, strict=True):
        assert np.array_equal(weight.numpy(), old) != weight.trainable


def test_an_unknown_precision_is_refused(built):
    with pytest.raises(TrainingError, match=r"float32, bfloat16, float16\. Received: 'half'"):
        compile_model(built(), precision="half")
    with pytest.raises(TrainingError, match="split=True"):
        compile_model(built(), precision="bfloat16", split=False)


class Scaled(keras.layers.Layer):
    """A layer whose config does not have its factor."""

    def __init__(self, **options):
        super().__init__(**options)
        self.factor = 1.0

    def call(self, x):
        return self.factor * x

    def compute_output_shape(self, shape):
        return shape


@pytest.mark.parametrize("nested", [False, True])
def test_an_attribute_that_was_set_later_counts_in_training(nested):
    """Training at a rate of 0 has the loss of the evaluation, but for 16 bits."""
    keras.utils.set_random_seed(0)
    scaled = Scaled(name="scaled")
    inner = keras.Sequential([keras.Input((8,)), scaled, keras.layers.Dense(8)])
    user = keras.Input((1,), name="user", dtype="int64")
    x = keras.layers.Flatten()(keras.layers.Embedding(50, 4, "normal")(user))
    x = keras.layers.Dense(8, activation="relu")(x)
    x = inner(x) if nested else keras.layers.Dense(8)(scaled(x))
    model = keras.Model({"user": user}, keras.layers.Dense(1)(x))
    scaled.factor = 50.0
    rows = {"user": np.arange(64).reshape(-1, 1) % 50}, np.ones((64, 1), "float32")
    compile_model(model, optimizers.SGD(0.0), "mean_squared_error", precision="bfloat16")
    (trained,) = model.fit(*rows, batch_size=64, verbose=0).history["loss"]
    expected = np.square(model(rows[0]).numpy() - rows[1]).mean()
    assert trained == pytest.approx(expected, rel=0.05)


def gelu(x):
    """Compute another function than Keras' activation of this name."""
    return 3 * keras.ops.sqrt(keras.ops.abs(x))


class Inside(keras.layers.Layer):
    """A layer that makes another one when it is built."""

    def build(self, shape):
        """Make a dense layer."""
        self.dense = keras.layers.Dense(4, activation=gelu)
        self.dense.build(shape)

    def call(self, x):
        """Compute the dense layer."""
        return self.dense(x)


BEHIND_A_TABLE = {
    "dense": lambda: keras.layers.Dense(4, activation=gelu),
    "activation": lambda: keras.layers.Activation(gelu),
    "convolution": lambda: keras.layers.Conv1D(4, 2, activation=gelu),
    "inside": Inside,
    "lambda": lambda: keras.layers.Lambda(lambda x: gelu(x) + 2),
}


# Whether Keras refuses to load lambda functions, or loads them, is about these.
USUAL = [*((kind, True, "bfloat16") for kind in BEHIND_A_TABLE), ("lambda", False, "bfloat16")]
EVERY = itertools.product(BEHIND_A_TABLE, [True, False], ["float32", "bfloat16"])


@pytest.fixture
def was_safe():
    was = in_safe_mode()
    yield
    set_global_attribute("safe_mode_saving", was)


@pytest.mark.parametrize(
    ("kind", "safe", "precision"),
    [*USUAL, *(pytest.param(*each, marks=pytest.mark.long) for each in EVERY if each not in USUAL)],
)
@pytest.mark.usefixtures("was_safe")
def test_functions_of_the_user_count_in_training(kind, safe, precision):
    """Train at a rate of 0, which has the loss of the predictions."""
    set_global_attribute("safe_mode_saving", safe)
    keras.utils.set_random_seed(0)
    user = keras.Input((2,), name="user", dtype="int64")
    x = BEHIND_A_TABLE[kind]()(keras.layers.Embedding(50, 4, "normal")(user))
    model = keras.Model({"user": user}, keras.layers.Dense(1)(keras.layers.Flatten()(x)))
    users = {"user": np.arange(128).reshape(-1, 2) % 50}
    expected = np.square(model(users).numpy() - 1).mean()
    compile_model(model, optimizers.SGD(0.0), "mean_squared_error", precision=precision)
    fitted = model.fit(users, np.ones((64, 1), "float32"), batch_size=64, verbose=0)
    tolerance = 1e-6 if precision == "float32" else 0.05
    assert fitted.history["loss"] == pytest.approx([expected], rel=tolerance)
