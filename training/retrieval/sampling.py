"""Items drawn from a catalogue in each step, as further negatives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from workflow.wire.request_rules import NNZS, VALUES, is_list_values


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class SampledItems(keras.layers.Layer):
    """Features of random items of a catalogue, drawn with replacement.

    Args:
        dtypes: the dtype of each feature; that of a list's values as `<name>__values`, and of its
            row lengths as `<name>__nnzs`.
        item: the feature that identifies an item, among them.
        count: how many items to draw in each step.
        shapes: for `from_config`: the number of values of each feature, and under "" of items.
        cardinality: the number of ids of `item`.
        seed: of the draws.
        **options: of `keras.layers.Layer`.
    """

    def __init__(
        self,
        dtypes: Mapping[str, str],
        item: str,
        count: int,
        shapes: Mapping[str, int],
        cardinality: int,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(**{"dtype": "float32", **options})
        self.supports_jit = False  # draws by another algorithm under XLA
        self.dtypes, self.shapes = dict(dtypes), dict(shapes)
        self.item, self.count, self.cardinality, self.seed = item, count, cardinality, seed
        self.draws = keras.random.SeedGenerator(seed)
        self.columns = {name: self._state(name, shapes[name], dtypes[name]) for name in dtypes}
        self.log_share = self._state("log_share", shapes[""], "float32")
        self.log_share_of_id = self._state("log_share_of_id", cardinality, "float32")

    def fill(self, columns: Mapping[str, Any], shares: Any) -> None:
        """Set the catalogue.

        Args:
            columns: the values of each feature, as named in `dtypes`, without their second dimension.
            shares: the probability with which each item is drawn.
        """
        for name, array in columns.items():
            self.columns[name].assign(array)
        logarithms = np.log(np.maximum(shares, np.finfo(np.float32).tiny)).astype(np.float32)
        self.log_share.assign(logarithms)
        # An item outside of the catalogue is as rare as its rarest one.
        of_id = np.full(self.cardinality, logarithms.min(), np.float32)
        of_id[np.asarray(columns[self.item])] = logarithms
        self.log_share_of_id.assign(of_id)

    def call(self, ids: tf.Tensor) -> dict[str, Any]:
        """The features of the drawn items, and corrections of the softmax.

        Args:
            ids: the batch's own items, (N, 1).

        Returns:
            "features" as a model takes them; "ids" (count, 1); "own" (N, 1) and "drawn" (count, 1),
            the logarithms of the expected number of draws of each item.
        """
        weights = self.log_share.value[None]
        seed = tf.cast(self.draws.next(), tf.int32)
        places = tf.random.stateless_categorical(weights, self.count, seed)[0]
        own_ids = tf.clip_by_value(tf.cast(ids[:, 0], tf.int64), 0, self.cardinality - 1)
        draws = np.log(float(self.count)).astype(np.float32)
        return {
            "features": {name: self._taken(name, places) for name in self._names()},
            "ids": tf.gather(self.columns[self.item].value, places)[:, None],
            "own": tf.gather(self.log_share_of_id.value, own_ids)[:, None] + draws,
            "drawn": tf.gather(self.log_share.value, places)[:, None] + draws,
        }

    def _names(self) -> list[str]:
        """The features; a number of its own may be named as a part of a list."""
        lists = {n: n.removesuffix(VALUES) for n in self.dtypes if is_list_values(n, self.dtypes)}
        lengths = {name + NNZS for name in lists.values()}
        return [lists.get(name, name) for name in self.dtypes if name not in lengths]

    def _taken(self, name: str, places: tf.Tensor) -> Any:
        if name in self.columns:
            return tf.gather(self.columns[name].value, places)[:, None]
        nnzs = self.columns[name + NNZS].value
        lists = tf.RaggedTensor.from_row_lengths(self.columns[name + VALUES].value, nnzs)
        rows = tf.gather(lists, places)
        return rows.flat_values[:, None], tf.cast(rows.row_lengths(), nnzs.dtype)[:, None]

    def _state(self, name: str, size: int, dtype: str) -> Any:
        return self.add_weight(
            name=name, shape=(size,), initializer="zeros", trainable=False, dtype=dtype
        )

    def compute_output_spec(self, ids: Any) -> Any:
        """The shapes of `call`'s result."""
        single, many = (self.count, 1), (None, 1)
        features = {
            name: keras.KerasTensor(single, self.dtypes[name])
            if name in self.dtypes
            else (
                keras.KerasTensor(many, self.dtypes[name + VALUES]),
                keras.KerasTensor(single, self.dtypes[name + NNZS]),
            )
            for name in self._names()
        }
        return {
            "features": features,
            "ids": keras.KerasTensor(single, self.dtypes[self.item]),
            "own": keras.KerasTensor((ids.shape[0], 1), "float32"),
            "drawn": keras.KerasTensor(single, "float32"),
        }

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        names = ("dtypes", "item", "count", "shapes", "cardinality", "seed")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
