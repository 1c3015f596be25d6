"""The linear part of a wide and deep model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.feature_columns.layer_arguments import read_linear
from training.layers.embedding_collection import EmbeddingCollection, check_present
from training.layers.numbers import number_count, number_rows, widths_of
from training.layers.takes_lists import TakesLists
from workflow.schema.names import listed
from workflow.schema.own_names import OwnNames
from workflow.schema.python_number import plain


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class LinearFeatures(TakesLists, metaclass=OwnNames):
    """A linear function of categorical and continuous columns: a weight for each id, and a bias.

    The weights of all ids of all columns are one variable. A list sums the weights of its values.
    All weights start at zero.

    Args:
        cardinalities: column name -> number of ids, single values and lists alike. Or, as in
            NVTabular, TensorFlow's feature columns: `categorical_column_with_identity`, not
            wrapped, and `numeric_column`.
        continuous: names of columns of numbers, or name -> k for vectors of k numbers.
        **kwargs: arguments of `keras.layers.Layer`, and `fits`, which `train` records.

    Call arguments:
        inputs: a dictionary as `DenseFeatures` takes it.

    Output shape: (N, 1), in the layer's compute dtype.

    Raises:
        TrainingError: no column at all, a column named twice, a column that is missing from the
            inputs or has another shape, or a feature column that the layer cannot honour.
        tf.errors.InvalidArgumentError: a list of numbers with a length other than k.

    Example:
        >>> layer = LinearFeatures({"userId": 100}, ["age"])
        >>> layer({"userId": tf.constant([[5], [9]]), "age": tf.constant([[31.0], [7.0]])}).shape
        TensorShape([2, 1])
    """

    def __init__(
        self,
        cardinalities: Mapping[str, int] | Iterable[Any],
        continuous: Iterable[str] | Mapping[str, int | None] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(cardinalities, Mapping):
            if continuous:
                raise TrainingError(
                    "Expected feature columns alone, which say the rest. "
                    f"Received: continuous={continuous!r} as well."
                )
            facts = read_linear(cardinalities)
            cardinalities, continuous = facts.ids, facts.numbers
        self.cardinalities = [(name, plain(rows)) for name, rows in cardinalities.items()]
        self.continuous = widths_of(continuous)
        # XLA compiles for fixed shapes, which lists change in each batch, and drops checks.
        self.supports_jit = set(self.continuous.values()) <= {None, 1}
        names = [*cardinalities, *self.continuous]
        if not names or len(set(names)) != len(names):
            raise TrainingError(
                "Expected at least one column, and each either in cardinalities or in "
                f"continuous. Received: {listed(names) or 'none'}."
            )
        self.weights_of_ids = None
        if cardinalities:
            self.weights_of_ids = EmbeddingCollection(
                {name: (rows, 1) for name, rows in cardinalities.items()},
                "sum",
                "zeros",
                name="ids",
                dtype=self.dtype_policy,
                trainable=self.trainable,
            )

    def build(self, input_shape: Mapping[str, Any]) -> None:
        """Create the weights; the shape of a continuous column says how many it needs."""
        check_present(self.name, self._names, input_shape)
        if self.weights_of_ids is not None:
            self.weights_of_ids.build()
        if self.continuous:
            width = sum(number_count(n, input_shape[n], k) for n, k in self.continuous.items())
            self.kernel = self.add_weight(name="kernel", shape=(width, 1), initializer="zeros")
        self.bias = self.add_weight(name="bias", shape=(1,), initializer="zeros")

    @property
    def _names(self) -> list[str]:
        return [name for name, _ in self.cardinalities] + [*self.continuous]

    def call(self, inputs: Mapping[str, Any]) -> tf.Tensor:
        """The linear function; see the class."""
        check_present(self.name, self._names, inputs)
        terms = []
        if self.weights_of_ids is not None:
            blocks = self.weights_of_ids.blocks(inputs)
            terms += [_sum_columns(weights) for _, weights in blocks]
        if self.continuous:
            numbers = [
                number_rows(name, inputs[name], width, self.compute_dtype)
                for name, width in self.continuous.items()
            ]
            terms.append(tf.concat(numbers, axis=1) @ tf.convert_to_tensor(self.kernel))
        return tf.add_n(terms) + self.bias

    def compute_output_shape(self, input_shape: Mapping[str, Any]) -> tuple[int | None, int]:
        """(N, 1)."""
        if self.weights_of_ids is not None:
            return next(iter(self.weights_of_ids.compute_output_shape(input_shape).values()))
        shapes = [input_shape[n] for n, k in self.continuous.items() if k in (None, 1)]
        return (shapes[0][0] if shapes else None, 1)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able."""
        return {
            **super().get_config(),
            "cardinalities": [list(entry) for entry in self.cardinalities],
            "continuous": [list(entry) for entry in self.continuous.items()],
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LinearFeatures:
        """The layer described by a result of `get_config`."""
        mappings = {name: dict(config[name]) for name in ("cardinalities", "continuous")}
        return cls(**{**config, **mappings})


@tf.custom_gradient
def _sum_columns(weights: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """(N, columns, 1) to (N, 1)."""

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        # TensorFlow's own gradient fetches a shape from the GPU, and so waits for it.
        return upstream[:, tf.newaxis] * tf.ones_like(weights)

    return tf.reduce_sum(weights, axis=1), gradient
