import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from loader import KerasSequenceLoader
from training import TrainingError
from training.layers import DenseFeatures, LinearFeatures

identity = tf.feature_column.categorical_column_with_identity
embedding = tf.feature_column.embedding_column
indicator = tf.feature_column.indicator_column
numeric = tf.feature_column.numeric_column

VECTOR = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
INPUTS = {
    "age": tf.constant([[31.0], [7.0]]),
    "vector": (tf.reshape(VECTOR, [6, 1]), tf.constant([[3], [3]])),
    "user": tf.constant([[2], [5]]),
    "genres": (tf.constant([[3], [4], [3]]), tf.constant([[0], [3]])),
    "tags": (tf.constant([[1], [2], [1]]), tf.constant([[2], [1]])),
}
COLUMNS = [
    numeric("age"),
    numeric("vector", (3,)),
    embedding(identity("user", 6), 3, "sum"),
    embedding(identity("genres", 5), 3, "mean"),
    indicator(identity("tags", 4)),
]
# Ids 1 and 2, and then 1.
TAGS = [[0, 1, 1, 0], [0, 1, 0, 0]]


def test_columns_become_tables_counts_and_numbers_each_with_its_own_combiner():
    layer = DenseFeatures(COLUMNS)
    result = layer(INPUTS).numpy()
    user, genres = (layer.embedding_tables[name].numpy() for name in ("user", "genres"))
    means = [np.zeros(3), (2 * genres[3] + genres[4]) / 3]
    expected = np.concatenate([user[[2, 5]], means, TAGS, [[31], [7]], VECTOR], axis=1)
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    shapes = {n: tf.nest.map_structure(lambda t: tuple(t.shape), v) for n, v in INPUTS.items()}
    assert layer.compute_output_shape(shapes) == result.shape


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_combiners_of_two_columns_of_one_width_do_not_mix(combiner):
    columns = [embedding(identity("genres", 5), 2, c) for c in (combiner,)]
    both = DenseFeatures([*columns, embedding(identity("tags", 4), 2, "sum")])
    result = both(INPUTS).numpy()
    genres, tags = both.embedding_tables["genres"].numpy(), both.embedding_tables["tags"].numpy()
    summed = 2 * genres[3] + genres[4]
    divisor = {"sum": 1, "mean": 3, "sqrtn": np.sqrt(3)}[combiner]
    np.testing.assert_allclose(result[1, :2], summed / divisor, rtol=1e-6)
    np.testing.assert_allclose(result[0, 2:], tags[1] + tags[2], rtol=1e-6)


