import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from training.layers import EmbeddingCollection
from training.split import table_gradient
from training.split.table_gradient import TableGradient
from training.tables.sharded_lookup import gradients_of_tables, recorded
from training.tables.side_by_side import LookedRows, side_by_side_of

SIZES = {"city": (5, 4), "user": (90, 4), "day": (7, 4), "friend": (90, 4), "item": (40, 4)}
LISTS = {"tags": (8, 4), "words": (60, 4)}
ROWS = 30
# One worker: exchanged are its own rows.
ALONE = types.SimpleNamespace(
    size=1,
    summed=tf.identity,
    joined=lambda part, kind: tf.cast(tf.cast(part, kind), part.dtype),
)


@pytest.fixture
def layer():
    return EmbeddingCollection(SIZES, shared={"friend": "user"})


def ids_of(random):
    """Ids of each column, some of them unknown."""
    return {name: random.integers(-1, rows + 2, (ROWS, 1)) for name, (rows, _) in SIZES.items()}


def weighted(layer, inputs):
    """A weighted sum of all vectors."""
    weights = np.random.default_rng(1).normal(size=(ROWS, 4)).astype("float32")
    vectors = layer(keras.tree.map_structure(tf.constant, inputs))
    return sum(tf.reduce_sum(each * weights * (n + 1)) for n, each in enumerate(vectors.values()))


def lookup_gradient(layer, inputs):
    """The table and its gradient."""
    with tf.GradientTape() as tape:
        total = weighted(layer, inputs)
    (table,) = layer.trainable_variables
    return table, tape.gradient(total, table.value)


def together(gradient, table):
    return [LookedRows(gradient.indices, gradient.values, side_by_side_of(table), is_list=False)]


def dense(rows, values, height):
    inside = rows < height
    found = np.zeros((height, values.shape[1]))
    np.add.at(found, rows[inside], values[inside])
    return found


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize("limit", [0, 10, 50, 1000])
def test_sums_of_small_columns_and_rows_of_large_ones_are_the_gradient(
    layer, limit, marks, monkeypatch
):
    monkeypatch.setattr(table_gradient, "SMALL", limit)
    table, gradient = lookup_gradient(layer, ids_of(np.random.default_rng(0)))
    values, rows = TableGradient(together(gradient, table), table, marks=marks).exchanged(
        ALONE, tf.float32
    )
    rows, values = rows.numpy(), values.numpy()
    large = [name for name, (height, _) in SIZES.items() if height + 1 > limit]
    small = rows[: len(rows) - ROWS * len(large)]
    assert len({*small} - {table.shape[0]}) == (small < table.shape[0]).sum()
    if marks:
        assert {*rows[rows < table.shape[0]]} == {*gradient.indices.numpy()}
    expected = tf.convert_to_tensor(gradient).numpy()
    np.testing.assert_allclose(dense(rows, values, table.shape[0]), expected, atol=1e-5)


def test_columns_are_summed_as_long_as_they_have_few_rows_together(layer, monkeypatch):
    """The smallest first; sums of all rows of many columns would cost more than a small batch."""
    monkeypatch.setattr(table_gradient, "TOGETHER", 20)
    table, gradient = lookup_gradient(layer, ids_of(np.random.default_rng(0)))
    alone = TableGradient(together(gradient, table), table, marks=True).alone()
    rows = alone.indices.numpy()
    city_and_day = 6 + 8
    assert len(rows) == city_and_day + 3 * ROWS
    received = dense(rows, alone.values.numpy(), table.shape[0])
    np.testing.assert_allclose(received, tf.convert_to_tensor(gradient).numpy(), atol=1e-5)


def test_a_row_whose_gradient_is_zero_counts_as_looked_up(layer, monkeypatch):
    monkeypatch.setattr(table_gradient, "SMALL", 1000)
    table, gradient = lookup_gradient(layer, {n: np.full((ROWS, 1), 3) for n in SIZES})
    zeros = tf.IndexedSlices(tf.zeros_like(gradient.values), gradient.indices)
    _, rows = TableGradient(together(zeros, table), table, marks=True).exchanged(ALONE, tf.float32)
    assert {*rows.numpy()[rows < table.shape[0]]} == {*gradient.indices.numpy()}


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize(
    ("limit", "first"), [(1, 1), (10, 4), (50, 9), (50, 20), (1000, 4), (1000, 1000)]
)
def test_lookups_of_lists_and_ids_in_one_table_are_divided_by_column(
    limit, first, marks, monkeypatch
):
    """The first rows of large columns of lists are summed, and so are not among those that travel."""
    monkeypatch.setattr(table_gradient, "SMALL", limit)
    monkeypatch.setattr(table_gradient, "FIRST", first)
    random = np.random.default_rng(0)
    layer = EmbeddingCollection(SIZES | LISTS, shared={"friend": "user"})
    inputs = ids_of(random)
    counts = {}
    for name, (height, _) in LISTS.items():
        lengths = random.integers(0, 4, (ROWS, 1))
        counts[name] = lengths.sum()
        ids = random.integers(-1, height + 2, (counts[name], 1))  # some of them unknown
        inputs[name] = (ids, lengths)
    table, gradient = lookup_gradient(layer, inputs)
    with tf.GradientTape() as tape, recorded(tape, [], "/cpu:0", tf.float32) as lookups:
        total = weighted(layer, inputs)
    upstream = tape.gradient(total, [looked.vectors for looked in lookups])
    (parts,) = gradients_of_tables(lookups, upstream).values()
    found = TableGradient(parts, table, marks=marks)
    large = [name for name, (height, _) in LISTS.items() if height + 1 > limit]
    assert [len(rows) for rows in found.lists] == [counts[name] for name in large]
    # Columns lie one below the other, each with a row for unknown ids; "friend" has none of its own.
    heights = [h + 1 for name, (h, _) in (SIZES | LISTS).items() if name != "friend"]
    starts = dict(zip(LISTS, np.cumsum(heights)[len(SIZES) - 2 :], strict=False))
    frequent = [starts[name] + row for name in large for row in range(first)]
    assert not np.isin(np.concatenate([[-1], *found.lists]), frequent).any()
    alone = found.alone()
    if marks:
        rows = alone.indices.numpy()
        assert {*rows[rows < table.shape[0]]} == {*gradient.indices.numpy()}
    # As if another worker had the longest list.
    found.lengthen(iter([tf.constant(int(counts[name]) + 3) for name in large]))
    values, rows = found.exchanged(ALONE, tf.float32)
    expected = tf.convert_to_tensor(gradient).numpy()
    for each, numbers in ((values, rows), (alone.values, alone.indices)):
        received = dense(numbers.numpy(), each.numpy(), table.shape[0])
        np.testing.assert_allclose(received, expected, atol=1e-5)


def test_rows_travel_in_16_bits_if_wanted_and_sums_do_not(layer, monkeypatch):
    monkeypatch.setattr(table_gradient, "SMALL", 50)
    table, gradient = lookup_gradient(layer, ids_of(np.random.default_rng(0)))
    found = TableGradient(together(gradient, table), table, marks=False)
    exact, _ = found.exchanged(ALONE, tf.float32)
    values, _ = found.exchanged(ALONE, tf.bfloat16)
    sums = found.small[0].shape[0]
    np.testing.assert_array_equal(values[:sums], exact[:sums])
    rounded = tf.cast(tf.cast(exact[sums:], tf.bfloat16), tf.float32)
    np.testing.assert_array_equal(values[sums:], rounded)
    assert np.any(values[sums:] != exact[sums:])
