import keras
import numpy as np
import pytest
import tensorflow as tf

from training import compile_model, layers, models, optimizers, train


def test_xla_is_for_the_full_batch_alone(batches, built):
    model = built()
    compile_model(model, "sgd", xla=True)
    step = model.train_step
    calls = {name: tf.Variable(0) for name in ("compiled", "plain")}

    def counted(name, function):
        def call(*arguments):
            calls[name].assign_add(1)
            return function(*arguments)

        return call

    for name in calls:
        setattr(step, name, counted(name, getattr(step, name)))
    for rows in (4 * 64 + 10, 2 * 64 + 33):
        model.fit(batches(rows, 64), verbose=0, shuffle=False)
    assert {name: int(count) for name, count in calls.items()} == {"compiled": 6, "plain": 2}


@pytest.mark.parametrize("xla", [True, False])
def test_a_row_of_a_short_batch_counts_as_any_other(batches, built, xla):
    dataset = batches(64 + 5, 64)
    model = built()
    compile_model(model, keras.optimizers.SGD(0.0), xla=xla, steps_per_execution=2)
    loss = model.fit(dataset, verbose=0, shuffle=False).history["loss"][0]
    each = keras.losses.BinaryCrossentropy(reduction="sum")
    total = sum(float(each(y, model(x))) for x, y in dataset)
    np.testing.assert_allclose(loss, total / (64 + 5), rtol=1e-5)


def test_a_call_takes_no_batch_that_it_does_not_train_on(batches, built):
    one, many = built(), built()
    for model, together in ((one, 1), (many, 4)):
        compile_model(model, optimizers.SGD(0.1), steps_per_execution=together)
        # 16 steps in two epochs of two calls, from 7 batches that differ, over and over.
        model.fit(
            batches(7 * 64, 64).repeat(), steps_per_epoch=8, epochs=2, verbose=0, shuffle=False
        )
    for own, other in zip(many.get_weights(), one.get_weights(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("xla", [True, pytest.param(False, marks=pytest.mark.long)])
def test_several_steps_a_call_are_the_same_and_one_without_a_batch_changes_nothing(
    batches, built, xla
):
    """Four steps a call find three batches in the last call, of which one is shorter, and then none."""
    one, many = built(dropout=0.5), built(dropout=0.5)
    for model, together in ((one, 1), (many, 4)):
        rate = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.9)
        optimizer = keras.optimizers.SGD(rate, momentum=0.9)
        compile_model(model, optimizer, xla=xla, steps_per_execution=together)
        model.fit(batches(10 * 64 + 7, 64), verbose=0, shuffle=False, epochs=3)
        assert int(model.optimizer.iterations) == 33
    for own, other in zip(many.variables, one.variables, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-6)


def test_batches_that_are_given_one_by_one_share_a_graph(batches, built):
    """Each has another number of values in its lists, and to make a graph takes a second."""
    made = []

    def metric(wanted, found):
        made.append(found.shape)  # once for each graph
        return keras.losses.binary_crossentropy(wanted, found)

    model = built()
    compile_model(model, optimizers.SGD(0.1), metrics=[metric])
    counts = []
    for data in (batches(2 * 64, 64), batches(8 * 64, 64)):
        for batch in data:
            model.train_on_batch(*batch)
        counts.append(len(made))
    assert counts[0] == counts[1] > 0


def test_arrays_and_generators_are_taken_as_well(rows):
    user = keras.Input((1,), name="userId", dtype="int32")
    x = layers.EmbeddingBag(50, 4, embeddings_initializer="normal")(user)
    model = keras.Model({"userId": user}, keras.layers.Dense(1, "sigmoid")(x))
    compile_model(model, optimizers.SGD(8.0), steps_per_execution=3)
    data = rows(500)
    losses = model.fit(
        {"userId": data.features["userId"]}, data.label, batch_size=64, epochs=8, verbose=0
    ).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    before = model.get_weights()
    # Keras passes the weights that a generator leaves out as an empty Optional.
    batches = (({"userId": data.features["userId"]}, data.label, None) for _ in range(2))
    model.fit(batches, steps_per_epoch=1, shuffle=False, verbose=0)
    assert any((a != b).any() for a, b in zip(model.get_weights(), before, strict=True))


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("entry", ["train", "compile_model"])
def test_the_loss_is_a_mean_over_rows(entry, split):
    """Whatever the lists of a batch hold: here the second batch has empty lists alone."""
    keras.utils.set_random_seed(3)
    random = np.random.default_rng(3)
    # By name the list is the first input.
    model = models.mlp(({"userId": (50, 4)}, {"genres": (22, 4)}), hidden=(8,))
    lengths = [np.full((48, 1), 3), np.zeros((16, 1), int)]
    features = [
        {
            "userId": random.integers(0, 50, (len(nnzs), 1)),
            "genres": (random.integers(0, 22, (nnzs.sum(), 1)), nnzs),
        }
        for nnzs in lengths
    ]
    labels = [np.ones((48, 1), "float32"), np.zeros((16, 1), "float32")]

    def batches():
        parts = zip(features, labels, strict=True)
        made = [tf.data.Dataset.from_tensors(part) for part in parts]
        return made[0].concatenate(made[1])

    still = keras.optimizers.SGD(0.0)
    if entry == "train":
        history = train(
            model, batches(), batches(), optimizer=still, metrics=[], split=split
        ).history
        found = [history["loss"][0], history["val_loss"][0]]
    else:
        compile_model(model, still, split=split)
        fitted = model.fit(batches(), shuffle=False, verbose=0)
        found = [fitted.history["loss"][0], model.evaluate(batches(), verbose=0)]
    chances = np.concatenate([model(part).numpy() for part in features]).astype(float)
    own = np.where(np.concatenate(labels) == 1, chances, 1 - chances)
    assert found == pytest.approx([-np.log(own).mean()] * 2, rel=1e-5)


@pytest.mark.parametrize("split", [True, False])
def test_the_losses_of_several_outputs_are_means_over_rows(split):
    """The last batch has one row, which counts as any other."""
    x = np.arange(1.0, 34.0)[:, np.newaxis] ** 2
    a = keras.Input((1,), name="a")
    ones = [keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")(a) for _ in range(2)]
    model = keras.Model({"a": a}, {"same": ones[0], "double": 2 * ones[1]})
    labels = {"same": np.zeros_like(x), "double": x}
    data = tf.data.Dataset.from_tensor_slices(({"a": x}, labels)).batch(8)
    still = keras.optimizers.SGD(0.0)
    history = train(model, data, data, optimizer=still, loss="mae", metrics=[], split=split).history
    mean = x.mean()
    wanted = {"loss": 2 * mean, "same_loss": mean, "double_loss": mean}
    wanted |= {f"val_{name}": value for name, value in wanted.items()}
    assert {name: value for name, (value,) in history.items()} == pytest.approx(wanted)
