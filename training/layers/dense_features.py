"""From the loader's dictionary of features to the one matrix that a dense layer takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.layers.embedding_bag import EmbeddingBag


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class DenseFeatures(keras.layers.Layer):
    """Concatenates embeddings of categorical columns and the continuous columns.

    The order of the output is the order of the arguments: first the columns of
    `embedding_sizes`, then those of `continuous`. The order of the features given to the call
    does not matter.

    Args:
        embedding_sizes: column name -> (cardinality, width), single values and lists alike.
        continuous: names of columns taken as they are.
        combiner: how the vectors of a list become one: "sum", "mean" or "sqrtn".
        embeddings_initializer: a Keras initializer for every table.
        **kwargs: those of `keras.layers.Layer`.

    Call arguments:
        inputs: a dictionary: ids (N, 1) or a pair (values (nnz, 1), nnzs (N, 1)) for each
            column of `embedding_sizes`, numbers (N, k) for each of `continuous`. Further
            columns are ignored.

    Output shape: (N, sum of the widths), in the layer's compute dtype.

    Attributes:
        embedding_tables: column name -> the table, a `keras.Variable` (cardinality, width).

    Raises:
        TrainingError: no column at all, a column named twice, or one missing from the inputs.

    Example:
        >>> layer = DenseFeatures({"userId": (100, 16), "genres": (22, 8)}, ["age"])
        >>> layer({
        ...     "age": tf.constant([[31.0], [7.0]]),
        ...     "userId": tf.constant([[5], [9]]),
        ...     "genres": (tf.constant([[3], [4], [5]]), tf.constant([[1], [2]])),
        ... }).shape
        TensorShape([2, 25])
    """

    def __init__(
        self,
        embedding_sizes: Mapping[str, tuple[int, int]],
        continuous: Iterable[str] = (),
        combiner: str = "mean",
        embeddings_initializer: Any = "uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # A list of pairs, since Keras hands the dictionaries of a saved layer back sorted.
        self.embedding_sizes = [
            (name, rows, width) for name, (rows, width) in embedding_sizes.items()
        ]
        self.continuous = list(continuous)
        self.combiner = combiner
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self._check_names()
        self._bags = [
            EmbeddingBag(
                rows,
                width,
                combiner,
                # One initializer object gives equal tables to columns of equal size.
                self.embeddings_initializer.clone(),
                name=name,
                dtype=self.dtype_policy,
            )
            for name, rows, width in self.embedding_sizes
        ]

    def _check_names(self) -> None:
        names = [name for name, _, _ in self.embedding_sizes] + self.continuous
        if not names or len(set(names)) != len(names):
            raise TrainingError(
                "Expected at least one column, and each either in embedding_sizes or in "
                f"continuous. Received: {', '.join(names) or 'none'}."
            )

    @property
    def embedding_tables(self) -> dict[str, keras.Variable]:
        """The tables by column name, once the layer is built."""
        return {bag.name: bag.embeddings for bag in self._bags}

    def build(self, input_shape: Any = None) -> None:  # noqa: ARG002 - tables need no shape
        """Creates the tables."""
        for bag in self._bags:
            bag.build()
        self.built = True

    def call(self, inputs: Mapping[str, Any]) -> tf.Tensor:
        """The matrix of all columns; see the class."""
        self._check_present(inputs)
        columns = [bag(inputs[bag.name]) for bag in self._bags]
        columns += [tf.cast(inputs[name], self.compute_dtype) for name in self.continuous]
        return tf.concat(columns, axis=1)

    def compute_output_shape(self, input_shape: Mapping[str, Any]) -> tuple[int | None, int]:
        """(N, sum of the widths)."""
        self._check_present(input_shape)
        shapes = [bag.compute_output_shape(input_shape[bag.name]) for bag in self._bags]
        shapes += [tuple(input_shape[name]) for name in self.continuous]
        return (shapes[0][0], sum(shape[1] for shape in shapes))

    def _check_present(self, inputs: Mapping[str, Any]) -> None:
        wanted = [bag.name for bag in self._bags] + self.continuous
        missing = [name for name in wanted if name not in inputs]
        if missing:
            raise TrainingError(
                f"Expected the columns {', '.join(wanted)} in the features of {self.name!r}. "
                f"Received: {', '.join(inputs)}; missing: {', '.join(missing)}."
            )

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able."""
        return {
            **super().get_config(),
            "embedding_sizes": [list(entry) for entry in self.embedding_sizes],
            "continuous": self.continuous,
            "combiner": self.combiner,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> DenseFeatures:
        """The layer that `get_config` described."""
        sizes = {name: (rows, width) for name, rows, width in config["embedding_sizes"]}
        return cls(**{**config, "embedding_sizes": sizes})
