import keras
import numpy as np
import pytest
import tensorflow as tf

from training.layers import EmbeddingCollection
from training.split import table_gradient
from training.split.table_gradient import divided_by_height

SIZES = {"city": (5, 4), "user": (90, 4), "day": (7, 4), "friend": (90, 4), "item": (40, 4)}
ROWS = 30


@pytest.fixture
def collection():
    layer = EmbeddingCollection(SIZES, shared={"friend": "user"})
    inputs = {name: keras.Input((1,), name=name, dtype="int64") for name in SIZES}
    layer(inputs)
    return layer


def ids_of(random):
    """Ids of each column, some of them unknown."""
    return {name: random.integers(-1, rows + 2, (ROWS, 1)) for name, (rows, _) in SIZES.items()}


def lookup_gradient(layer, ids):
    """The gradient of a weighted sum of all vectors, by row and dense."""
    (table,) = layer.trainable_variables
    weights = np.random.default_rng(1).normal(size=(ROWS, 4)).astype("float32")
    with tf.GradientTape() as tape:
        vectors = layer({name: tf.constant(each) for name, each in ids.items()})
        total = sum(
            tf.reduce_sum(each * weights * (n + 1)) for n, each in enumerate(vectors.values())
        )
    return table, tape.gradient(total, table.value)


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize("limit", [0, 10, 50, 1000])
def test_sums_of_small_columns_and_rows_of_large_ones_are_the_gradient(
    collection, limit, marks, monkeypatch
):
    monkeypatch.setattr(table_gradient, "SMALL", limit)
    table, gradient = lookup_gradient(collection, ids_of(np.random.default_rng(0)))
    found = divided_by_height(gradient, table, marks=marks)
    large = [name for name, (rows, _) in SIZES.items() if rows + 1 > limit]
    assert len(found.rows) == ROWS * len(large)
    together = found.with_small(found.rows, found.values, found.small)
    rows, values = together.indices.numpy(), together.values.numpy()
    small = rows[: len(rows) - len(found.rows)]
    inside = rows < table.shape[0]
    assert not values[~inside].any()
    assert len({*small} - {table.shape[0]}) == (small < table.shape[0]).sum()
    if marks:
        assert {*rows[inside]} == {*gradient.indices.numpy()}
    dense = np.zeros(table.shape)
    np.add.at(dense, rows[inside], values[inside])
    np.testing.assert_allclose(dense, tf.convert_to_tensor(gradient).numpy(), atol=1e-5)


def test_a_row_whose_gradient_is_zero_counts_as_looked_up(collection, monkeypatch):
    monkeypatch.setattr(table_gradient, "SMALL", 1000)
    table, gradient = lookup_gradient(collection, {n: np.full((ROWS, 1), 3) for n in SIZES})
    values = tf.zeros_like(gradient.values)
    found = divided_by_height(
        tf.IndexedSlices(values, gradient.indices, gradient.dense_shape), table, marks=True
    )
    rows = found.with_small(found.rows, found.values, found.small).indices.numpy()
    assert {*rows[rows < table.shape[0]]} == {*gradient.indices.numpy()}


def test_a_table_with_lists_travels_as_it_is():
    layer = EmbeddingCollection({"user": (9, 4), "tags": (8, 4)})
    ids = tf.constant([[1], [2]], tf.int64)
    with tf.GradientTape() as tape:
        vectors = layer({"user": ids, "tags": (ids, tf.constant([[2], [0]], tf.int64))})
        total = sum(map(tf.reduce_sum, vectors.values()))
    (table,) = layer.trainable_variables
    gradient = tape.gradient(total, table.value)
    found = divided_by_height(gradient, table, marks=True)
    assert not found.small
    np.testing.assert_array_equal(found.rows, gradient.indices)
