import keras
import numpy as np
import pytest
import tensorflow as tf

from training import compile_model, models
from training.split.choice import either


def _rows(data, factor):
    table = tf.range(12.0)[:, None]
    ids = data["ids"] * factor
    return {"sum": tf.IndexedSlices(tf.gather(table, ids), ids, tf.shape(table)), "none": None}


@tf.function(autograph=False)
def _chosen(condition, data):
    return either(condition, lambda data: _rows(data, 1), lambda data: _rows(data, 3), data)


@pytest.mark.parametrize(("condition", "factor"), [(True, 1), (False, 3)])
def test_one_of_both_is_called_and_dtypes_stay(condition, factor):
    ids = np.array([2, 0, 3], "int32")
    given = {"ids": tf.constant(ids), "text": tf.constant(["ignored"]), "none": None}
    result = _chosen(tf.constant(condition), given)
    assert result["none"] is None
    assert result["sum"].indices.dtype == tf.int32
    np.testing.assert_array_equal(result["sum"].indices, ids * factor)
    np.testing.assert_array_equal(result["sum"].values[:, 0], ids * factor)
    np.testing.assert_array_equal(result["sum"].dense_shape, [12, 1])


@pytest.mark.parametrize("sizes", [{"userId": (50, 8)}, None], ids=["ids", "lists"])
def test_a_step_has_no_switches(batches, built, sizes):
    """On a GPU what depends on a switch is sent when all work that was sent before is done."""
    model = models.mlp(sizes, hidden=(8,)) if sizes else built()
    compile_model(model, keras.optimizers.SGD(0.1), xla=True)
    step = tf.function(model.train_step, autograph=False)
    graph = step.get_concrete_function(next(iter(batches(64, 64)))).graph
    conditions = [op for op in graph.get_operations() if op.type in {"If", "StatelessIf", "While"}]
    assert conditions
    for condition in conditions:
        assert not condition.get_attr("_lower_using_switch_merge")
        # Its tensors are on the GPU, and int32 is on the host in the functions that it calls.
        assert tf.int32 not in {tensor.dtype for tensor in (*condition.inputs, *condition.outputs)}
