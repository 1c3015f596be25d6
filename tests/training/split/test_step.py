import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError, compile_model, layers, optimizers, train
from training.split.step import SplitStep


@pytest.mark.parametrize(
    ("optimizer", "xla", "weighted"),
    [(keras.optimizers.SGD, True, True), (keras.optimizers.Adam, False, False)],
    ids=["with weights of rows, by XLA", "without"],
)
def test_it_trains_as_keras_does(batches, xla, optimizer, weighted, built, losses):
    dataset = batches(6 * 64, 64)
    if weighted:
        dataset = dataset.map(lambda x, y: (x, y, tf.cast(x["userId"] % 3, tf.float32)))
    plain, split = built(), built()
    plain.compile(optimizer(0.05), "binary_crossentropy", run_eagerly=True)
    compile_model(split, optimizer(0.05), xla=xla)
    np.testing.assert_allclose(losses(split, dataset), losses(plain, dataset), rtol=1e-5, atol=1e-5)
    for own, other in zip(split.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-3, atol=1e-5)


def test_fit_evaluate_metrics_and_callbacks_work(batches, tmp_path, built):
    model = built()
    compile_model(
        model, optimizers.SGD(0.5), metrics=["mae"], xla=True, weighted_metrics=["accuracy"]
    )
    history = model.fit(
        batches(300, 64),  # the last batch is shorter
        validation_data=batches(100, 32),
        epochs=2,
        verbose=0,
        shuffle=False,
        callbacks=[
            keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", monitor="val_loss"),
            keras.callbacks.EarlyStopping(monitor="val_loss", patience=9),
        ],
    ).history
    assert set(history) >= {"mae", "loss", "val_mae", "val_loss", "val_accuracy"}
    assert history["val_loss"][-1] < history["val_loss"][0]
    loaded = keras.models.load_model(tmp_path / "best.keras")
    each = keras.losses.BinaryCrossentropy(reduction="sum")
    total = sum(float(each(y, loaded(x))) for x, y in batches(100, 32))
    np.testing.assert_allclose(total / 100, history["val_loss"][-1], rtol=1e-4)
    compile_model(loaded, loaded.optimizer)
    loaded.fit(batches(64, 64), verbose=0, shuffle=False)


