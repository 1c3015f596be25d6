"""Softmax over items: the papers' formulas in numpy, and what the correction is for."""

import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf
from scipy.stats import spearmanr

from training import TrainingError, compile_model, item_vectors, models, train
from training.retrieval import InBatchSoftmax, ItemVectors, SampledSoftmax, SoftmaxLoss, tower
from training.retrieval.frequency import StreamingFrequency

SIZES = ({"userId": (50, 8), "movieId": (40, 12)}, {"genres": (22, 4)})
SIDES = {"query": ["userId"], "candidate": ["movieId", "genres"]}


def test_frequencies_are_those_of_the_papers_algorithm():
    """Algorithm 2, item by item, several in a step evenly apart; the first interval sets the mean."""
    random = np.random.default_rng(0)
    layer = StreamingFrequency(30, rate=0.1)
    last, interval = np.zeros(30), np.zeros(30)
    for step in range(1, 60):
        batch = np.minimum(random.zipf(1.5, 16), 30) - 1
        for item in batch:
            gap = (step - last[item]) / (batch == item).sum()
            interval[item] = 0.9 * interval[item] + 0.1 * gap if interval[item] else gap
        last[batch] = step
        made = layer(tf.constant(batch[:, None]), training=True).numpy()
        np.testing.assert_allclose(made[:, 0], -np.log(interval[batch]), rtol=1e-4, atol=1e-5)
    before = layer.interval.numpy()
    layer(tf.constant([[3], [3]]))
    np.testing.assert_array_equal(layer.interval.numpy(), before)


def test_a_training_of_many_steps_goes_on_counting_them():
    """Float32 has no number after 2**24 that is one more."""
    layer = StreamingFrequency(3, rate=0.1)
    for variable in (layer.step, layer.last):
        variable.assign(np.full(variable.shape, 2.0**24))
    layer.interval.assign([1.0, 1.0, 1.0])
    learn = tf.function(lambda ids: layer(ids, training=True))
    for batch in ([0, 1], [0, 2], [0, 1]):
        learn(tf.constant(batch)[:, None])
    np.testing.assert_allclose(layer.interval.numpy(), [1.0, 1.1, 1.1], rtol=1e-6)


@pytest.mark.parametrize("rows", [8, 2048])
def test_frequencies_are_those_of_the_data_for_every_size_of_batch(rows):
    """Popular items occur hundreds of times in a large batch, others once in many."""
    random = np.random.default_rng(1)
    share = 1 / np.arange(1, 21)
    share /= share.sum()
    layer = StreamingFrequency(20, rate=0.02)
    learn = tf.function(lambda ids: layer(ids, training=True))
    for _ in range(600):
        learn(tf.constant(random.choice(20, (rows, 1), p=share)))
    every = layer(tf.constant(np.arange(20)[:, None])).numpy()[:, 0]
    np.testing.assert_allclose(every, np.log(rows * share), atol=0.5)
    assert abs((every - np.log(rows * share)).mean()) < 0.15


def vectors_of(model, features):
    names = {side: tower(model, side).input for side in SIDES}
    return (
        tower(model, side)({name: features[name] for name in names[side]}).numpy() for side in SIDES
    )


def test_in_batch_softmax_is_the_papers_formula(rows):
    softmax = InBatchSoftmax("movieId", temperature=0.2)
    model = models.two_tower(SIZES, **SIDES, width=4, softmax=softmax)
    features = rows(64).features
    items = features["movieId"][:, 0]
    assert len(set(items)) < len(items)
    intervals = np.random.default_rng(1).uniform(1, 50, 40).astype("float32")
    model.get_layer("item_frequency").interval.assign(intervals)
    query, candidate = vectors_of(model, features)
    logits = query @ candidate.T / 0.2 - np.log(1 / intervals[items])
    expected = []
    for row, own in enumerate(items):
        others = [column for column, item in enumerate(items) if item != own]
        total = np.exp(logits[row, [row, *others]]).sum()
        expected.append(logits[row, row] - np.log(total))
    np.testing.assert_allclose(model(features).numpy()[:, 0], expected, rtol=1e-4)


