import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError
from training.layers import EmbeddingCollection

# Two widths, lists and single values in both, columns of one width not side by side.
SIZES = {
    "user": (6, 3),
    "genres": (5, 2),
    "words": (9, 3),
    "city": (7, 3),
    "tags": (4, 3),
    "day": (8, 2),
}
LISTS = ("genres", "words", "tags")


def inputs(rows=40, seed=0):
    rng = np.random.default_rng(seed)
    features = {}
    for name, (cardinality, _) in SIZES.items():
        if name in LISTS:
            lengths = rng.integers(0, 4, rows)
            values = rng.integers(0, cardinality, lengths.sum())
            features[name] = (tf.constant(values[:, None]), tf.constant(lengths[:, None]))
        else:
            features[name] = tf.constant(rng.integers(0, cardinality, (rows, 1)), tf.int32)
    return features


def by_hand(table, column, combiner):
    if not isinstance(column, tuple):
        return table[column.numpy()[:, 0]]
    values, lengths = (part.numpy()[:, 0] for part in column)
    divisor = {"sum": np.ones_like, "mean": np.abs, "sqrtn": np.sqrt}[combiner]
    rows = np.split(table[values], np.cumsum(lengths)[:-1])
    return np.array([row.sum(axis=0) / divisor(max(len(row), 1)) for row in rows])


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_every_column_equals_a_lookup_of_its_own(combiner):
    layer = EmbeddingCollection(SIZES, combiner, "normal")
    features = inputs()
    result = layer(features)
    assert list(result) == list(SIZES)
    for name, table in layer.embedding_tables.items():
        assert tuple(table.shape) == SIZES[name]
        expected = by_hand(table.numpy(), features[name], combiner)
        np.testing.assert_allclose(result[name], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_negative_ids_of_a_list_neither_count_nor_are_trained(combiner):
    layer = EmbeddingCollection({"tags": (5, 2)}, combiner, "normal", skip_negative=True)
    lists = [[0, -1, -1], [3, 3], [-1, -1]]
    values = tf.constant([[i] for ids in lists for i in ids])
    features = {"tags": (values, tf.constant([[3], [2], [2]]))}
    layer(features)
    (variable,) = layer.trainable_variables
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(features)["tags"] + 1.0)
    keras.optimizers.SGD(1.0).apply([tape.gradient(loss, variable)], [variable])
    table = layer.embedding_tables["tags"].numpy()
    known = tf.constant([[0], [3], [3]]), tf.constant([[1], [2], [0]])
    expected = by_hand(table, known, combiner)
    np.testing.assert_allclose(layer(features)["tags"], expected, rtol=1e-6, atol=1e-7)


def test_there_is_one_variable_a_width_and_its_gradient_is_sparse_rows():
    layer = EmbeddingCollection(SIZES, "sum", "normal")
    features = inputs()
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(vectors**2) for vectors in layer(features).values()])
    assert [tuple(weight.shape) for weight in layer.weights] == [
        (6 + 9 + 7 + 4 + 4, 3),
        (5 + 8 + 2, 2),
    ]
    gradients = tape.gradient(loss, [weight.value for weight in layer.weights])
    for gradient, weight in zip(gradients, layer.weights, strict=True):
        assert isinstance(gradient, tf.IndexedSlices)
        assert tf.convert_to_tensor(gradient).shape == weight.shape
    looked_up = sum(
        int(tf.size(features[name][0] if name in LISTS else features[name]))
        for name in ("user", "words", "city", "tags")
    )
    assert gradients[0].values.shape[0] == looked_up


def test_the_gradient_reaches_the_column_that_was_looked_up():
    layer = EmbeddingCollection(SIZES, "mean", "normal")
    features = inputs()
    weights = {
        name: np.random.default_rng(1).normal(size=(40, w)) for name, (_, w) in SIZES.items()
    }
    before = {name: table.numpy() for name, table in layer_built(layer).embedding_tables.items()}
    with tf.GradientTape() as tape:
        result = layer(features)
        loss = tf.add_n([tf.reduce_sum(result[name] * weights[name]) for name in SIZES])
    variables = layer.trainable_weights
    keras.optimizers.SGD(1.0).apply(tape.gradient(loss, variables), variables)
    for name, table in layer.embedding_tables.items():
        expected = before[name].copy()
        if name in LISTS:
            values, lengths = (part.numpy()[:, 0] for part in features[name])
            shares = np.repeat(weights[name] / np.maximum(lengths, 1)[:, None], lengths, axis=0)
            np.subtract.at(expected, values, shares)
        else:
            np.subtract.at(expected, features[name].numpy()[:, 0], weights[name])
        np.testing.assert_allclose(table, expected, rtol=1e-4, atol=1e-5)


def layer_built(layer):
    layer.build()
    return layer


def test_an_id_out_of_range_does_not_read_the_neighbours_rows():
    layer = EmbeddingCollection(SIZES, "sum", "normal")
    features = inputs(2)
    for beyond in (-1, 6, 100):
        features["user"] = tf.constant([[beyond], [5]])
        result = layer(features)["user"].numpy()
        assert not result[0].any()
        np.testing.assert_array_equal(result[1], layer.embedding_tables["user"][5])


