import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError
from training.layers import DenseFeatures

# Neither the names nor the inputs are in alphabetical order, the output follows the sizes.
SIZES = {"user": (6, 3), "genres": (5, 2), "city": (6, 3)}
INPUTS = {
    "age": tf.constant([[31.0], [7.0]]),
    "city": tf.constant([[1], [5]]),
    "genres": (tf.constant([[3], [4], [2]]), tf.constant([[1], [2]])),
    "user": tf.constant([[2], [2]], tf.int64),
    "vector": tf.constant([[1.0, 2.0], [3.0, 4.0]], tf.float64),
}


def test_columns_stand_in_the_order_of_the_arguments():
    layer = DenseFeatures(SIZES, ["vector", "age"], "sum")
    result = layer(INPUTS).numpy()
    user, genres, city = (layer.embedding_tables[name].numpy() for name in SIZES)
    expected = np.concatenate(
        [
            user[[2, 2]],
            [genres[3], genres[4] + genres[2]],
            city[[1, 5]],
            [[1, 2], [3, 4]],
            [[31], [7]],
        ],
        axis=1,
    )
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    shapes = tf.nest.map_structure(lambda tensor: tuple(tensor.shape), INPUTS)
    assert layer.compute_output_shape(shapes) == result.shape


def test_sizes_may_be_numbers_of_numpy(tmp_path):
    """As the maximum of a column of pandas is one."""
    columns = {name: keras.Input((1,), name=name, dtype="int64") for name in ("user", "city")}
    layer = DenseFeatures({"user": (np.int64(6), np.int32(3))}, indicators={"city": np.int64(4)})
    model = keras.Model(columns, layer(columns))
    model.save(tmp_path / "model.keras")
    ids = {"user": tf.constant([[2]]), "city": tf.constant([[3]])}
    expected = [[*layer.embedding_tables["user"].numpy()[2], 0, 0, 0, 1]]
    for each in (model, keras.models.load_model(tmp_path / "model.keras")):
        np.testing.assert_allclose(each(ids), expected, rtol=1e-6)


def test_tables_of_equal_size_start_out_different():
    layer = DenseFeatures(SIZES)
    layer.build()
    tables = layer.embedding_tables
    assert not np.array_equal(tables["user"].numpy(), tables["city"].numpy())


def test_a_saved_model_of_keras_brings_it_back(tmp_path):
    inputs = {
        "user": keras.Input((1,), name="user", dtype="int64"),
        "genres": (
            keras.Input((1,), name="genres__values", dtype="int32"),
            keras.Input((1,), name="genres__nnzs", dtype="int32"),
        ),
        "city": keras.Input((1,), name="city", dtype="int32"),
        "age": keras.Input((1,), name="age"),
    }
    model = keras.Model(inputs, DenseFeatures(SIZES, ["age"])(inputs))
    model.save(tmp_path / "features.keras")
    loaded = keras.models.load_model(tmp_path / "features.keras")
    given = {name: INPUTS[name] for name in inputs}
    np.testing.assert_array_equal(loaded(given), model(given))


def test_a_missing_column_is_named():
    with pytest.raises(TrainingError, match="missing: city"):
        DenseFeatures(SIZES)({name: INPUTS[name] for name in ("user", "genres")})


@pytest.mark.parametrize(
    ("sizes", "continuous", "indicators"),
    [({}, [], {}), (SIZES, ["user"], {}), (SIZES, [], {"user": 6}), ({}, ["user"], {"user": 6})],
)
def test_no_column_or_one_named_twice(sizes, continuous, indicators):
    with pytest.raises(TrainingError, match="at least one column"):
        DenseFeatures(sizes, continuous, indicators=indicators)


def test_stacked_columns_stand_one_below_the_other():
    sizes = {"user": (6, 3), "genres": (5, 3), "city": (6, 3)}
    layer = DenseFeatures(sizes, combiner="sum", aggregation="stack")
    result = layer(INPUTS).numpy()
    user, genres, city = (layer.embedding_tables[name].numpy() for name in sizes)
    rows = [
        [user[2], genres[3], city[1]],
        [user[2], genres[4] + genres[2], city[5]],
    ]
    np.testing.assert_allclose(result, rows, rtol=1e-6)
    shapes = tf.nest.map_structure(lambda tensor: tuple(tensor.shape), INPUTS)
    assert layer.compute_output_shape(shapes) == result.shape


def test_numbers_can_be_stacked_with_vectors_of_width_one():
    layer = DenseFeatures({"user": (6, 1)}, ["age"], aggregation="stack")
    result = layer(INPUTS).numpy()
    assert result.shape == (2, 2, 1)
    np.testing.assert_array_equal(result[:, 1, 0], [31, 7])


def test_continuous_columns_alone_do_as_well():
    result = DenseFeatures({}, ["vector", "age"])(INPUTS)
    np.testing.assert_array_equal(result, [[1, 2, 31], [3, 4, 7]])


@pytest.mark.parametrize(
    ("sizes", "continuous", "aggregation", "message"),
    [
        (SIZES, [], "stack", "one width to stack.*Received: user of 3, genres of 2"),
        ({"user": (6, 3)}, ["age"], "stack", "continuous ones have 1.*age of 1"),
        (SIZES, [], "sum", "concat, stack.*Received: 'sum'"),
    ],
)
def test_what_cannot_be_stacked_is_refused(sizes, continuous, aggregation, message):
    with pytest.raises(TrainingError, match=message):
        DenseFeatures(sizes, continuous, aggregation=aggregation)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([("user", 6, 3)], "dictionary of column -> .*or a list of tf.feature_column"),
        ({"user": 6}, r"size of 'user' as \(cardinality, width\). Received: 6"),
        ({"user": (6, 3, 1)}, r"size of 'user' as .* Received: \(6, 3, 1\)"),
        ({"user": (6, 0.5)}, "at least one row and one column, as integers"),
    ],
)
def test_sizes_of_another_form_are_refused(sizes, message):
    with pytest.raises(TrainingError, match=message):
        DenseFeatures(sizes)


def test_ids_are_validated_when_asked_for():
    layer = DenseFeatures(SIZES)
    layer.validate_ids = True
    with pytest.raises(tf.errors.InvalidArgumentError, match="ids of column city in 0"):
        layer({**INPUTS, "city": tf.constant([[1], [6]])})
    layer.validate_ids = False
    layer({**INPUTS, "city": tf.constant([[1], [6]])})