@pytest.mark.parametrize("shape", [(64,), (64, 1)])
def test_each_row_has_its_own_reward(rows, shape):
    """Whether the labels are a vector, as of arrays, or a column, as of the loader."""
    softmax = InBatchSoftmax("movieId", rate=None)
    model = models.two_tower(SIZES, **SIDES, hidden=(8,), width=4, softmax=softmax)
    features = rows(64).features
    rewards = np.random.default_rng(2).random(64).astype("float32")
    expected = -(rewards * model(features).numpy()[:, 0]).mean()
    batches = tf.data.Dataset.from_tensors((features, rewards.reshape(shape)))
    report = train(model, batches, loss=SoftmaxLoss(), optimizer="sgd")
    assert report.history["loss"] == pytest.approx((expected,), rel=1e-5)


@pytest.mark.parametrize("popularity", [None, "count"])
def test_sampled_softmax_estimates_that_over_the_whole_catalogue(rows, popularity):
    """The mean of the corrected exponentials of drawn items is their sum over all items."""
    random = np.random.default_rng(3)
    items = pl.DataFrame(
        {
            "movieId": random.permutation(40),
            "genres": [random.integers(0, 22, n).tolist() for n in random.integers(0, 4, 40)],
            "count": random.integers(1, 30, 40),
        }
    )
    softmax = SampledSoftmax("movieId", items, 200_000, popularity, temperature=0.5)
    model = models.two_tower(SIZES, **SIDES, width=4, softmax=softmax)
    features = dict(rows(30).features)
    places = random.integers(0, 40, 30)
    of_rows = items[places]["genres"]
    features["movieId"] = items["movieId"].to_numpy()[places].astype("int32")[:, None]
    features["genres"] = pair(of_rows)
    query, _ = vectors_of(model, features)
    whole = {
        "movieId": items["movieId"].to_numpy().astype("int32")[:, None],
        "genres": pair(items["genres"]),
    }
    catalogue = tower(model, "candidate")(whole).numpy()
    logits = query @ catalogue.T / 0.5
    share = items["count"].to_numpy() / items["count"].sum() if popularity else np.full(40, 1 / 40)
    expected = []
    for row, place in enumerate(places):
        # The row's own item is there once, with its weight; the drawn ones estimate all others.
        own = np.exp(logits[row, place]) / (200_000 * share[place])
        others = np.exp(np.delete(logits[row], place)).sum()
        expected.append(np.log(own / (own + others)))
    made = model(features).numpy()[:, 0]
    np.testing.assert_allclose(made, expected, atol=0.02)


def pair(lists):
    values = lists.explode(empty_as_null=False).to_numpy().astype("int64")[:, None]
    return values, lists.list.len().to_numpy().astype("int64")[:, None]


@pytest.mark.long
@pytest.mark.parametrize(("rate", "is_corrected"), [(0.05, True), (None, False)])
def test_only_a_corrected_softmax_learns_popularity(rate, is_corrected):
    """All users take the items alike: nothing but the items' popularity can be learned."""
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    share = 1 / np.arange(1, 31)
    items = random.choice(30, 20_000, p=share / share.sum()).astype("int32")[:, None]
    users = random.integers(0, 40, items.shape).astype("int32")
    softmax = InBatchSoftmax("item", temperature=0.2, rate=rate)
    model = models.two_tower(
        {"user": (40, 8), "item": (30, 8)},
        query=["user"],
        candidate=["item"],
        width=8,
        hidden=(),
        softmax=softmax,
    )
    data = tf.data.Dataset.from_tensor_slices(
        ({"user": users, "item": items}, np.ones(items.shape, "float32"))
    ).batch(128)
    optimizer = keras.optimizers.Adam(0.02)
    train(model, data, epochs=3, loss=SoftmaxLoss(), metrics=[], optimizer=optimizer)
    everyone = np.arange(40, dtype="int32")[:, None]
    every = np.arange(30, dtype="int32")[:, None]
    scores = tower(model, "query").predict_on_batch({"user": everyone}) @ (
        tower(model, "candidate").predict_on_batch({"item": every}).T
    )
    likeness = spearmanr(scores.mean(0), share).statistic
    assert (likeness > 0.9) == is_corrected


