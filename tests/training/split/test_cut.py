import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError, compile_model, layers, models, optimizers, train
from training.split.cut import cut
from training.split.step import SplitStep


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
        pytest.param(
            lambda sizes: models.wide_and_deep(sizes, ["age"], hidden=(8,)), marks=pytest.mark.long
        ),
        pytest.param(
            lambda sizes: models.dlrm(sizes, ["age"], embedding_dim=4, bottom=(8,), top=(8,)),
            marks=pytest.mark.long,
        ),
        pytest.param(lambda sizes: models.dcn(sizes, ["age"], hidden=(8,)), marks=pytest.mark.long),
        lambda sizes: models.two_tower(
            sizes, ["age"], query=["userId", "age"], candidate=["movieId", "genres"], hidden=(8,)
        ),
    ],
)
def test_every_model_trains_alike_with_it(sizes, batches, make, losses):
    def with_age(x, y):
        return {**x, "age": tf.cast(x["userId"], tf.float32) / 50}, y

    dataset = batches(256, 64).map(with_age)
    results = []
    for compiled in (
        lambda model: model.compile(
            keras.optimizers.SGD(0.1), "binary_crossentropy", run_eagerly=True
        ),
        lambda model: compile_model(model, optimizers.SGD(0.1), xla=True),
    ):
        keras.utils.set_random_seed(0)
        model = make(sizes)
        compiled(model)
        results.append(losses(model, dataset))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4)


