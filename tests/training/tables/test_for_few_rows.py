"""Graphs that are built for few rows: what is served is what was trained, to the last bit."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from training.layers import EmbeddingBag, EmbeddingCollection
from training.saved_model import save_model
from training.tables.bags import COMBINERS, for_few_rows


def operations(function, *arguments):
    graph = tf.function(function).get_concrete_function(*arguments).graph
    return len(graph.get_operations())


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("lengths", [[1], [0], [], [2, 0, 3], [1] * 5000, [0, 3000, 1]])
def test_the_numbers_are_the_same(combiner, lengths):
    bag = EmbeddingBag(50, 7, combiner, "uniform")
    nnzs = tf.reshape(tf.constant(lengths, tf.int64), [-1, 1])
    values = tf.constant(np.random.default_rng(0).integers(-1, 52, (sum(lengths), 1)))
    many = bag((values, nnzs)).numpy()
    with for_few_rows():
        few = bag((values, nnzs)).numpy()
    np.testing.assert_array_equal(few, many)


@pytest.mark.parametrize("dtypes", [("int32", "int32"), ("int32", "int64"), ("uint64", "int8")])
@pytest.mark.parametrize("validate", [False, True])
def test_the_vectors_of_single_ids_are_the_same(dtypes, validate):
    layer = EmbeddingCollection(
        {"a": (50, 7), "b": (30, 7)}, "sum", "uniform", validate_ids=validate
    )
    least = 0 if validate else -2
    given = {
        name: np.random.default_rng(0).integers(least, 30, (4, 1)).astype(dtype)
        for name, dtype in zip("ab", dtypes, strict=True)
    }
    many = layer(given)
    with for_few_rows():
        few = layer(given)
    for name in given:
        np.testing.assert_array_equal(few[name], many[name])


def test_ids_out_of_range_are_refused_too():
    layer = EmbeddingCollection({"a": (50, 7), "b": (30, 7)}, validate_ids=True)
    ids = tf.constant([[3], [30]])
    with (
        for_few_rows(),
        pytest.raises(tf.errors.InvalidArgumentError, match=r"column b in 0 \.\. 29"),
    ):
        layer({"a": ids, "b": ids})


@pytest.mark.parametrize("lengths", [[1], [3], [4, -2], [-1, 3]])
def test_lengths_that_do_not_fit_are_refused_too(lengths):
    bag = EmbeddingBag(50, 7)
    with for_few_rows(), pytest.raises(tf.errors.InvalidArgumentError):
        bag((tf.constant([[1], [2]]), tf.constant(lengths)[:, tf.newaxis]))


def test_only_what_is_saved_is_built_so(tmp_path):
    pair = [keras.Input((1,), name=f"genres__{half}", dtype="int64") for half in ("values", "nnzs")]
    score = keras.layers.Dense(1)(EmbeddingBag(50, 7)(pair))
    model = keras.Model({tensor.name: tensor for tensor in pair}, score)
    sent = {name: tf.ones((1, 1), tf.int64) for name in model.input}
    before = operations(model, sent)
    with for_few_rows():
        assert operations(model, sent) < before - 30
    save_model(model, tmp_path / "saved")
    assert operations(model, sent) == before