def test_another_loss_is_refused(batches):
    """The usual one would learn nonsense of log probabilities, without an error."""
    softmax = InBatchSoftmax("movieId")
    model = models.two_tower(SIZES, **SIDES, hidden=(8,), width=4, softmax=softmax)
    with pytest.raises(
        TrainingError, match=r"SoftmaxLoss\(\).*Received: loss='binary_crossentropy'"
    ):
        train(model, batches(96, 32))


@pytest.mark.long
def test_the_split_step_learns_as_keras_own(batches, losses):
    """Compiled by XLA, with the same frequencies, which count each step once."""
    made = []
    for options in ({"split": False}, {"xla": True}):
        keras.utils.set_random_seed(0)
        softmax = InBatchSoftmax("movieId")
        model = models.two_tower(SIZES, **SIDES, hidden=(8,), width=4, softmax=softmax)
        compile_model(model, "sgd", SoftmaxLoss(), **options)
        made.append(losses(model, batches(96, 32), epochs=2))
        assert float(model.get_layer("item_frequency").step.numpy()) == 2 * 96 / 32
    np.testing.assert_allclose(made[1], made[0], rtol=1e-4)


def test_rewards_weigh_the_rows():
    loss = SoftmaxLoss()(tf.constant([[1.0], [0.0], [0.5]]), tf.constant([[-1.0], [-7.0], [-3.0]]))
    assert float(loss) == pytest.approx((1 * 1 + 0 * 7 + 0.5 * 3) / 3)


def trained(batches, softmax, *validation):
    model = models.two_tower(SIZES, **SIDES, hidden=(8,), width=4, softmax=softmax)
    return model, train(model, batches(96, 32), *validation, loss=SoftmaxLoss(), optimizer="sgd")


@pytest.fixture(scope="module")
def in_batch(batches):
    """A model of a softmax over the items of a batch, trained and evaluated once, and its report."""
    return trained(batches, InBatchSoftmax("movieId"), batches(64, 32))


def test_a_model_is_evaluated_without_learning_frequencies(in_batch):
    model, report = in_batch
    assert set(report.history) == {"loss", "val_loss"}
    assert float(model.get_layer("item_frequency").step.numpy()) == 96 / 32


@pytest.mark.parametrize("kind", ["in batch", "sampled"])
def test_a_trained_model_is_saved_and_loaded(rows, batches, in_batch, tmp_path, kind):
    genres = [[n % 22] * (n % 3) for n in range(40)]
    items = pl.DataFrame({"movieId": range(40), "genres": genres})
    sampled = SampledSoftmax("movieId", items, 9)
    model, _ = in_batch if kind == "in batch" else trained(batches, sampled)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for before, after in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(before.numpy(), after.numpy())
    made = (vectors_of(each, rows(7).features) for each in (model, loaded))
    for before, after in zip(*made, strict=True):
        np.testing.assert_array_equal(before, after)
    # It trains on, from the state that it had.
    report = train(loaded, batches(96, 32), loss=SoftmaxLoss(), optimizer="sgd")
    assert np.isfinite(report.loss_curve).all()


def test_towers_name_a_model_without_them():
    with pytest.raises(TrainingError, match=r"models\.two_tower.*'item'"):
        tower(models.two_tower(SIZES, **SIDES), "item")
    with pytest.raises(TrainingError, match=r"models\.two_tower"):
        tower(models.mlp(SIZES), "query")


