"""Repeated rows added up as on a GPU, by operations that a CPU has as well."""

import numpy as np
import pytest
import tensorflow as tf

from training.optimizers.marks import added_up


@pytest.mark.parametrize(("count", "height"), [(1, 1), (5000, 40), (300, 1_000_000), (64, 64)])
@pytest.mark.parametrize("way", ["eager", "graph", "xla"])
def test_each_row_is_left_once_with_all_that_it_gets(count, height, way):
    random = np.random.default_rng(count)
    rows = np.minimum(random.zipf(1.3, count) - 1, height - 1)
    if way == "xla":  # drops rows outside of the table as a GPU does, where a CPU raises an error
        rows[1::5], rows[2::7], rows[3::11] = height, height + 3, -1
    values = random.normal(size=(count, 3)).astype("float32")
    function = added_up if way == "eager" else tf.function(added_up, jit_compile=way == "xla")
    gradient = tf.IndexedSlices(values, tf.constant(rows), tf.constant((height, 3)))
    found = function(gradient, height)
    kept = found.indices.numpy() < height
    inside = (rows >= 0) & (rows < height)
    expected, places = np.unique(rows[inside], return_inverse=True)
    order = np.argsort(found.indices.numpy()[kept])
    np.testing.assert_array_equal(found.indices.numpy()[kept][order], expected)
    sums = np.zeros((len(expected), 3))
    np.add.at(sums, places.ravel(), values[inside])
    np.testing.assert_allclose(found.values.numpy()[kept][order], sums, rtol=1e-4, atol=1e-4)
    assert not found.values.numpy()[~kept].any()
    assert (found.indices.numpy()[~kept] == height).all()


def test_no_rows_are_none():
    none = tf.IndexedSlices(tf.zeros((0, 3)), tf.zeros((0,), tf.int32), (7, 3))
    assert added_up(none, 7).values.shape == (0, 3)