def test_keras_own_embedding_is_a_lookup_too(batches, losses):
    def with_embedding():
        keras.utils.set_random_seed(0)
        user = keras.Input((1,), name="userId", dtype="int32")
        x = keras.layers.Flatten()(keras.layers.Embedding(50, 8)(user))
        return keras.Model({"userId": user}, keras.layers.Dense(1, "sigmoid")(x))

    dataset = batches(256, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    plain, split = with_embedding(), with_embedding()
    plain.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", run_eagerly=True)
    compile_model(split, optimizers.SGD(0.1), xla=True)
    np.testing.assert_allclose(losses(split, dataset), losses(plain, dataset), rtol=1e-5)
    assert [tuple(w.shape) for w in cut(split).lookup.trainable_variables] == [(50, 8)]


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


def partly_without_weights():
    user = keras.Input((1,), name="userId", dtype="int32")
    x = layers.EmbeddingBag(50, 1)(user)
    return keras.Model(user, {"score": x, "chance": keras.layers.Dense(1, "sigmoid")(x)})


def functional(kind=keras.Model, hidden=None):
    user = keras.Input((1,), name="userId", dtype="int32")
    x = layers.EmbeddingBag(50, 4, embeddings_initializer="normal")(user)
    x = x if hidden is None else hidden(x)
    return kind({"userId": user}, keras.layers.Dense(1, "sigmoid")(x))


class OwnStep(keras.Model):
    """As Keras' guide writes it, of half the loss."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred) / 2
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics}


class WithoutMetrics(keras.Model):
    def train_step(self, data):  # noqa: ARG002 - Keras'
        return {"loss": tf.constant(0.0)}


class OwnLoss(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        assert sample_weight is None
        weight = tf.cast(x["userId"] % 3, tf.float32)
        return super().compute_loss(x, y, y_pred, weight, training)


class OwnCall(keras.Model):
    def call(self, inputs, training=None):
        return super().call(inputs, training=training) / 2


def normalized():
    return functional(
        hidden=keras.layers.SpectralNormalization(keras.layers.Dense(4), power_iterations=5)
    )


def assigned(inputs, outputs):
    """A model that is given a step, without a class for it."""
    model = keras.Model(inputs, outputs)
    model.train_step = lambda data: OwnStep.train_step(model, data)
    return model


@pytest.mark.parametrize("kind", [OwnStep, OwnLoss, OwnCall, assigned])
@pytest.mark.parametrize("metrics", [pytest.param([], marks=pytest.mark.long), ["accuracy"]])
def test_a_step_of_the_users_own_is_taken(kind, metrics, batches):
    dataset = batches(192, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    keras.utils.set_random_seed(0)
    plain = functional(kind)
    plain.compile(
        keras.optimizers.SGD(0.1), "binary_crossentropy", metrics=metrics or None, run_eagerly=True
    )
    expected = plain.fit(dataset, verbose=0, shuffle=False).history
    keras.utils.set_random_seed(0)
    model = functional(kind)
    own = vars(model).get("train_step")
    report = train(model, dataset, optimizer=keras.optimizers.SGD(0.1), metrics=metrics)
    assert own is None or vars(model)["train_step"] is own
    assert not isinstance(model.train_step, SplitStep)
    assert report.samples == 192
    assert set(report.history) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(report.history[name], values, rtol=1e-5)


class Scaled(keras.Model):
    """Reads a column that is none of the network's inputs."""

    def call(self, inputs, training=None):
        return super().call({"userId": inputs["userId"]}, training=training) * inputs["scale"]


def test_a_call_of_the_users_own_reads_all_columns(batches):
    dataset = batches(64, 64).map(
        lambda x, y: ({"userId": x["userId"], "scale": tf.ones_like(y) / 2}, tf.zeros_like(y))
    )
    model = functional(Scaled)
    compile_model(model, keras.optimizers.SGD(0.0), "mae", split=False)
    (loss,) = model.fit(dataset, verbose=0, shuffle=False).history["loss"]
    features, _ = next(iter(dataset))
    scores = keras.Model(model.inputs[0], model.outputs[0])(features["userId"]).numpy()
    assert loss == pytest.approx(scores.mean() / 2, rel=1e-5)


def test_a_step_that_leaves_out_the_metrics_is_told_of(batches):
    dataset = batches(64, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    with pytest.raises(TrainingError, match=r"computes the metrics.*WithoutM.*Use metrics=\[\]"):
        train(functional(WithoutMetrics), dataset, metrics=["accuracy"], optimizer="sgd")


def test_weights_that_a_layer_normalizes_are_assigned(batches):
    dataset = batches(128, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    model = normalized()
    train(model, dataset, optimizer=keras.optimizers.SGD(0.0), metrics=[])
    norm = np.linalg.norm(model.layers[2].layer.kernel.numpy(), ord=2)
    np.testing.assert_allclose(norm, 1, atol=0.05)


def test_a_layer_that_assigns_a_weight_is_refused(batches):
    class Halved(keras.layers.Layer):
        def build(self, shape):
            self.factor = self.add_weight(shape=(shape[-1],), initializer="ones")

        def call(self, x):
            self.factor.assign(self.factor.value / 2)
            return x * self.factor

    model = functional(hidden=Halved())
    compile_model(model, "sgd")
    dataset = batches(64, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    with pytest.raises(TrainingError, match=r"do not assign weights.*Received: halved/.*split=Fal"):
        model.fit(dataset, verbose=0, shuffle=False)


def remembering():
    """A model that begins a batch with the state in which the batch before has ended."""
    keras.utils.set_random_seed(0)
    user = keras.Input(batch_shape=(64, 1), name="userId", dtype="int32")
    x = keras.layers.GRU(4, stateful=True)(keras.layers.Embedding(51, 4)(user))
    return keras.Model({"userId": user}, keras.layers.Dense(1, "sigmoid")(x))


@pytest.mark.filterwarnings("ignore:The model cannot be exported")
def test_the_state_of_an_rnn_is_kept_between_batches(batches):
    dataset = batches(192, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    plain, trained = remembering(), remembering()
    plain.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", run_eagerly=True)
    plain.fit(dataset, verbose=0, shuffle=False)
    train(trained, dataset, optimizer=keras.optimizers.SGD(0.1), metrics=[])
    for own, other in zip(trained.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5)
    expected, found = plain.layers[2].states[0].numpy(), trained.layers[2].states[0].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.abs(expected).min() > 0


class Noise(keras.layers.Layer):
    def __init__(self, seed):
        super().__init__()
        self.seed = seed

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x), seed=self.seed)


def test_a_layer_that_assigns_what_no_model_holds_is_refused(batches):
    """Keras' common seed, which would give each step the same random numbers."""
    dataset = batches(64, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    model = functional(hidden=Noise(None))
    compile_model(model, "sgd")
    with pytest.raises(TrainingError, match=r"variables of model.*keras\.random.*split=False"):
        model.fit(dataset, verbose=0, shuffle=False)
    own = functional(hidden=Noise(keras.random.SeedGenerator(3)))
    compile_model(own, optimizers.SGD(0.0))
    losses = [own.fit(dataset, verbose=0, shuffle=False).history["loss"][0] for _ in range(2)]
    assert losses[0] != losses[1]


def of_texts(to_vectors, before=None):
    """A model of texts (N, 1), of which Keras gives vectors (N, tokens) and expects (N, 1, tokens)."""
    text = keras.Input((1,), name="text", dtype="string")
    vector = to_vectors(text if before is None else before(text))
    return keras.Model(
        {"text": text}, keras.layers.Dense(1, "sigmoid")(keras.layers.Flatten()(vector))
    )


@pytest.mark.parametrize("mode", ["multi_hot", pytest.param("tf_idf", marks=pytest.mark.long)])
@pytest.mark.parametrize("before", [None, keras.layers.Reshape(())])
def test_texts_as_vectors_are_trained(mode, before):
    texts = tf.constant([["red shoe"], ["blue hat"], [""], ["hat"]])
    to_vectors = keras.layers.TextVectorization(output_mode=mode)
    to_vectors.adapt(texts)
    model = of_texts(to_vectors, before)
    data = tf.data.Dataset.from_tensors(({"text": texts}, tf.constant([[1.0], [0], [0], [0]])))
    assert train(model, data, optimizer="sgd", metrics=[]).samples == 4
    assert isinstance(model.train_step, SplitStep) is (before is not None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: of_texts(
                keras.layers.TextVectorization(output_mode="count", vocabulary=["hat"])
            ),
            r"shape that Keras expects.*Received: text_vector.*\(N, tokens\).*Reshape\(\(\)\)",
        ),
        (lambda: functional(OwnStep), "Keras' own.*Received.*OwnStep, which defines train_step"),
        (lambda: functional(assigned), "Received.*Functional, which defines train_step"),
        (lambda: functional(OwnLoss), "which defines compute_loss. Use split=False"),
        (lambda: functional(OwnCall), "which defines call. Use split=False"),
        (normalized, "do not assign weights.*Received: spectral_norm.*split=False"),
        (remembering, r"variables of model.*Received: gru.* with stateful=True\. Use split=False"),
        (subclassed, "functional model.*Received.*split=False, if there is one worker"),
        (regularized, "without a regularizer.*embeddings.*split=False, if there is one worker"),
        (without_weights, "dense layers after its lookups"),
        (partly_without_weights, "dense layers after its lookups.*an output without any"),
    ],
)
def test_what_cannot_be_split_is_refused(make, message):
    with pytest.raises(TrainingError, match=message):
        compile_model(make())


@pytest.mark.parametrize("inputs", [list, lambda tensors: tensors[0]])
@pytest.mark.parametrize(
    "outputs",
    [
        pytest.param(list, marks=pytest.mark.long),
        tuple,
        pytest.param(lambda tensors: tensors[0], marks=pytest.mark.long),
    ],
)
def test_one_input_or_output_may_be_in_a_list(inputs, outputs, batches, losses):
    def model():
        keras.utils.set_random_seed(0)
        user = keras.Input((1,), name="userId", dtype="int32")
        x = layers.EmbeddingBag(50, 4, embeddings_initializer="normal")(user)
        return keras.Model(inputs([user]), outputs([keras.layers.Dense(1, "sigmoid")(x)]))

    dataset = batches(128, 64).map(lambda x, y: (x["userId"], y))
    plain, split = model(), model()
    plain.compile(
        keras.optimizers.SGD(0.1), "binary_crossentropy", metrics=["accuracy"], run_eagerly=True
    )
    compile_model(split, keras.optimizers.SGD(0.1), metrics=["accuracy"])
    np.testing.assert_allclose(losses(split, dataset), losses(plain, dataset), rtol=1e-5)


def with_losses(table):
    user = keras.Input((1,), name="userId", dtype="int32")
    return keras.Model({"userId": user}, keras.layers.Dense(1, "sigmoid")(table(user)))


class AddsLoss(layers.EmbeddingBag):
    def call(self, inputs):
        self.add_loss(tf.constant(1.0))
        return super().call(inputs)


def test_losses_of_lookups_are_refused(batches):
    active = with_losses(layers.EmbeddingBag(50, 4, activity_regularizer="l2"))
    with pytest.raises(TrainingError, match=r"no losses.*Received: 1\. Use split=False"):
        compile_model(active)
    dataset = batches(64, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    cheap = {"metrics": [], "optimizer": "sgd"}
    assert train(active, dataset, **cheap).samples == 64  # by Keras' step
    adding = with_losses(AddsLoss(50, 4))
    compile_model(adding, "sgd")
    with pytest.raises(TrainingError, match=r"no losses.*Received: 1\. Use split=False"):
        adding.fit(dataset, verbose=0, shuffle=False)


def test_ids_that_are_to_be_checked_are_checked_with_xla_too(batches):
    user = keras.Input((1,), name="userId", dtype="int32")
    table = layers.EmbeddingBag(10, 4)  # the data's ids go up to 49
    model = keras.Model({"userId": user}, keras.layers.Dense(1, "sigmoid")(table(user)))
    compile_model(model, "sgd", xla=True)
    dataset = batches(64, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    model.fit(dataset, verbose=0, shuffle=False)  # unknown ones share a vector
    table.validate_ids = True
    model.train_function = None
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Expected ids of column .* 0 \.\. 9"):
        model.fit(dataset, verbose=0, shuffle=False)


def test_columns_that_the_model_does_not_take_do_no_harm(batches, losses):
    def model():
        keras.utils.set_random_seed(0)
        user = keras.Input((1,), name="userId", dtype="int32")
        x = layers.EmbeddingBag(50, 4, embeddings_initializer="normal")(user)
        return keras.Model({"userId": user}, keras.layers.Dense(1, "sigmoid")(x))

    alone = batches(192, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    # Lists, for whose lengths XLA would compile anew, and text, which it knows nothing of.
    more = batches(192, 64).map(lambda x, y: ({**x, "name": tf.as_string(x["userId"])}, y))
    one, other = model(), model()
    for each in (one, other):
        compile_model(each, optimizers.SGD(0.1), xla=True)
    np.testing.assert_allclose(losses(other, more), losses(one, alone), rtol=1e-6)


@pytest.mark.long
def test_a_table_may_be_on_another_device():
    program = """
import keras, numpy as np, tensorflow as tf
from training import compile_model, layers, optimizers

two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
table = layers.EmbeddingBag(50, 4)
with tf.device("/cpu:1"):
    table.build()
user = keras.Input((1,), name="userId", dtype="int32")
model = keras.Model(user, keras.layers.Dense(1, "sigmoid")(table(user)))
compile_model(model, optimizers.SGD(0.1), xla=True)
before = table.table.numpy()
model.fit(np.full((8, 1), 7), np.ones((8, 1)), verbose=0)
print(np.unique(np.nonzero(table.table.numpy() - before)[0]), table.embeddings.value.device[-5:])
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout.strip().endswith("[7] CPU:1"), done.stderr[-2000:]


def test_a_model_whose_numbers_pass_by_its_lookups_can_be_saved(sizes, batches, tmp_path, losses):
    """The tower takes an input of the model as its own, for which Keras loses the model's."""

    def with_age(x, y):
        return {**x, "age": tf.cast(x["userId"], tf.float32) / 50}, y

    model = models.dlrm(sizes, ["age"], embedding_dim=4, bottom=(8,), top=(8,))
    compile_model(model, "adagrad", precision="bfloat16")
    losses(model, batches(64, 64).map(with_age))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for mine, saved in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, saved)