ITEMS = pl.DataFrame({"movieId": [1, 2], "genres": [[1], []], "n": [1, 0]})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InBatchSoftmax("movieId", temperature=0), "temperature above 0"),
        (lambda: InBatchSoftmax("movieId", rate=2.0), "rate above 0"),
        (lambda: SampledSoftmax("movieId", ITEMS, 0), "count as a whole number"),
        (lambda: InBatchSoftmax("genres"), "single ids, movieId. Received: 'genres'"),
        (lambda: InBatchSoftmax("userId"), "candidate's columns.*'userId'"),
        (lambda: SampledSoftmax("movieId", ITEMS.drop("genres")), "missing: genres"),
        (lambda: SampledSoftmax("movieId", ITEMS[:0]), "at least one row"),
        (lambda: SampledSoftmax("movieId", "no-such.parquet"), "items as a table"),
        (lambda: SampledSoftmax("movieId", pl.concat([ITEMS, ITEMS])), "4 rows with 2 items"),
        (lambda: SampledSoftmax("movieId", ITEMS, popularity="n"), "number above 0"),
        (
            lambda: SampledSoftmax("movieId", ITEMS, popularity="genres"),
            r"popularity 'genres' as a number.*Received: List\(Int64\)",
        ),
        (
            lambda: SampledSoftmax(
                "movieId", ITEMS.with_columns(pl.col("n").cast(pl.Date)), popularity="n"
            ),
            "popularity 'n' as a number.*Received: Date",
        ),
        (lambda: SampledSoftmax("movieId", ITEMS, popularity=5), "name of a column.*Received: 5"),
        (lambda: SampledSoftmax("movieId", ITEMS, seed=1.5), "seed as a whole number.*1.5"),
        (lambda: SampledSoftmax("movieId", ITEMS, seed=-1), "seed as a whole number.*-1"),
        (
            lambda: SampledSoftmax("movieId", ITEMS.with_columns(movieId=pl.lit(40) + pl.col("n"))),
            "from 0 to 39",
        ),
        (
            lambda: SampledSoftmax("movieId", ITEMS.with_columns(genres=pl.lit(1))),
            "lists in the column 'genres'",
        ),
        (
            lambda: SampledSoftmax("movieId", ITEMS.with_columns(movieId=[[1], [2]])),
            "single values",
        ),
        (
            lambda: SampledSoftmax("movieId", ITEMS.with_columns(movieId=pl.Series(["1", "2"]))),
            "'movieId' as numbers of int32. Received: String",
        ),
        (
            lambda: SampledSoftmax("movieId", ITEMS.with_columns(movieId=pl.col("n") + 0.5)),
            "'movieId' as numbers of int32. Received: Float64",
        ),
        (
            lambda: SampledSoftmax(
                "movieId", ITEMS.with_columns(movieId=pl.lit(2**32) + pl.col("n"))
            ),
            "'movieId' from 0 to 39",
        ),
        (
            lambda: SampledSoftmax("movieId", ITEMS.with_columns(movieId=pl.Series([1, None]))),
            "no null in 'movieId' of items. Received: 1 null",
        ),
        (
            lambda: SampledSoftmax(
                "movieId", ITEMS.with_columns(genres=pl.Series([[1, None], []]))
            ),
            "no null in 'genres'",
        ),
        (
            lambda: SampledSoftmax("movieId", ITEMS.with_columns(genres=pl.Series([[5, 22], []]))),
            "'genres' from 0 to 21 in items. Received: 5 to 22",
        ),
        (
            lambda: SampledSoftmax("movieId", ITEMS.with_columns(genres=pl.Series([[-1], []]))),
            "'genres' from 0 to 21 in items. Received: -1 to -1",
        ),
        (
            lambda: "in_batch",
            r"Expected softmax as retrieval\.InBatchSoftmax.*Received: 'in_batch'",
        ),
        (lambda: InBatchSoftmax, "Expected softmax as .* or None. Received: <class"),
    ],
)
def test_settings_that_make_no_sense(make, message):
    with pytest.raises(TrainingError, match=message):
        models.two_tower(SIZES, **SIDES, softmax=make())