def test_an_indicator_has_no_place_for_ids_out_of_range_unless_they_are_validated():
    layer = DenseFeatures([indicator(identity("user", 4))])
    given = {"user": tf.constant([[-1], [3], [4]])}
    np.testing.assert_array_equal(layer(given), [[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    layer.validate_ids = True
    with pytest.raises(tf.errors.InvalidArgumentError, match="ids of column user in 0"):
        layer(given)


@pytest.mark.parametrize("form", ["pair", "flat", "matrix"])
def test_a_vector_comes_as_the_loader_gives_it(form):
    forms = {"pair": INPUTS["vector"], "flat": INPUTS["vector"][0], "matrix": tf.constant(VECTOR)}
    layer = DenseFeatures([numeric("vector", (3,))])
    np.testing.assert_array_equal(layer({"vector": forms[form]}), VECTOR)
    linear = LinearFeatures([numeric("vector", 3)])
    linear({"vector": forms[form]})
    linear.kernel.assign([[1.0], [10.0], [100.0]])
    np.testing.assert_array_equal(linear({"vector": forms[form]}), [[321.0], [654.0]])


def test_lists_of_numbers_of_another_length_are_refused():
    pair = (INPUTS["vector"][0], tf.constant([[2], [4]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="3 numbers in each row of 'vector'"):
        DenseFeatures([numeric("vector", (3,))])({"vector": pair})


@pytest.mark.parametrize(
    ("layer", "given", "message"),
    [
        (DenseFeatures({}, ["v"]), INPUTS["vector"], r"continuous=\{'v': k\}.*sparse_as_dense"),
        (LinearFeatures({}, ["v"]), INPUTS["vector"], r"continuous=\{'v': k\}.*sparse_as_dense"),
        (DenseFeatures([numeric("v")]), INPUTS["vector"], r"\(N, 1\) for 'v'.*a pair"),
        (DenseFeatures([numeric("v")]), tf.constant(VECTOR), r"\(N, 1\) for 'v'.*\(2, 3\)"),
        (DenseFeatures([numeric("v", 2)]), tf.constant(VECTOR), r"\(N, 2\) for 'v'.*\(2, 3\)"),
        (DenseFeatures({}, ["v"]), tf.constant([1.0]), r"\(N, k\) for 'v'.*\(1,\)"),
    ],
)
def test_numbers_of_another_form_are_refused(layer, given, message):
    with pytest.raises(TrainingError, match=message):
        layer({"v": given})


def test_a_model_of_feature_columns_trains_is_saved_and_loads(tmp_path):
    def pair(name, dtype):
        halves = (f"{name}__values", dtype), (f"{name}__nnzs", "int32")
        return tuple(keras.Input((1,), name=half, dtype=kind) for half, kind in halves)

    inputs = {
        "age": keras.Input((1,), name="age"),
        "user": keras.Input((1,), name="user", dtype="int32"),
        "vector": pair("vector", "float32"),
        **{name: pair(name, "int32") for name in ("genres", "tags")},
    }
    linear = [numeric("vector", (3,)), identity("user", 6), identity("tags", 4)]
    model = keras.Model(
        inputs,
        {"deep": DenseFeatures(COLUMNS)(inputs), "wide": LinearFeatures(linear)(inputs)},
    )
    for weight in model.weights:
        weight.assign(np.random.default_rng(0).normal(size=weight.shape))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for name, result in model(INPUTS).items():
        np.testing.assert_array_equal(loaded(INPUTS)[name], result)


def test_a_program_for_nvtabular_runs_as_it_is_written(tmp_path):
    rows = {"user": [1, 2, 3, 1], "genres": [[1], [2, 1], [], [3]], "age": [1.0, 2, 3, 4]}
    pl.DataFrame({**rows, "label": [0, 1, 0, 1]}).write_parquet(tmp_path / "rows.parquet")
    columns = [
        embedding(identity("user", 4), 2),
        embedding(identity("genres", 4), 2),
        numeric("age", (1,)),
    ]
    data = KerasSequenceLoader(
        str(tmp_path / "*.parquet"), 2, ["label"], feature_columns=columns, device="cpu"
    )
    inputs = {
        "user": keras.Input((1,), name="user", dtype="int32"),
        "genres": tuple(
            keras.Input((1,), name=f"genres__{half}", dtype="int64") for half in ("values", "nnzs")
        ),
        "age": keras.Input((1,), name="age"),
    }
    hidden = DenseFeatures(columns)(inputs)
    assert hidden.shape == (None, 5)
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid", name="output")(hidden))
    model.compile("sgd", "binary_crossentropy")
    history = model.fit(data, epochs=1, shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"][0])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (identity("user", 6), "IdentityCategoricalColumn.*embedding_column or indicator_column"),
        (numeric("age", normalizer_fn=abs), "normalizer_fn.*ops.Normalize"),
        (numeric("age", default_value=1.0), "default_value.*ops.FillMissing"),
        (numeric("age", (5, 10)), r"shape \(5, 10\) of 'age'"),
        (embedding(identity("user", 6), 3, max_norm=1.0), "max_norm of 'user'"),
        (embedding(identity("user", 6), 3, trainable=False), "trainable=False of 'user'"),
        (embedding(identity("user", 6, 3), 3), "default_value=3 of 'user'"),
        (indicator(identity("user", 6, 3)), "default_value=3 of 'user'"),
        (
            embedding(identity("user", 6), 3, initializer=keras.initializers.Zeros()),
            "initializer of 'user'.*embeddings_initializer",
        ),
        (
            embedding(
                identity("user", 6), 3, initializer=tf.compat.v1.truncated_normal_initializer(0, 9)
            ),
            "initializer of 'user'",
        ),
        (
            embedding(identity("u", 6), 3, ckpt_to_load_from="a", tensor_name_in_ckpt="b"),
            "ckpt_to_load_from of 'u'.*set_embedding_table",
        ),
        (
            embedding(tf.feature_column.categorical_column_with_hash_bucket("user", 6), 3),
            "HashedCategoricalColumn.*ops.HashBucket",
        ),
        (
            indicator(tf.feature_column.categorical_column_with_vocabulary_list("user", ["a"])),
            "VocabularyListCategoricalColumn.*ops.Categorify",
        ),
        (tf.feature_column.bucketized_column(numeric("age"), [1, 2]), "BucketizedColumn"),
        (("user", 6, 3), r"tf.feature_column.*Received: \('user', 6, 3\)"),
    ],
)
def test_dense_features_names_what_it_cannot_take(column, message):
    with pytest.raises(TrainingError, match=message):
        DenseFeatures([column])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (embedding(identity("user", 6), 3), "EmbeddingColumn.*as it is"),
        (indicator(identity("user", 6)), "IndicatorColumn.*as it is"),
        (numeric("age", (5, 10)), r"shape \(5, 10\) of 'age'"),
        (identity("user", 6, 3), "default_value=3 of 'user'"),
        (tf.feature_column.categorical_column_with_hash_bucket("user", 6), "ops.HashBucket"),
        (
            tf.feature_column.weighted_categorical_column(identity("user", 6), "clicks"),
            "WeightedCategoricalColumn of 'user_weighted_by_clicks'",
        ),
        ("user", "tf.feature_column.*Received: 'user'"),
    ],
)
def test_linear_features_names_what_it_cannot_take(column, message):
    with pytest.raises(TrainingError, match=message):
        LinearFeatures([column])


@pytest.mark.parametrize(
    "columns",
    [
        [indicator(identity("user", 6)), embedding(identity("user", 6), 3)],
        [embedding(identity("user", 6), 2), embedding(identity("user", 6), 3)],
        [numeric("age"), numeric("age")],
    ],
)
def test_a_column_comes_once(columns):
    with pytest.raises(TrainingError, match=r"each .*once"):
        DenseFeatures(columns)


def test_stacking_and_other_options_are_passed_on():
    columns = [embedding(identity(name, 6), 3) for name in ("a", "b")]
    ids = tf.constant([[1]])
    for layer in (
        DenseFeatures(columns, "stack", name="features", validate_ids=True),
        DenseFeatures(columns, aggregation="stack", name="features", validate_ids=True),
    ):
        assert layer({"a": ids, "b": ids}).shape == (1, 2, 3)
        assert (layer.name, layer.validate_ids) == ("features", True)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([indicator(identity("a", 5)), embedding(identity("b", 6), 3)], "b of 3, a of 5"),
        ([numeric("a", 4), embedding(identity("b", 6), 3)], "b of 3, a of 4"),
    ],
)
def test_widths_are_compared_before_they_are_stacked(columns, message):
    with pytest.raises(TrainingError, match=message):
        DenseFeatures(columns, "stack")


def test_indicators_and_vectors_are_stacked_with_tables_of_their_width():
    columns = [
        embedding(identity("genres", 5), 3, "sum"),
        indicator(identity("tags", 3)),
        numeric("vector", 3),
    ]
    layer = DenseFeatures(columns, "stack")
    result = layer(INPUTS).numpy()
    np.testing.assert_array_equal(result[:, 1], [[0, 1, 1], [0, 1, 0]])
    np.testing.assert_array_equal(result[:, 2], VECTOR)


@pytest.mark.parametrize(
    "arguments", [{"combiner": "sum"}, {"continuous": ["age"]}, {"indicators": {"a": 3}}]
)
def test_what_feature_columns_say_is_not_said_again(arguments):
    with pytest.raises(TrainingError, match="feature columns alone"):
        DenseFeatures(COLUMNS, **arguments)


@pytest.mark.parametrize("layer", [DenseFeatures, LinearFeatures])
def test_one_name_is_no_list_of_names(layer):
    with pytest.raises(TrainingError, match=r"names of columns.*Received: 'age'"):
        layer({}, "age")