def test_state_of_the_dense_layers_moves_on(batches, losses):
    def with_state():
        keras.utils.set_random_seed(0)
        inputs = {"userId": keras.Input((1,), name="userId", dtype="int32")}
        x = layers.DenseFeatures({"userId": (50, 8)})(inputs)
        x = keras.layers.BatchNormalization()(keras.layers.Dense(8)(x))
        x = keras.layers.Dropout(0.5, seed=1)(x)
        return keras.Model(inputs, keras.layers.Dense(1, "sigmoid", kernel_regularizer="l2")(x))

    dataset = batches(256, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    plain, split, rounded = with_state(), with_state(), with_state()
    plain.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", run_eagerly=True)
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

    dataset = batches(150, 64).map(  # the last batch is shorter
        lambda x, y: ({"userId": x["userId"]}, {"click": y, "stay": 2 * y})
    )
    loss = {"click": "binary_crossentropy", "stay": "mse"}
    plain, split = two_heads(), two_heads()
    plain.compile(keras.optimizers.SGD(0.1), loss, run_eagerly=True)
    compile_model(split, keras.optimizers.SGD(0.1), loss, xla=True)
    steps = []
    for x, y in dataset:
        plain.reset_metrics()
        steps.append(plain.train_on_batch(x, y, return_dict=True))
    result = split.fit(dataset, verbose=0, shuffle=False).history
    assert set(result) == {"loss", "click_loss", "stay_loss"}
    for name, values in result.items():
        by_row = np.average([step[name] for step in steps], weights=[64, 64, 22])
        np.testing.assert_allclose(values, [by_row], rtol=1e-5)


def test_losses_of_layers_count(batches, losses):
    def active():
        keras.utils.set_random_seed(0)
        user = keras.Input((1,), name="userId", dtype="int32")
        x = layers.EmbeddingBag(50, 4, embeddings_initializer="normal")(user)
        x = keras.layers.Dense(4, activity_regularizer="l2", kernel_regularizer="l1")(x)
        return keras.Model({"userId": user}, keras.layers.Dense(1, "sigmoid")(x))

    dataset = batches(192, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    plain, split, rounded = active(), active(), active()
    plain.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", run_eagerly=True)
    compile_model(split, optimizers.SGD(0.1))
    compile_model(rounded, optimizers.SGD(0.1), precision="bfloat16")
    expected = losses(plain, dataset)
    assert expected[0] > 0.75  # the losses of layers are a part of it
    np.testing.assert_allclose(losses(split, dataset), expected, rtol=1e-5)
    np.testing.assert_allclose(losses(rounded, dataset), expected, rtol=1e-2)


def test_keras_own_step_can_be_had_back(batches, built):
    model = built()
    compile_model(model, "sgd")
    compile_model(model, "sgd", split=False)
    assert not isinstance(model.train_step, SplitStep)
    model.fit(batches(64, 64), verbose=0, shuffle=False)


class Shifted(keras.layers.Layer):
    """A layer with an attribute that its config lacks, and a loss of its activity."""

    shift = 0.0

    def call(self, x):
        self.add_loss(0.01 * tf.reduce_mean(tf.square(x)))
        return x + self.shift


def _adapted(*, nested, shift):
    keras.utils.set_random_seed(0)
    inputs = {"userId": keras.Input((1,), name="userId", dtype="int32")}
    inputs["age"] = keras.Input((1,), name="age")
    normalized, shifted = keras.layers.Normalization(), Shifted()
    normalized.adapt(np.array([[900.0], [1000.0], [1100.0]]))
    shifted.shift = shift
    both = keras.Sequential([normalized, shifted])
    age = both(inputs["age"]) if nested else shifted(normalized(inputs["age"]))
    user = layers.DenseFeatures({"userId": (50, 8)})({"userId": inputs["userId"]})
    x = keras.layers.Dense(8, "relu")(keras.layers.Concatenate()([user, age]))
    return keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(x))


@pytest.mark.parametrize(
    ("options", "shift", "rtol", "nested"),
    [
        ({}, -0.5, 1e-5, False),
        pytest.param({}, -0.5, 1e-5, True, marks=pytest.mark.long),
        pytest.param({"xla": True}, -0.5, 1e-5, False, marks=pytest.mark.long),
        ({"xla": True}, -0.5, 1e-5, True),
        ({"precision": "bfloat16"}, 0.0, 1e-2, False),
        pytest.param({"precision": "bfloat16"}, 0.0, 1e-2, True, marks=pytest.mark.long),
    ],
)
def test_what_no_config_has_counts(batches, losses, options, shift, rtol, nested):
    plain, split = (_adapted(nested=nested, shift=shift) for _ in range(2))
    dataset = batches(256, 64).map(lambda x, y: ({"userId": x["userId"], "age": 900 + 200 * y}, y))
    plain.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", run_eagerly=True)
    compile_model(split, keras.optimizers.SGD(0.1), **options)
    np.testing.assert_allclose(losses(split, dataset), losses(plain, dataset), rtol=rtol)


def _with_genres(inputs, x):
    """The output of a model that also takes lists, whose lookups are apart from the dense part."""
    pair = tuple(
        keras.Input((1,), name=f"genres__{part}", dtype="int64") for part in ("values", "nnzs")
    )
    x = keras.layers.Concatenate()([x, layers.EmbeddingBag(22, 4)(pair)])
    return keras.Model(inputs | {"genres": pair}, keras.layers.Dense(1, "sigmoid")(x))


def test_the_table_of_an_output_without_a_loss_stays_beside_lists(batches):
    """The vectors of that table have no gradient, which TensorFlow would take for one of ones."""
    inputs = {name: keras.Input((1,), name=name, dtype="int64") for name in ("userId", "movieId")}
    user, movie = layers.EmbeddingBag(50, 4), layers.EmbeddingBag(40, 4)
    click = _with_genres({"userId": inputs["userId"]}, user(inputs["userId"]))
    rest = keras.layers.Dense(1, name="rest")(movie(inputs["movieId"]))
    outputs = {"click": click.output, "rest": rest}
    model = keras.Model({**click.input, "movieId": inputs["movieId"]}, outputs)
    before = user.table.numpy(), movie.table.numpy()
    compile_model(model, optimizers.SGD(0.5), {"click": "binary_crossentropy"})
    dataset = batches(64, 64).map(lambda x, y: (x, {"click": y, "rest": y}))
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        model.fit(dataset, verbose=0, shuffle=False)
    assert np.any(user.table != before[0])
    np.testing.assert_array_equal(movie.table, before[1])


@pytest.mark.parametrize("lists", [pytest.param(False, marks=pytest.mark.long), True])
def test_columns_that_a_model_does_not_take_change_nothing(batches, losses, lists):
    """Keras sorts the columns by name, and assigns them to inputs by position."""

    def model():
        keras.utils.set_random_seed(0)
        user = keras.Input((1,), name="userId", dtype="int64")
        x = layers.EmbeddingBag(50, 4)(user)
        if lists:
            return _with_genres({"userId": user}, x)
        return keras.Model({"userId": user}, keras.layers.Dense(1, "sigmoid")(x))

    taken = ["userId", "genres"] if lists else ["userId"]
    exact = batches(256, 64).map(lambda x, y: ({name: x[name] for name in taken}, y))
    more = batches(256, 64).map(
        lambda x, y: ({"movieId": x["movieId"]} | {name: x[name] for name in taken}, y)
    )
    results = []
    for dataset in (exact, more):
        split = model()
        compile_model(split, keras.optimizers.SGD(0.5))
        results.append(losses(split, dataset, epochs=2))
    np.testing.assert_array_equal(*results)


def _attentive(*, lists):
    recent = keras.Input((6,), name="recent", dtype="int64")
    x = keras.layers.Embedding(40, 8, mask_zero=True)(recent)
    x = keras.layers.MultiHeadAttention(2, 4)(x, x)
    x = keras.layers.GlobalAveragePooling1D()(x)
    if lists:
        return _with_genres({"recent": recent}, x)
    return keras.Model({"recent": recent}, keras.layers.Dense(1, "sigmoid")(x))


@pytest.mark.parametrize("lists", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize("options", [pytest.param({}, marks=pytest.mark.long), {"xla": True}])
def test_masks_of_lookups_count(batches, losses, options, lists):
    def with_recent(x, y):
        ids = (x["movieId"] * tf.range(1, 7, dtype="int32")) % 40
        shown = tf.range(6, dtype="int32") <= x["userId"] % 6
        recent = tf.where(shown, tf.maximum(ids, 1), 0)
        return {"recent": recent} | ({"genres": x["genres"]} if lists else {}), y

    dataset = batches(256, 64).map(with_recent)
    results = []
    for is_split in (False, True):
        keras.utils.set_random_seed(0)
        model = _attentive(lists=lists)
        if is_split:
            compile_model(model, keras.optimizers.SGD(1.0), **options)
        else:
            model.compile(keras.optimizers.SGD(1.0), "binary_crossentropy", run_eagerly=True)
        results.append(losses(model, dataset, epochs=2))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("xla", "single", "precision"),
    [(False, True, "float32"), (True, False, "bfloat16")],
)
def test_metrics_leave_out_steps_that_are_masked(xla, single, precision):
    """A label for each step of padded sequences, of which metrics count those with an id alone."""
    rng = np.random.default_rng(0)
    recent = np.where(np.arange(6) < rng.integers(1, 7, (40, 1)), rng.integers(1, 9, (40, 6)), 0)
    label = (recent % 2)[..., None].astype("float32")
    weight = rng.random((40, 6)).astype("float32")
    ids = keras.Input((6,), name="recent", dtype="int64")
    keras.utils.set_random_seed(0)
    x = keras.layers.Dense(4, "relu")(keras.layers.Embedding(9, 4, mask_zero=True)(ids))
    steps = keras.layers.Dense(1, "sigmoid", name="steps")(x)
    rest = keras.layers.Dense(1, "sigmoid", name="rest")(keras.layers.GlobalAveragePooling1D()(x))
    outputs = steps if single else {"steps": steps, "rest": rest}
    model = keras.Model({"recent": ids}, outputs)
    predicted = model({"recent": recent})
    predicted = (predicted if single else predicted["steps"]).numpy()[..., 0]
    shown = recent > 0
    right = (predicted > 0.5) == label[..., 0]
    squares = (predicted - label[..., 0]) ** 2

    def of_steps(value):
        return value if single else {"steps": value, "rest": None}

    compile_model(
        model,
        optimizers.SGD(0.0),
        "binary_crossentropy",
        metrics=of_steps(["accuracy"]),
        weighted_metrics=of_steps(["mse"]),
        xla=xla,
        precision=precision,
    )
    y = label if single else {"steps": label, "rest": label[:, 0]}
    w = weight if single else {"steps": weight, "rest": weight[:, 0]}
    result = model.train_on_batch({"recent": recent}, y, w, return_dict=True)
    name = "" if single else "steps_"
    tolerance = 1e-5 if precision == "float32" else 1e-2
    expected = right[shown].mean(), np.average(squares[shown], weights=weight[shown])
    received = result[f"{name}accuracy"], result[f"{name}mse"]
    np.testing.assert_allclose(received, expected, rtol=tolerance)


class Measured(keras.layers.Layer):
    """A layer with a metric of its own."""

    def __init__(self, **options):
        super().__init__(**options)
        self.mean = keras.metrics.Mean(name="mean")

    def call(self, x):
        self.mean.update_state(x)
        return x


@pytest.mark.parametrize("xla", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_metric_within_a_layer_counts_beside_those_of_the_model(batches, xla):
    dataset = batches(150, 64).map(lambda x, y: (x["userId"], y))  # the last batch is shorter
    keras.utils.set_random_seed(0)
    ids = keras.Input((1,), dtype="int32")
    x = Measured()(keras.layers.Dense(4)(layers.EmbeddingBag(50, 4)(ids)))
    model = keras.Model(ids, keras.layers.Dense(1, "sigmoid")(x))
    inner = keras.Model(ids, x)
    compile_model(model, optimizers.SGD(0.0), metrics=["accuracy"], xla=xla)
    history = model.fit(dataset, verbose=0, epochs=2, shuffle=False).history
    users, labels = (
        np.concatenate(parts) for parts in zip(*dataset.as_numpy_iterator(), strict=True)
    )
    means = np.concatenate([inner(part).numpy() for part in np.split(users, [64, 128])])
    right = (model(users).numpy() > 0.5) == labels
    np.testing.assert_allclose(history["mean"], [means.mean()] * 2, rtol=1e-4)
    np.testing.assert_allclose(history["accuracy"], [right.mean()] * 2, rtol=1e-5)


class Tied(keras.layers.Layer):
    """Products with the vectors of a table."""

    def __init__(self, table, **options):
        super().__init__(**options)
        self.table = table

    def call(self, x):
        return keras.ops.matmul(x, keras.ops.transpose(self.table))


def _with_a_shared_layer(inputs):
    shared = keras.layers.Dense(8, "relu")
    ids = keras.Input((1,), dtype="int64")
    tower = keras.Model(ids, shared(layers.EmbeddingBag(50, 8)(ids)))
    movie = layers.EmbeddingBag(40, 4)(inputs["movieId"])
    both = [tower(inputs["userId"]), shared(keras.layers.Dense(8)(movie))]
    return keras.layers.Concatenate()(both)


def _with_a_tied_table(inputs):
    user = layers.EmbeddingBag(50, 8)
    x = keras.layers.Dense(8, "relu")(user(inputs["userId"]))
    return Tied(user.embeddings)(x)


def _with_a_tied_table_of_two_uses(inputs):
    user, movie = layers.EmbeddingBag(50, 8), layers.EmbeddingBag(40, 8)
    x = keras.layers.Concatenate()([user(inputs["userId"]), movie(inputs["movieId"])])
    return Tied(user.embeddings)(keras.layers.Dense(8, "relu")(x))


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize(
    "optimizer", [pytest.param(keras.optimizers.SGD, marks=pytest.mark.long), optimizers.Adagrad]
)
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(_with_a_shared_layer, marks=pytest.mark.long),
        pytest.param(_with_a_tied_table, marks=pytest.mark.long),
        _with_a_tied_table_of_two_uses,
    ],
)
def test_weights_before_and_after_the_lookups_get_both_gradients(
    batches, losses, make, optimizer, lists
):
    def built():
        keras.utils.set_random_seed(0)
        inputs = {
            name: keras.Input((1,), name=name, dtype="int64") for name in ("userId", "movieId")
        }
        x = make(inputs)
        return (
            _with_genres(inputs, x)
            if lists
            else keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(x))
        )

    dataset = batches(256, 64)
    if not lists:
        dataset = dataset.map(lambda x, y: ({name: x[name] for name in ("userId", "movieId")}, y))
    plain, split = built(), built()
    plain.compile(optimizer(0.5), "binary_crossentropy", jit_compile=False)
    compile_model(split, optimizer(0.5))
    np.testing.assert_allclose(
        losses(split, dataset, epochs=2), losses(plain, dataset, epochs=2), rtol=1e-4
    )