@pytest.mark.parametrize("name", ["movieId", "price"])
def test_a_popularity_may_be_a_column_of_the_candidate(name):
    items = pl.DataFrame({"movieId": pl.Series(range(1, 41), dtype=pl.Int32), "price": 3.0})
    softmax = SampledSoftmax("movieId", items.cast({"price": pl.Float32}), 8, popularity=name)
    sides = {"query": ["userId"], "candidate": ["movieId", "price"]}
    model = models.two_tower(
        {"userId": (50, 8), "movieId": (41, 8)}, ["price"], **sides, softmax=softmax
    )
    shares = np.exp(model.get_layer("sampled_items").log_share.numpy())
    expected = items[name].to_numpy() / items[name].sum()
    np.testing.assert_allclose(shares, expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["size__values", "size__nnzs"])
def test_a_number_may_be_named_as_a_part_of_a_list(name):
    items = pl.DataFrame({"movieId": pl.Series(range(40), dtype=pl.Int32), name: np.ones(40, "f4")})
    sides = {"query": ["userId"], "candidate": ["movieId", name]}
    softmax = SampledSoftmax("movieId", items, 8)
    model = models.two_tower(
        {"userId": (50, 8), "movieId": (40, 8)}, [name], **sides, softmax=softmax
    )
    ids = {"userId": tf.constant([[1]]), "movieId": tf.constant([[2]])}
    assert np.isfinite(model(ids | {name: tf.ones((1, 1))}).numpy()).all()


def test_a_number_without_a_value_is_no_zero_in_a_catalogue():
    items = pl.DataFrame({"movieId": [1, 2], "price": [2.5, None]})
    softmax = SampledSoftmax("movieId", items)
    sides = {"query": ["userId"], "candidate": ["movieId", "price"]}
    with pytest.raises(
        TrainingError, match=r"no null in 'price' of items\. Received: 1 null.*FillM"
    ):
        models.two_tower({"userId": (9, 4), "movieId": (9, 4)}, ["price"], **sides, softmax=softmax)


@pytest.mark.parametrize("block", [item_vectors.BLOCK_BYTES, 3 * 50 * 4, 1])
def test_neighbours_are_those_of_sorting_all_items(monkeypatch, block):
    """All queries at once, three at a time, and one, where the catalogue is large."""
    monkeypatch.setattr(item_vectors, "BLOCK_BYTES", block)
    random = np.random.default_rng(5)
    # Few different numbers, so that many scores are equal.
    vectors = random.integers(-1, 2, (50, 3)).astype("float32")
    queries = random.integers(-1, 2, (20, 3)).astype("float32")
    items = ItemVectors(np.array([f"item {n}" for n in range(50)], object), vectors)
    ids, scores = items.nearest(queries, 7)
    for row, query in enumerate(queries):
        exact = {f"item {n}": float(sum(vectors[n] * query)) for n in range(50)}
        expected = sorted(exact, key=lambda item: -exact[item])[:7]  # stable: the first come first
        assert ids[row].tolist() == expected
        assert scores[row].tolist() == [exact[item] for item in expected]


def test_queries_may_be_tensors_and_lists():
    items = ItemVectors(np.array([7, 8, 9]), np.eye(3, dtype="float32"))
    vectors = [[0.1, 0.9, 0.3], [0.7, 0.2, 0.4]]
    for queries in (vectors, np.array(vectors), tf.constant(vectors)):
        ids, scores = items.nearest(queries, 2)
        assert ids.tolist() == [[8, 9], [7, 9]]
        assert scores.dtype == np.float32
    with pytest.raises(TrainingError, match=r"shape \(N, 3\). Received: \(3,\)"):
        items.nearest(vectors[0], 2)