@pytest.mark.parametrize("change", [1, -1])
def test_lengths_of_one_list_cannot_shift_values_into_another(change):
    layer = EmbeddingCollection({"a": (9, 2), "b": (9, 2)}, "sum")
    values, lengths = tf.constant([[1], [2], [3]]), np.array([[1], [2]])
    wrong = lengths + [[0], [change]]
    opposite = lengths - [[0], [change]]
    layer({"a": (values, tf.constant(lengths)), "b": (values, tf.constant(lengths))})
    with pytest.raises(tf.errors.InvalidArgumentError):
        layer({"a": (values, tf.constant(wrong)), "b": (values, tf.constant(opposite))})


def test_ids_of_any_integer_dtype_may_be_mixed():
    layer = EmbeddingCollection({"a": (5, 2), "b": (5, 2), "c": (5, 2)}, "sum", "normal")
    ids = [[3], [0]]
    features = {
        "a": tf.constant(ids, tf.int8),
        "b": tf.constant(ids, tf.uint16),
        "c": tf.constant(ids, tf.int64),
    }
    for name, vectors in layer(features).items():
        np.testing.assert_array_equal(vectors, layer.embedding_tables[name].numpy()[[3, 0]])


def test_tables_of_equal_size_start_out_different_and_the_unknown_at_zeros():
    layer = EmbeddingCollection({"a": (50, 4), "b": (50, 4)})
    layer.build()
    tables = layer.embedding_tables
    assert not np.array_equal(tables["a"], tables["b"])
    whole = layer.weights[0].numpy()
    assert not whole[[50, 101]].any()


def test_pretrained_vectors_can_be_set():
    layer = layer_built(EmbeddingCollection(SIZES))
    before = layer.embedding_tables["user"].numpy()
    vectors = np.arange(21, dtype="float32").reshape(7, 3)
    layer.set_embedding_table("city", vectors)
    np.testing.assert_array_equal(layer.embedding_tables["city"], vectors)
    np.testing.assert_array_equal(layer.embedding_tables["user"], before)
    with pytest.raises(TrainingError, match=r"\(7, 3\) for 'city'.*Received: \(3, 7\)"):
        layer.set_embedding_table("city", vectors.T)
    with pytest.raises(TrainingError, match=r"among user, genres.*Received: 'town'"):
        layer.set_embedding_table("town", vectors)


def test_a_layer_that_is_not_built_has_no_table_to_set_or_read():
    layer = EmbeddingCollection(SIZES)
    message = r"Expected a layer that is built.*'city'.*Received: one that is not\. Call"
    with pytest.raises(TrainingError, match=message):
        layer.set_embedding_table("city", np.zeros((7, 3), "float32"))
    with pytest.raises(TrainingError, match="Expected a layer that is built"):
        _ = layer.embedding_tables


def test_mixed_precision_casts_the_vectors_and_not_the_tables():
    layer = EmbeddingCollection(SIZES, dtype="mixed_bfloat16")
    assert layer(inputs())["user"].dtype == tf.bfloat16
    assert {weight.dtype for weight in layer.weights} == {"float32"}


def test_a_saved_model_of_keras_brings_it_back(tmp_path):
    named = {
        name: tuple(keras.Input((1,), name=name + half, dtype="int64") for half in ("__v", "__n"))
        if name in LISTS
        else keras.Input((1,), name=name, dtype="int32")
        for name in SIZES
    }
    model = keras.Model(named, EmbeddingCollection(SIZES, "sqrtn", "normal")(named))
    model.save(tmp_path / "collection.keras")
    loaded = keras.models.load_model(tmp_path / "collection.keras")
    features = inputs()
    for name, vectors in model(features).items():
        np.testing.assert_array_equal(loaded(features)[name], vectors)


def test_a_table_without_room_is_an_error_that_says_its_size(monkeypatch):
    def full(*_args, **_options):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    monkeypatch.setattr(keras.layers.Layer, "add_weight", full)
    layer = EmbeddingCollection({"userId": (50_000_000, 64)})
    with pytest.raises(TrainingError, match=r"12\.8 GB, for userId.*max_embedding_dim.*/gpu:1"):
        layer.build()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({},), "at least one column"),
        (({"a": (0, 4)},), "'a' of at least one row.*input_dim=0"),
        (({"a": (5, 4)}, "max"), "sum, mean, sqrtn.*Received: 'max'"),
        (({"a": (5, 4)}, {"b": "sum"}), "combiner for each of a. Received: for b"),
        (([("a", 5, 4)],), "dictionary of column.*feature columns are for .*DenseFeatures"),
    ],
)
def test_arguments_that_make_no_sense(arguments, message):
    with pytest.raises(TrainingError, match=message):
        EmbeddingCollection(*arguments)


def test_a_list_is_of_two_tensors():
    ids = tf.constant([[1]])
    with pytest.raises(TrainingError, match=r"pair \(values, nnzs\), for 'a'. Received: 3 tensors"):
        EmbeddingCollection({"a": (5, 4)})({"a": (ids, ids, ids)})


def test_a_missing_column_is_named():
    with pytest.raises(TrainingError, match="missing: city"):
        EmbeddingCollection(SIZES)({n: v for n, v in inputs().items() if n != "city"})
