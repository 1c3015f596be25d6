"""From the loader's dictionary of features to the one tensor that a dense layer takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.layers.embedding_collection import (
    EmbeddingCollection,
    check_present,
    check_sizes,
)

AGGREGATIONS = ("concat", "stack")


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class DenseFeatures(keras.layers.Layer):
    """Joins the embeddings of categorical columns and the continuous columns.

    The order of the output is the order of the arguments: first the columns of
    `embedding_sizes`, then those of `continuous`. The order of the features given to the call
    does not matter.

    Args:
        embedding_sizes: column name -> (cardinality, width), single values and lists alike.
        continuous: names of columns taken as they are.
        combiner: how the vectors of a list become one: "sum", "mean" or "sqrtn".
        embeddings_initializer: a Keras initializer, called for each column by itself.
        aggregation: "concat" puts the columns side by side; "stack" one below the other, for
            which all have to be of one width, continuous ones of 1.
        validate_ids: checks ids and row lengths in every call, to find a mistake; slow on a GPU.
        **kwargs: those of `keras.layers.Layer`.

    Call arguments:
        inputs: a dictionary: ids (N, 1) or a pair (values (nnz, 1), nnzs (N, 1)) for each
            column of `embedding_sizes`, numbers (N, k) for each of `continuous`. Further
            columns are ignored. Ids out of range: see `EmbeddingCollection`.

    Output shape: (N, sum of the widths) or, stacked, (N, columns, width), in the layer's compute
    dtype.

    Attributes:
        embedding_tables: column name -> the vectors of its ids, (cardinality, width): copies.
        embeddings: the `EmbeddingCollection`, None where no column is embedded.

    Raises:
        TrainingError: no column at all, a column named twice, one missing from the inputs, or
            widths that differ and are to be stacked.

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
        aggregation: str = "concat",
        validate_ids: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.continuous = list(continuous)
        self.combiner = combiner
        self.aggregation = aggregation
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        check_sizes(embedding_sizes)
        self._check(embedding_sizes)
        self.embeddings = None
        if embedding_sizes:
            self.embeddings = EmbeddingCollection(
                embedding_sizes,
                combiner,
                self.embeddings_initializer,
                validate_ids,
                name="embeddings",
                dtype=self.dtype_policy,
            )

    def _check(self, sizes: Mapping[str, tuple[int, int]]) -> None:
        names = [*sizes, *self.continuous]
        if not names or len(set(names)) != len(names):
            raise TrainingError(
                "Expected at least one column, and each either in embedding_sizes or in "
                f"continuous. Received: {', '.join(names) or 'none'}."
            )
        if self.aggregation not in AGGREGATIONS:
            raise TrainingError(
                f"Expected an aggregation among {', '.join(AGGREGATIONS)}. "
                f"Received: {self.aggregation!r}."
            )
        widths = {name: width for name, (_, width) in sizes.items()}
        widths |= dict.fromkeys(self.continuous, 1)
        if self.aggregation == "stack" and len(set(widths.values())) > 1:
            raise TrainingError(
                "Expected columns of one width to stack, continuous ones having 1. "
                f"Received: {', '.join(f'{name} of {width}' for name, width in widths.items())}."
            )

    @property
    def validate_ids(self) -> bool:
        """Whether ids and row lengths are checked in every call; can be set."""
        return self.embeddings is not None and self.embeddings.validate_ids

    @validate_ids.setter
    def validate_ids(self, value: bool) -> None:
        if self.embeddings is not None:
            self.embeddings.validate_ids = value

    @property
    def embedding_tables(self) -> dict[str, tf.Tensor]:
        """The vectors of each column's ids, once the layer is built."""
        return {} if self.embeddings is None else self.embeddings.embedding_tables

    @property
    def _widths(self) -> dict[str, int]:
        return {} if self.embeddings is None else self.embeddings.widths

    def build(self, input_shape: Any = None) -> None:  # noqa: ARG002 - tables need no shape
        """Creates the tables."""
        if self.embeddings is not None:
            self.embeddings.build()
        self.built = True

    def call(self, inputs: Mapping[str, Any]) -> tf.Tensor:
        """The tensor of all columns; see the class."""
        check_present(self.name, [*self._widths, *self.continuous], inputs)
        parts = list(self._embedded(inputs))
        stack = self.aggregation == "stack"
        if not stack:
            parts = [tf.reshape(part, [-1, part.shape[1] * part.shape[2]]) for part in parts]
        for name in self.continuous:
            column = tf.cast(inputs[name], self.compute_dtype)
            parts.append(column[:, tf.newaxis] if stack else column)
        return tf.concat(parts, axis=1) if len(parts) > 1 else parts[0]

    def _embedded(self, inputs: Mapping[str, Any]) -> Iterator[tf.Tensor]:
        """Vectors (N, columns, width), in order: neighbours that were looked up together stay so."""
        if self.embeddings is None:
            return
        blocks = list(self.embeddings.blocks(inputs))
        places = {
            name: (number, place)
            for number, (names, _) in enumerate(blocks)
            for place, name in enumerate(names)
        }
        for number, first, last in _runs([places[name] for name in self._widths]):
            names, block = blocks[number]
            yield block if last - first == len(names) else block[:, first:last]

    def compute_output_shape(self, input_shape: Mapping[str, Any]) -> tuple[int | None, ...]:
        """(N, sum of the widths) or (N, columns, width)."""
        check_present(self.name, [*self._widths, *self.continuous], input_shape)
        widths = list(self._widths.values())
        rows = None
        if self.embeddings is not None:
            rows = next(iter(self.embeddings.compute_output_shape(input_shape).values()))[0]
        for name in self.continuous:
            rows = input_shape[name][0]
            widths.append(input_shape[name][1])
        if self.aggregation == "stack":
            return (rows, len(widths), widths[0])
        return (rows, sum(widths))

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able."""
        sizes = [] if self.embeddings is None else self.embeddings.embedding_sizes
        return {
            **super().get_config(),
            "embedding_sizes": [list(entry) for entry in sizes],
            "continuous": self.continuous,
            "combiner": self.combiner,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "aggregation": self.aggregation,
            "validate_ids": self.validate_ids,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> DenseFeatures:
        """The layer that `get_config` described."""
        sizes = {name: (rows, width) for name, rows, width in config["embedding_sizes"]}
        return cls(**{**config, "embedding_sizes": sizes})


def _runs(places: list[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Joins neighbouring places of one block: (block, first, one beyond the last).

    Example:
        >>> list(_runs([(0, 0), (0, 1), (1, 0), (0, 2)]))
        [(0, 0, 2), (1, 0, 1), (0, 2, 3)]
    """
    run: tuple[int, int, int] | None = None
    for block, place in places:
        if run is not None and run[0] == block and run[2] == place:
            run = (block, run[1], place + 1)
            continue
        if run is not None:
            yield run
        run = (block, place, place + 1)
    if run is not None:
        yield run
