import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError, compile_model, layers, models, optimizers
from training.split.cut import cut
from training.split.precision import with_policy


def built(hidden=(16, 8), **options):
    keras.utils.set_random_seed(0)
    sizes = ({"userId": (50, 8), "movieId": (40, 8)}, {"genres": (22, 4)})
    return models.mlp(sizes, hidden=hidden, **options)


def losses(model, dataset, epochs=1):
    """Of each step. (Keras' running mean weighs steps by the length of the first input, a list.)"""
    steps = []
    for _ in range(epochs):
        for batch in dataset:
            model.reset_metrics()
            steps.append(model.train_on_batch(*batch, return_dict=True)["loss"])
    return np.array(steps)


@pytest.mark.parametrize(
    ("optimizer", "xla"), [(keras.optimizers.SGD, True), (keras.optimizers.Adam, False)]
)
def test_it_trains_as_keras_does(batches, xla, optimizer):
    dataset = batches(20 * 64, 64)
    plain, split = built(), built()
    plain.compile(optimizer(0.05), "binary_crossentropy", jit_compile=False)
    compile_model(split, optimizer(0.05), xla=xla)
    np.testing.assert_allclose(losses(split, dataset), losses(plain, dataset), rtol=1e-5, atol=1e-5)
    for own, other in zip(split.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_sixteen_bits_learn_as_well_and_leave_the_model_as_it_is(batches, precision):
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


def test_float16_scales_the_loss(batches):
    model = built()
    compile_model(model, "adagrad", precision="float16")
    assert isinstance(model.optimizer, optimizers.LossScaleOptimizer)
    assert isinstance(model.optimizer.inner_optimizer, optimizers.Adagrad)
    model.fit(batches(128, 64), verbose=0, shuffle=False)
    assert model.optimizer.inner_optimizer.iterations.numpy() == 2


def test_fit_evaluate_metrics_and_callbacks_work(batches, tmp_path):
    model = built()
    compile_model(model, "adam", metrics=["auc"], xla=True, weighted_metrics=["accuracy"])
    history = model.fit(
        batches(300, 64),  # the last batch is shorter
        validation_data=batches(100, 32),
        epochs=3,
        verbose=0,
        shuffle=False,
        callbacks=[
            keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", monitor="val_loss"),
            keras.callbacks.EarlyStopping(monitor="val_loss", patience=9),
        ],
    ).history
    assert set(history) >= {"auc", "loss", "val_auc", "val_loss", "val_accuracy"}
    assert history["val_loss"][-1] < history["val_loss"][0]
    loaded = keras.models.load_model(tmp_path / "best.keras")
    np.testing.assert_allclose(
        loaded.evaluate(batches(100, 32), verbose=0, return_dict=True)["loss"],
        history["val_loss"][-1],
        rtol=1e-4,
    )
    compile_model(loaded, loaded.optimizer)
    loaded.fit(batches(64, 64), verbose=0, shuffle=False)


def test_sample_weights_count(batches):
    dataset = batches(256, 64).map(lambda x, y: (x, y, tf.cast(y > 0, tf.float32)))
    plain, split = built(), built()
    plain.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", jit_compile=False)
    compile_model(split, keras.optimizers.SGD(0.1), xla=True)
    np.testing.assert_allclose(losses(split, dataset), losses(plain, dataset), rtol=1e-5)


def test_several_steps_a_call_are_the_same_steps(batches):
    dataset = batches(10 * 64 + 7, 64)
    one, many = built(), built()
    compile_model(one, optimizers.SGD(0.1), xla=True)
    compile_model(many, optimizers.SGD(0.1), xla=True, steps_per_execution=4)
    for model in (one, many):
        model.fit(dataset, verbose=0, shuffle=False, epochs=2)
    for own, other in zip(many.get_weights(), one.get_weights(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)


def test_state_of_the_dense_layers_moves_on(batches):
    def with_state():
        keras.utils.set_random_seed(0)
        inputs = {"userId": keras.Input((1,), name="userId", dtype="int32")}
        x = layers.DenseFeatures({"userId": (50, 8)})(inputs)
        x = keras.layers.BatchNormalization()(keras.layers.Dense(8)(x))
        x = keras.layers.Dropout(0.5, seed=1)(x)
        return keras.Model(inputs, keras.layers.Dense(1, "sigmoid", kernel_regularizer="l2")(x))

    dataset = batches(640, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    plain, split, rounded = with_state(), with_state(), with_state()
    plain.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", jit_compile=False)
    compile_model(split, keras.optimizers.SGD(0.1))
    compile_model(rounded, keras.optimizers.SGD(0.1), precision="bfloat16")
    # The same dropout, by the same seed: the seed's state moves on, too.
    np.testing.assert_allclose(losses(split, dataset), losses(plain, dataset), rtol=1e-4)
    losses(rounded, dataset)  # 16 bits drop others
    for model, tolerance in ((split, 1e-5), (rounded, 0.05)):
        pairs = zip(model.non_trainable_variables, plain.non_trainable_variables, strict=True)
        for own, other in pairs:
            np.testing.assert_allclose(own.numpy(), other.numpy(), rtol=1e-3, atol=tolerance)


def test_several_outputs_each_have_their_loss(batches):
    def two_heads():
        keras.utils.set_random_seed(0)
        inputs = {"userId": keras.Input((1,), name="userId", dtype="int32")}
        x = keras.layers.Dense(8, "relu")(layers.DenseFeatures({"userId": (50, 8)})(inputs))
        return keras.Model(
            inputs,
            {
                "click": keras.layers.Dense(1, "sigmoid", name="click")(x),
                "stay": keras.layers.Dense(1, name="stay")(x),
            },
        )

    dataset = batches(256, 64).map(
        lambda x, y: ({"userId": x["userId"]}, {"click": y, "stay": 2 * y})
    )
    loss = {"click": "binary_crossentropy", "stay": "mse"}
    plain, split = two_heads(), two_heads()
    plain.compile(keras.optimizers.SGD(0.1), loss, jit_compile=False)
    compile_model(split, keras.optimizers.SGD(0.1), loss, xla=True)
    expected = plain.fit(dataset, verbose=0, shuffle=False).history
    result = split.fit(dataset, verbose=0, shuffle=False).history
    assert set(result) == {"loss", "click_loss", "stay_loss"}
    for name, values in expected.items():
        np.testing.assert_allclose(result[name], values, rtol=1e-5)


def test_tables_stay_outside_and_arithmetic_inside(sizes):
    parts = cut(models.wide_and_deep(sizes, ["age"]))
    outside = {tuple(weight.shape) for weight in parts.lookup.trainable_variables}
    assert {(51, 8), (41, 12), (23, 4)} <= outside
    assert all(len(weight.shape) < 2 or weight.shape[0] > 1 for weight in parts.tower.weights)
    assert {tuple(w.shape) for w in parts.tower.trainable_variables} == {
        (25, 1024), (1024,), (1024, 512), (512,), (512, 256), (256,), (256, 1), (1,)
    }  # fmt: skip


@pytest.mark.parametrize(
    "make",
    [
        lambda sizes: models.wide_and_deep(sizes, ["age"], hidden=(8,)),
        lambda sizes: models.dlrm(sizes, ["age"], embedding_dim=4, bottom=(8,), top=(8,)),
        lambda sizes: models.dcn(sizes, ["age"], hidden=(8,)),
        lambda sizes: models.two_tower(
            sizes, ["age"], query=["userId", "age"], candidate=["movieId", "genres"], hidden=(8,)
        ),
    ],
)
def test_every_model_trains_alike_with_it(sizes, batches, make):
    def with_age(x, y):
        return {**x, "age": tf.cast(x["userId"], tf.float32) / 50}, y

    dataset = batches(256, 64).map(with_age)
    results = []
    for compiled in (
        lambda model: model.compile(
            keras.optimizers.SGD(0.1), "binary_crossentropy", jit_compile=False
        ),
        lambda model: compile_model(model, optimizers.SGD(0.1), xla=True),
    ):
        keras.utils.set_random_seed(0)
        model = make(sizes)
        compiled(model)
        results.append(losses(model, dataset))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4)


def test_keras_own_embedding_is_a_lookup_too(batches):
    def with_embedding():
        keras.utils.set_random_seed(0)
        user = keras.Input((1,), name="userId", dtype="int32")
        x = keras.layers.Flatten()(keras.layers.Embedding(50, 8)(user))
        return keras.Model({"userId": user}, keras.layers.Dense(1, "sigmoid")(x))

    dataset = batches(256, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    plain, split = with_embedding(), with_embedding()
    plain.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", jit_compile=False)
    compile_model(split, optimizers.SGD(0.1), xla=True)
    np.testing.assert_allclose(losses(split, dataset), losses(plain, dataset), rtol=1e-5)
    assert [tuple(w.shape) for w in cut(split).lookup.trainable_variables] == [(50, 8)]


def test_xla_is_for_the_full_batch_alone(batches):
    model = built()
    compile_model(model, xla=True)
    step = model.train_step
    calls = {name: tf.Variable(0) for name in ("_compiled", "_plain")}

    def counted(name, function):
        def call(*arguments):
            calls[name].assign_add(1)
            return function(*arguments)

        return call

    for name in calls:
        setattr(step, name, counted(name, getattr(step, name)))
    for rows in (4 * 64 + 10, 2 * 64 + 33):
        model.fit(batches(rows, 64), verbose=0, shuffle=False)
    assert {name: int(count) for name, count in calls.items()} == {"_compiled": 6, "_plain": 2}


def test_the_last_layers_keep_float32(sizes):
    def policies(model):
        copy = with_policy(cut(model).tower, "mixed_bfloat16")
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


def test_a_layer_that_cannot_be_made_anew_is_told_of():
    class Odd(keras.layers.Dense):
        def __init__(self, size, **options):
            super().__init__(size, **options)

        def get_config(self):
            return {"name": self.name}

    user = keras.Input((1,), name="userId", dtype="int32")
    x = Odd(4)(layers.EmbeddingBag(50, 4)(user))
    model = keras.Model(user, keras.layers.Dense(1)(x))
    with pytest.raises(TrainingError, match=r"get_config.*set_dtype_policy"):
        compile_model(model, precision="bfloat16")


def test_keras_own_step_can_be_had_back(batches):
    model = built()
    compile_model(model)
    compile_model(model, split=False)
    assert "train_step" not in vars(model)
    model.fit(batches(64, 64), verbose=0, shuffle=False)


def subclassed():
    class Model(keras.Model):
        def call(self, x):
            return x

    return Model()


def regularized():
    user = keras.Input((1,), name="userId", dtype="int32")
    x = keras.layers.Embedding(50, 8, embeddings_regularizer="l2")(user)
    return keras.Model(user, keras.layers.Dense(1)(keras.layers.Flatten()(x)))


def without_weights():
    user = keras.Input((1,), name="userId", dtype="int32")
    return keras.Model(user, layers.EmbeddingBag(50, 1)(user))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (subclassed, "functional model.*Received.*split=False"),
        (regularized, "without a regularizer.*embeddings.*split=False"),
        (without_weights, "dense layers after its lookups"),
    ],
)
def test_what_cannot_be_split_is_refused(make, message):
    with pytest.raises(TrainingError, match=message):
        compile_model(make())


def test_losses_of_layers_count(batches):
    def active():
        keras.utils.set_random_seed(0)
        user = keras.Input((1,), name="userId", dtype="int32")
        x = layers.EmbeddingBag(50, 4, embeddings_initializer="normal")(user)
        x = keras.layers.Dense(4, activity_regularizer="l2", kernel_regularizer="l1")(x)
        return keras.Model({"userId": user}, keras.layers.Dense(1, "sigmoid")(x))

    dataset = batches(192, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    plain, split, rounded = active(), active(), active()
    plain.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", jit_compile=False)
    compile_model(split, optimizers.SGD(0.1))
    compile_model(rounded, optimizers.SGD(0.1), precision="bfloat16")
    expected = losses(plain, dataset)
    assert expected[0] > 0.75  # the losses of layers are a part of it
    np.testing.assert_allclose(losses(split, dataset), expected, rtol=1e-5)
    np.testing.assert_allclose(losses(rounded, dataset), expected, rtol=1e-2)


def test_losses_of_lookups_are_refused(batches):
    user = keras.Input((1,), name="userId", dtype="int32")
    x = layers.EmbeddingBag(50, 4, activity_regularizer="l2")(user)
    model = keras.Model({"userId": user}, keras.layers.Dense(1, "sigmoid")(x))
    compile_model(model)
    dataset = batches(64, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    with pytest.raises(TrainingError, match=r"no losses.*Received: 1\. Use split=False"):
        model.fit(dataset, verbose=0, shuffle=False)


def test_an_unknown_precision_is_refused():
    with pytest.raises(TrainingError, match=r"float32, bfloat16, float16\. Received: 'half'"):
        compile_model(built(), precision="half")
    with pytest.raises(TrainingError, match="split=True"):
        compile_model(built(), precision="bfloat16", split=False)
