import numpy as np
import pytest
import tensorflow as tf

from training.optimizers.distinct import distinct_rows
from training.optimizers.padding import capacity


def drawn(height, count, shape):
    rng = np.random.default_rng(count)
    rows = rng.zipf(1.2, count) % height
    if count:
        rows[-1] = height - 1
    return rows, rng.normal(size=(count, *shape)).astype("float32")


# In a table of few rows those of a large batch are marked; in others they are looked up.
@pytest.mark.parametrize(
    ("height", "dtype", "shape"),
    [
        (1, "int32", (4,)),
        (50, "int64", (1,)),
        (50, "int32", (2, 3)),
        (3_000_000, "int64", (4,)),
    ],
)
def test_each_row_is_there_once_and_has_the_sum(height, dtype, shape):
    table = tf.Variable(tf.zeros((height, *shape)))

    @tf.function(
        input_signature=[tf.TensorSpec((None,), dtype), tf.TensorSpec((None, *shape), tf.float32)]
    )
    def distinct(rows, values):
        result = distinct_rows(tf.IndexedSlices(values, rows), table)
        return result.indices, result.values

    for count in (0, 1, 1023, 1025, 30_000):
        rows, values = drawn(height, count, shape)
        found, sums = (part.numpy() for part in distinct(rows.astype(dtype), values))
        expected, places = np.unique(rows, return_inverse=True)
        exact = np.zeros((len(expected), *shape))
        np.add.at(exact, places, values.astype("float64"))
        order = np.argsort(found)
        np.testing.assert_array_equal(found[order], expected)
        np.testing.assert_allclose(sums[order], exact, atol=1e-2, rtol=1e-5)


def test_lengths_hold_the_rows_and_are_few():
    counts = [*range(1, 4096), 2**20 - 1, 2**20, 2**20 + 1, 2**30 + 1]
    lengths = [int(capacity(tf.constant(count))) for count in counts]
    for count, length in zip(counts, lengths, strict=True):
        assert count <= length <= max(1024, count * 5 / 4 + 1)
    assert len({length for length in lengths if 1024 < length <= 2048}) == 4


def test_the_operations_that_find_a_length_are_made_once_for_all_tables():
    """Each table of a model asks for some lengths, and each operation takes a millisecond to make."""

    @tf.function(autograph=False)
    def lengths(counts):
        with tf.device("/cpu:0"):
            return [capacity(count) for count in tf.unstack(counts)]

    lengths(tf.constant([1, 2000]))
    traced = capacity.experimental_get_tracing_count()
    assert [int(one) for one in lengths(tf.constant([3, 9000, 10_000]))] == [1024, 10_240, 10_240]
    assert capacity.experimental_get_tracing_count() == traced


def test_round_counts_are_not_padded():
    """Else the gradient of single ids would be copied in each step."""
    assert int(capacity(tf.constant(26 * 16_384))) == 26 * 16_384
