"""A table's initial values, and the memory that making, saving and exporting it takes."""

import keras
import numpy as np
import pytest

from benchmarks.measure import in_child
from benchmarks.memory import peaks_of_steps
from training import TrainingError
from training.layers import CrossNetwork, EmbeddingCollection
from training.tables import initial_table


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(initial_table, "BLOCK", 40)


def tables(initializer, sizes):
    layer = EmbeddingCollection(sizes, embeddings_initializer=initializer)
    layer.build()
    return {name: table.numpy() for name, table in layer.embedding_tables.items()}


@pytest.mark.parametrize("given", ["bogus", 3])
def test_an_unknown_initializer(given):
    expected = f"Expected an initializer .* Received: {given!r}"
    with pytest.raises(TrainingError, match=expected):
        EmbeddingCollection({"a": (3, 4)}, embeddings_initializer=given)
    with pytest.raises(TrainingError, match=expected):
        CrossNetwork(1, kernel_initializer=given)


@pytest.mark.long
def test_a_table_is_made_saved_and_exported_without_copies_of_it():
    # 200 MB, in a process of its own, whose memory no other test has used before.
    peaks = in_child(peaks_of_steps, 800_000, "tensorflow")
    assert peaks["make"] < 1.3, "the table itself"
    assert peaks["save_model"] < 0.3
    assert peaks["export, tensorflow"] < 1.3, "the proof loads what was written"


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", ["uniform", "random_normal", "truncated_normal"])
def test_blocks_of_rows_are_drawn_each_by_itself(name):
    made = tables(name, {"a": (101, 4), "b": (101, 4)})
    assert len(np.unique(np.concatenate([*made.values()]))) > 800
    spread = keras.initializers.get(name)((4_000, 4)).numpy().std()
    for table in made.values():
        assert abs(table.mean()) < 0.2 * spread
        assert table.std() == pytest.approx(spread, rel=0.2)


@pytest.mark.usefixtures("small_blocks")
def test_each_columns_rows_end_with_zeros_for_the_unknown():
    layer = EmbeddingCollection({"a": (101, 4), "b": (7, 4)}, embeddings_initializer="ones")
    layer.build()
    (variable,) = layer.weights
    assert np.flatnonzero((variable.numpy() == 0).all(axis=1)).tolist() == [101, 109]
    assert (np.delete(variable.numpy(), [101, 109], axis=0) == 1).all()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "initializer",
    [
        keras.initializers.RandomUniform(seed=3),
        keras.initializers.TruncatedNormal(seed=3),
        keras.initializers.GlorotUniform(seed=3),
        keras.initializers.Orthogonal(seed=3),
        keras.initializers.Constant(0.25),
    ],
    ids=lambda initializer: type(initializer).__name__,
)
def test_an_initializer_with_a_seed_gives_the_table_that_it_gives(initializer):
    expected = initializer.clone()((101, 4)).numpy()
    np.testing.assert_array_equal(tables(initializer, {"a": (101, 4)})["a"], expected)


@pytest.mark.usefixtures("small_blocks")
def test_a_table_of_more_rows_than_int32_counts_is_put_together(monkeypatch):
    made = []
    for most in (2**31 - 1, 10):
        monkeypatch.setattr(initial_table, "MOST_ROWS", most)
        keras.utils.set_random_seed(5)
        made.append(tables("uniform", {"a": (101, 4), "b": (7, 4)}))
    np.testing.assert_equal(*made)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_a_table_of_every_dtype_is_made(dtype):
    layer = EmbeddingCollection({"a": (101, 4)}, dtype=dtype)
    layer.build()
    table = layer.embedding_tables["a"]
    assert table.dtype == dtype
    assert len(np.unique(table.numpy())) > 100
