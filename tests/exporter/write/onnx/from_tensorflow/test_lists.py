"""Networks that reduce lists by segments and ragged tensors answer as ONNX models as in TensorFlow."""

from typing import Any, NamedTuple

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

from exporter.write.onnx.network import network_to_onnx
from training.network.keras_network import KerasNetwork

TABLE = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
SEGMENTS = ("sum", "max", "min", "prod")


class Lists(NamedTuple):
    """Ids, the length of each list, and the list of each id."""

    ids: Any
    lengths: Any
    places: Any

    @property
    def number(self):
        return tf.size(self.lengths)

    @property
    def vectors(self):
        return tf.gather(TABLE, self.ids % 64)

    @property
    def column(self):
        return self.ids[:, tf.newaxis]

    @property
    def ragged(self):
        return tf.RaggedTensor.from_row_lengths(self.ids, self.lengths)

    @property
    def ragged_vectors(self):
        return tf.RaggedTensor.from_row_lengths(self.vectors, self.lengths)


def up_to_the_last(reduced, lists):
    """A reduction that ends at the last list with an id, with zeros for those after it."""
    return tf.pad(reduced, [[0, lists.number - tf.shape(reduced)[0]], [0, 0]])


def in_order(name, kind):
    def reduce(lists):
        values = getattr(lists, kind)
        return up_to_the_last(getattr(tf.math, f"segment_{name}")(values, lists.places), lists)

    return reduce


def of_some(name, kind="vectors"):
    """Every other list counts for none."""

    def reduce(lists):
        places = tf.where(lists.places % 2 == 0, lists.places // 2, -1)
        values = getattr(lists, kind)
        return getattr(tf.math, f"unsorted_segment_{name}")(values, places, lists.number)

    return reduce


def of_table(name):
    reduce = getattr(tf.sparse, f"segment_{name}")
    return lambda lists: reduce(
        TABLE, tf.cast(lists.ids % 64, "int32"), lists.places, num_segments=lists.number
    )


def of_rows(name):
    reduce = getattr(tf.sparse, f"segment_{name}")
    return lambda lists: up_to_the_last(
        reduce(lists.vectors, tf.range(tf.size(lists.ids)), lists.places), lists
    )


NETWORKS = {
    "in order": {
        **{name: in_order(name, "vectors") for name in (*SEGMENTS, "mean")},
        **{f"{name}_of_ids": in_order(name, "column") for name in (*SEGMENTS, "mean")},
    },
    "in any order": {
        **{name: of_some(name) for name in (*SEGMENTS, "mean", "sqrt_n")},
        **{f"{name}_of_ids": of_some(name, "column") for name in SEGMENTS},
        "two_axes": lambda lists: tf.math.unsorted_segment_sum(
            tf.stack([lists.vectors, 2 * lists.vectors], 1),
            tf.stack([lists.places, lists.places - 1], 1),
            lists.number,
        ),
    },
    "rows of a table": {
        **{name: of_table(name) for name in ("sum", "mean", "sqrt_n")},
        **{f"{name}_up_to_the_last": of_rows(name) for name in ("sum", "mean", "sqrt_n")},
        "ragged": lambda lists: tf.nn.embedding_lookup_sparse(
            TABLE, lists.ragged % 64, None, combiner="mean"
        ),
        "scattered": lambda lists: tf.scatter_nd(
            lists.places[:, tf.newaxis], lists.vectors, tf.stack([lists.number, 4])
        ),
    },
    "padded": {
        "longer": lambda lists: lists.ragged.to_tensor(-1, shape=[None, 6]),
        "cut": lambda lists: lists.ragged.to_tensor(shape=[None, 2]),
        "mean": lambda lists: tf.reduce_mean(lists.ragged_vectors.to_tensor(shape=[None, 5, 4]), 1),
    },
    "ragged": {
        "sum": lambda lists: tf.reduce_sum(lists.ragged_vectors, 1),
        "mean": lambda lists: tf.reduce_mean(lists.ragged_vectors, 1),
        "max": lambda lists: tf.reduce_max(lists.ragged_vectors, 1),
        "deviation": lambda lists: tf.math.reduce_std(lists.ragged_vectors, 1),
    },
    "parts": {
        "first": lambda lists: tf.reduce_sum(lists.ragged_vectors[:, :2], 1),
        "last": lambda lists: tf.reduce_sum(lists.ragged_vectors[:, -2:], 1),
        "but_the_last": lambda lists: tf.reduce_sum(lists.ragged_vectors[:, :-1], 1),
    },
}
LONG = 2**59 + 63
FEEDS = {
    "some empty": ([3, 5, 9, 1, LONG, LONG - 2, 3], [2, 0, 1, 4, 0]),
    "an empty one": ([], [0]),
    "all empty": ([], [0, 0, 0]),
    "the first empty": ([3, 4], [0, 2, 0]),
    "no rows": ([], []),
}


@keras.saving.register_keras_serializable(package="tests")
class Reduced(keras.layers.Layer):
    def __init__(self, functions):
        super().__init__(dtype="float32", autocast=False)
        self._functions = functions

    def call(self, ids, lengths):
        ids, lengths = tf.reshape(ids, [-1]), tf.reshape(lengths, [-1])
        lists = Lists(ids, lengths, tf.repeat(tf.range(tf.size(lengths)), lengths))
        answers = {name: function(lists) for name, function in self._functions.items()}
        return {
            name: tf.ensure_shape(
                tf.reshape(y, [-1, 8]) if y.shape.rank == 3 else y, (None, y.shape[1])
            )
            for name, y in answers.items()
        }

    def compute_output_spec(self, *given):
        specs = (tf.TensorSpec((None, 1), "int64") for _ in given)
        answers = tf.function(self.call).get_concrete_function(*specs).structured_outputs
        return {name: keras.KerasTensor(y.shape, y.dtype.name) for name, y in answers.items()}


@pytest.mark.parametrize("group", NETWORKS)
def test_lists_are_reduced_as_by_tensorflow(group, tmp_path):
    given = {n: keras.Input((1,), name=n, dtype="int64") for n in ("x__values", "x__nnzs")}
    network = KerasNetwork(keras.Model(given, Reduced(NETWORKS[group])(*given.values())), {})
    network_to_onnx(network).write(tmp_path)
    path = str(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for case, tensors in FEEDS.items():
        feed = {
            n: np.array(t, np.int64).reshape(-1, 1) for n, t in zip(given, tensors, strict=True)
        }
        expected = network.call(**{n: tf.constant(t) for n, t in feed.items()})
        for answer, (name, tensor) in zip(session.run(None, feed), expected.items(), strict=True):
            # Whole numbers are equal to the last digit.
            rounding = 0 if tensor.dtype.is_integer else 1e-5
            np.testing.assert_allclose(
                answer, tensor.numpy(), rounding, rounding, err_msg=f"{name}, {case}"
            )
