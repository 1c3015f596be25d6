"""A behaviour sequence and a target as vectors with positions."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.layers.embedding_bag import EmbeddingBag
from training.layers.records_fits import RecordsFits
from training.tables.initial_table import initializer_of
from workflow.schema.own_names import OwnNames
from workflow.schema.python_number import plain, whole_number


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class SequenceEmbedding(RecordsFits, metaclass=OwnNames):
    """Vectors of a sequence of ids and of a target, from one table, each with its position's vector.

    The position is the distance to the target: 0 of the target itself, 1 of the newest id. The
    sequence has the oldest id first, and is padded with 0 at its end.

    Args:
        input_dim: the number of ids.
        output_dim: the width of a vector.
        length: the width of the sequence, L.
        embeddings_initializer: a Keras initializer of both tables.
        shard: how the table of ids is divided among workers: see `EmbeddingCollection`.
        **kwargs: arguments of `keras.layers.Layer`, and `fits`, which `train` records.

    Call arguments:
        sequence: ids (N, L).
        target: ids (N, 1).

    Returns:
        The vectors (N, L + 1, output_dim), the target's last, and a mask (N, L + 1), False for
        padding.

    Raises:
        TrainingError: a size or a length below one, or a sequence of another width.

    Example:
        >>> layer = SequenceEmbedding(20, 8, length=3)
        >>> vectors, mask = layer(tf.constant([[5, 7, 0]]), tf.constant([[7]]))
        >>> vectors.shape, mask.numpy().tolist()
        (TensorShape([1, 4, 8]), [[True, True, False, True]])
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        length: int,
        embeddings_initializer: Any = "uniform",
        *,
        shard: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.input_dim, self.output_dim = plain((input_dim, output_dim))
        self.length = whole_number("length", length, 1, TrainingError)
        self.embeddings_initializer = initializer_of(embeddings_initializer)
        self.items = EmbeddingBag(
            input_dim,
            output_dim,
            embeddings_initializer=self.embeddings_initializer,
            shard=shard,
            name="items",
            dtype=self.dtype_policy,
            trainable=self.trainable,
        )

    def build(self, input_shape: Any = None) -> None:
        """Create both tables, after a check of the sequence's shape."""
        if input_shape is not None and tuple(input_shape[1:]) != (self.length,):
            raise TrainingError(
                f"Expected a sequence of shape (N, {self.length}) for {self.name!r}. "
                f"Received: {tuple(input_shape)}."
            )
        self.items.build()
        self.positions = self.add_weight(
            name="positions",
            shape=(self.length + 1, self.output_dim),
            initializer=self.embeddings_initializer,
        )

    def call(self, sequence: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The vectors and the mask; see the class."""
        # One dtype may be too narrow for the ids of the other.
        ids = tf.concat([tf.cast(sequence, tf.int64), tf.cast(target, tf.int64)], axis=1)
        present = tf.concat([sequence != 0, tf.ones_like(target, tf.bool)], axis=1)
        count = tf.reduce_sum(tf.cast(sequence != 0, tf.int32), axis=1, keepdims=True)
        distance = tf.maximum(count - tf.range(self.length), 0)
        distance = tf.concat([distance, tf.zeros_like(count)], axis=1)
        vectors = self.items(tf.reshape(ids, (-1, 1)))
        vectors = tf.reshape(vectors, (-1, self.length + 1, self.output_dim))
        return vectors + tf.cast(tf.gather(self.positions, distance), vectors.dtype), present

    def compute_output_spec(self, sequence: Any, *_: Any) -> Any:
        """The shapes of `call`'s results."""
        rows = (sequence.shape[0], self.length + 1)
        vectors = keras.KerasTensor((*rows, self.output_dim), self.compute_dtype)
        return vectors, keras.KerasTensor(rows, "bool")

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "length": self.length,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "shard": self.items.shard,
        }
