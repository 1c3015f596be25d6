import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from training import compile_model, models, optimizers
from training.optimizers import scatter

TABLE = np.random.default_rng(0).normal(size=(5000, 4)).astype("float32")


def drawn(count):
    """Rows, some of them very often, and a gradient of each."""
    rng = np.random.default_rng(count)
    rows = rng.zipf(1.2, count) % len(TABLE)
    return rows, rng.normal(size=(count, 4)).astype("float32")


def updated(apply, table, count):
    table.assign(TABLE)
    rows, gradient = drawn(count)
    apply(tf.constant(rows), tf.constant(gradient))
    expected = TABLE.astype("float64")
    np.add.at(expected, rows, -0.1 * gradient.astype("float64"))
    return table.numpy(), expected


@pytest.mark.parametrize("count", [0, 7, 1024, 1025, 40_000])
def test_all_that_a_row_gets_adds_up(count):
    table = tf.Variable(TABLE)
    optimizer = optimizers.SGD(0.1)
    optimizer.build([table])
    result, expected = updated(
        lambda rows, gradient: optimizer.apply([tf.IndexedSlices(gradient, rows)], [table]),
        table,
        count,
    )
    np.testing.assert_allclose(result, expected, atol=1e-3)


def test_another_number_of_rows_compiles_nothing_new():
    table = tf.Variable(TABLE)

    @tf.function(
        input_signature=[tf.TensorSpec((None,), tf.int64), tf.TensorSpec((None, 4), tf.float32)]
    )
    def apply(rows, gradient):
        scatter.add(table, rows, gradient, tf.constant(-0.1))

    updated(apply, table, 100)
    traced = scatter.add_compiled.experimental_get_tracing_count()
    for count in (1, 20_000, 33_333):
        result, expected = updated(apply, table, count)
        np.testing.assert_allclose(result, expected, atol=1e-3)
    assert scatter.add_compiled.experimental_get_tracing_count() == traced


def test_a_model_may_go_and_one_like_it_be_trained():
    """As in a notebook: what was compiled for the first serves the second as well."""
    features = {"userId": np.ones((64, 1), "int32")}
    for _ in range(2):
        model = models.mlp({"userId": (50, 16)}, hidden=(8,))
        compile_model(model, "adagrad")
        model.fit(features, np.ones((64, 1)), verbose=0)
        gone = weakref.ref(model)
        del model
        gc.collect()
        assert gone() is None
