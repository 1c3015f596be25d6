"""The linear part of a wide and deep model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.layers.embedding_collection import EmbeddingCollection, check_present


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class LinearFeatures(keras.layers.Layer):
    """A linear function of categorical and continuous columns: one weight an id, and one bias.

    The weights of all ids of all columns are one variable. A list adds up its values' weights.
    All weights start at zero.

    Args:
        cardinalities: column name -> number of ids, single values and lists alike.
        continuous: names of columns of numbers.
        **kwargs: those of `keras.layers.Layer`.

    Call arguments:
        inputs: a dictionary as `DenseFeatures` takes it.

    Output shape: (N, 1), in the layer's compute dtype.

    Raises:
        TrainingError: no column at all, a column named twice, or one missing from the inputs.

    Example:
        >>> layer = LinearFeatures({"userId": 100}, ["age"])
        >>> layer({"userId": tf.constant([[5], [9]]), "age": tf.constant([[31.0], [7.0]])}).shape
        TensorShape([2, 1])
    """

    def __init__(
        self, cardinalities: Mapping[str, int], continuous: Iterable[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(cardinalities, Mapping):
            raise TrainingError(
                "Expected cardinalities as a dictionary of column -> number of ids. "
                f"Received: {cardinalities!r}."
            )
        self.cardinalities = [(name, rows) for name, rows in cardinalities.items()]
        self.continuous = list(continuous)
        names = [*cardinalities, *self.continuous]
        if not names or len(set(names)) != len(names):
            raise TrainingError(
                "Expected at least one column, and each either in cardinalities or in "
                f"continuous. Received: {', '.join(names) or 'none'}."
            )
        self.weights_of_ids = None
        if cardinalities:
            self.weights_of_ids = EmbeddingCollection(
                {name: (rows, 1) for name, rows in cardinalities.items()},
                "sum",
                "zeros",
                name="ids",
                dtype=self.dtype_policy,
            )

    def build(self, input_shape: Mapping[str, Any]) -> None:
        """Creates the weights; how many a continuous column needs, its shape tells."""
        check_present(self.name, self._names, input_shape)
        if self.weights_of_ids is not None:
            self.weights_of_ids.build()
        if self.continuous:
            width = sum(input_shape[name][1] for name in self.continuous)
            self.kernel = self.add_weight(name="kernel", shape=(width, 1), initializer="zeros")
        self.bias = self.add_weight(name="bias", shape=(1,), initializer="zeros")
        self.built = True

    @property
    def _names(self) -> list[str]:
        return [name for name, _ in self.cardinalities] + self.continuous

    def call(self, inputs: Mapping[str, Any]) -> tf.Tensor:
        """The linear function; see the class."""
        check_present(self.name, self._names, inputs)
        terms = []
        if self.weights_of_ids is not None:
            blocks = self.weights_of_ids.blocks(inputs)
            terms += [_sum_columns(weights) for _, weights in blocks]
        if self.continuous:
            numbers = [tf.cast(inputs[name], self.compute_dtype) for name in self.continuous]
            terms.append(tf.concat(numbers, axis=1) @ tf.convert_to_tensor(self.kernel))
        return tf.add_n(terms) + self.bias

    def compute_output_shape(self, input_shape: Mapping[str, Any]) -> tuple[int | None, int]:
        """(N, 1)."""
        if self.weights_of_ids is not None:
            return next(iter(self.weights_of_ids.compute_output_shape(input_shape).values()))
        return (input_shape[self.continuous[0]][0], 1)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able."""
        return {
            **super().get_config(),
            "cardinalities": [list(entry) for entry in self.cardinalities],
            "continuous": self.continuous,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LinearFeatures:
        """The layer that `get_config` described."""
        return cls(**{**config, "cardinalities": dict(config["cardinalities"])})


@tf.custom_gradient
def _sum_columns(weights: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """(N, columns, 1) to (N, 1)."""

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        # TensorFlow's own fetches a shape from the GPU, and so waits for it.
        return upstream[:, tf.newaxis] * tf.ones_like(weights)

    return tf.reduce_sum(weights, axis=1), gradient