def _moved(model, step):
    """The weights that a step changes, and those that are to be trained."""
    before = {weight.path: weight.numpy() for weight in model.weights}
    step()
    moved = {w.path for w in model.weights if (w.numpy() != before[w.path]).any()}
    return moved, {weight.path for weight in model.trainable_weights}


@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "frozen",
    [
        pytest.param(["dense_features"], marks=pytest.mark.long),
        pytest.param(["dense"], marks=pytest.mark.long),
        ["dense_features", "dense"],
    ],
)
def test_layers_frozen_and_thawed_after_compiling(batches, precision, frozen):
    def small():
        inputs = {"userId": keras.Input((1,), name="userId", dtype="int32")}
        x = layers.DenseFeatures({"userId": (50, 8)}, name="dense_features")(inputs)
        x = keras.layers.Dense(8, "tanh", name="dense")(x)
        return keras.Model(inputs, keras.layers.Dense(1, "sigmoid", name="chance")(x))

    def freeze(model, *, trainable):
        for name in frozen:
            model.get_layer(name).trainable = trainable

    def fit(model):
        model.fit(dataset, verbose=0, shuffle=False)

    dataset = batches(128, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    compiled, thawed, trained = small(), small(), small()
    compile_model(compiled, "sgd", precision=precision)
    freeze(compiled, trainable=False)
    freeze(thawed, trainable=False)
    compile_model(thawed, "sgd", precision=precision)
    freeze(thawed, trainable=True)
    train(trained, dataset, optimizer="sgd", metrics=[], precision=precision)
    freeze(trained, trainable=False)
    for model, count in ((compiled, None), (thawed, 5), (trained, None)):
        moved, expected = _moved(model, lambda model=model: fit(model))
        assert moved == expected
        assert count is None or len(moved) == count


@pytest.mark.parametrize("precision", [pytest.param("float32", marks=pytest.mark.long), "float16"])
def test_an_optimizer_of_other_weights_is_refused(batches, built, precision):
    dataset, optimizer = batches(64, 64), optimizers.SGD(momentum=0.9)
    model, other = built(), built()
    model.layers[-1].trainable = False
    for _ in range(2):
        train(model, dataset, optimizer=optimizer, metrics=[], precision=precision)
    model.layers[-1].trainable = True
    for given in (model, other):
        with pytest.raises(TrainingError, match=r"SGD, built without .* Make a new optimizer"):
            compile_model(given, optimizer, precision=precision)
    with pytest.raises(TrainingError, match="while these weights were frozen"):
        model.fit(dataset, verbose=0, shuffle=False)
    train(model, dataset, optimizer="sgd", metrics=[], precision=precision)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": None}, "Expected an optimizer .* None"),
        ({"optimizer": "adem"}, "Expected an optimizer .* 'adem'"),
        ({"optimizer": optimizers.Adam}, r"Make one: Adam\(\)"),
        ({"jit_compile": True}, "Expected xla"),
        ({"run_eagerly": True}, "split=False"),
        ({"steps_per_execution": "auto"}, "a whole number from 1. Received: .*'auto'"),
    ],
)
def test_options_that_the_step_does_not_have(built, options, message):
    with pytest.raises(TrainingError, match=message):
        compile_model(built(), **options)


def test_an_optimizer_may_be_a_config_or_a_name_in_capitals(built):
    model = built()
    compile_model(model, keras.optimizers.serialize(keras.optimizers.Adam(0.25)))
    assert float(model.optimizer.learning_rate) == 0.25
    compile_model(model, "Adam")
    assert isinstance(model.optimizer, optimizers.Adam)


def test_keras_own_step_may_run_eagerly(batches, built, losses):
    """To debug a loss, which then gets the numbers themselves."""
    seen = []

    def loss(wanted, found):
        seen.append(float(keras.ops.mean(keras.losses.binary_crossentropy(wanted, found))))
        return keras.losses.binary_crossentropy(wanted, found)

    model = built()
    compile_model(model, optimizers.SGD(0.5), loss, split=False, run_eagerly=True)
    np.testing.assert_allclose(losses(model, batches(40, 32)), seen, rtol=1e-6)
