"""Frequencies of items, estimated from the batches of a training."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class StreamingFrequency(keras.layers.Layer):
    """The logarithm of how often each item occurs in a batch, learned from the batches.

    For each item it keeps the step of its last occurrence and the moving mean of the number of steps
    between two occurrences, whose inverse is the frequency. The occurrences in one batch count as
    spread evenly over the steps since the item's last batch; the paper has at most one in a step. The
    first occurrence of an item sets the mean, as the paper advises.

    Source: X. Yi et al., Sampling-Bias-Corrected Neural Modeling for Large Corpus Item
    Recommendations, RecSys 2019, algorithm 2; with a place for each id in place of a hash.

    Args:
        cardinality: the number of ids, from 0.
        rate: the weight of the newest interval in the mean, above 0 and up to 1.
        **options: of `keras.layers.Layer`.

    Example:
        >>> layer = StreamingFrequency(4, rate=0.5)
        >>> for _ in range(8):
        ...     logarithms = layer(tf.constant([[2]]), training=True)
        >>> float(logarithms[0, 0])  # once in each batch
        0.0
    """

    supports_jit = False  # assigns single rows, which XLA does in whole tables

    def __init__(self, cardinality: int, rate: float = 0.05, **options: Any) -> None:
        super().__init__(**{"dtype": "float32", **options})
        self.supports_jit = False
        self.cardinality, self.rate = cardinality, rate
        # Float32 has no number after 2**24 that is one more.
        self.step = self._state("step", (), "float64")
        self.last = self._state("last", (cardinality,), "float64")
        self.interval = self._state("interval", (cardinality,), "float32")

    def call(self, ids: tf.Tensor, training: bool = False) -> tf.Tensor:
        """The logarithms, float32 (N, 1); 0 for an item that no batch has contained."""
        rows = tf.clip_by_value(tf.cast(ids[:, 0], tf.int64), 0, self.cardinality - 1)
        waits: list[Any] = [] if not training else [self._learn(rows)]
        with tf.control_dependencies(waits):
            interval = tf.gather(self.interval.value, rows)
        divisor = tf.where(interval > 0, interval, 1.0)
        return tf.math.log(1 / divisor)[:, None]

    def _learn(self, rows: tf.Tensor) -> tf.Operation:
        """Update the intervals of the batch's items, as often as each occurs in it."""
        items, places = tf.unique(rows)
        count = tf.math.unsorted_segment_sum(tf.ones_like(rows, tf.float32), places, tf.size(items))
        # A step without a batch must not count.
        with tf.control_dependencies([rows]):
            step = self.step.value.assign_add(1.0)
        before = tf.gather(self.interval.value, items)
        since = tf.cast(step - tf.gather(self.last.value, items), tf.float32)
        decay = tf.where(before > 0, (1 - self.rate) ** count, 0.0)
        after = decay * before + (1 - decay) * since / count
        return tf.group(
            self.interval.value.scatter_nd_update(items[:, None], after),
            self.last.value.scatter_nd_update(items[:, None], tf.fill(tf.shape(items), step)),
        )

    def _state(self, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        return self.add_weight(
            name=name, shape=shape, initializer="zeros", trainable=False, dtype=dtype
        )

    def compute_output_spec(self, ids: Any, **_: Any) -> Any:
        """One number a row."""
        return keras.KerasTensor((ids.shape[0], 1), "float32")

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "cardinality": self.cardinality, "rate": self.rate}
