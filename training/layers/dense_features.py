"""A loader's dictionary of features, joined into the one tensor that a dense layer takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.feature_columns.layer_arguments import read_dense
from training.layers.embedding_bag import check_size, rows_of
from training.layers.embedding_collection import (
    EmbeddingCollection,
    check_present,
    check_sizes,
)
from training.layers.indicators import count_ids
from training.layers.numbers import number_count, number_rows, widths_of
from training.layers.takes_lists import TakesLists
from training.tables.initial_table import initializer_of
from workflow.schema.names import listed
from workflow.schema.own_names import OwnNames
from workflow.schema.python_number import plain

AGGREGATIONS = ("concat", "stack")


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class DenseFeatures(TakesLists, metaclass=OwnNames):
    """The embeddings of categorical columns and the continuous columns, joined.

    The order of the output is the order of the arguments: first the columns of
    `embedding_sizes`, then those of `indicators`, then those of `continuous`. The order of the
    features given to the call does not matter.

    Args:
        embedding_sizes: column name -> (cardinality, width), single values and lists alike. Or, as
            in NVTabular, TensorFlow's feature columns: `embedding_column` and `shared_embeddings`
            (with their own combiner) and `indicator_column` over
            `categorical_column_with_identity`, and `numeric_column`, with aggregation as the second
            argument if needed. Each kind keeps its order; everything else belongs in the workflow,
            which `training.make_feature_column_workflow` makes.
        continuous: names of columns taken unchanged, or name -> k for vectors of k numbers.
        combiner: how the vectors of a list become one: "sum", "mean" or "sqrtn", for all columns or
            as column -> combiner.
        embeddings_initializer: a Keras initializer, called separately for each column.
        aggregation: "concat" puts the columns side by side; "stack" one below the other, which
            requires equal widths, 1 for continuous columns.
        validate_ids: checks ids and row lengths in every call, for debugging; slow on a GPU.
        indicators: column name -> cardinality, of columns that become the counts of their ids.
        shared: column name -> the column of `embedding_sizes` whose table it shares, of the same
            size and combiner; `shared_embeddings` among feature columns say it themselves.
        skip_negative: see `EmbeddingCollection`; always so for feature columns.
        shard: how the tables are divided among workers: see `EmbeddingCollection`.
        **kwargs: arguments of `keras.layers.Layer`, and `fits`, which `train` records.

    Call arguments:
        inputs: a dictionary: ids (N, 1) or a pair (values (nnz, 1), nnzs (N, 1)) for each column of
            `embedding_sizes` and `indicators`, numbers (N, k) for each column of `continuous`, and
            for k > 1 alternatively (N * k, 1) or a pair whose rows all have length k. Further
            columns are ignored. For ids out of range see `EmbeddingCollection`; an indicator does
            not count them.

    Output shape: (N, sum of the widths) or, stacked, (N, columns, width), in the layer's compute
    dtype.

    Attributes:
        embedding_tables: column name -> a copy of the vectors of its ids, (cardinality, width).
        embeddings: the `EmbeddingCollection`, None where no column is embedded.

    Raises:
        TrainingError: no column at all, a column named twice, a column that is missing from the
            inputs or has another shape, different widths with "stack", or a feature column that the
            layer cannot honour.
        tf.errors.InvalidArgumentError: a list of numbers with a length other than k.

    Example:
        >>> layer = DenseFeatures({"userId": (100, 16), "genres": (22, 8)}, ["age"])
        >>> layer({
        ...     "age": tf.constant([[31.0], [7.0]]),
        ...     "userId": tf.constant([[5], [9]]),
        ...     "genres": (tf.constant([[3], [4], [5]]), tf.constant([[1], [2]])),
        ... }).shape
        TensorShape([2, 25])
        >>> user = tf.feature_column.categorical_column_with_identity("userId", 100)
        >>> layer = DenseFeatures([tf.feature_column.embedding_column(user, 16)])
        >>> layer({"userId": tf.constant([[5], [9]])}).shape
        TensorShape([2, 16])
    """

    def __init__(
        self,
        embedding_sizes: Mapping[str, tuple[int, int]] | Iterable[Any],
        continuous: Iterable[str] | Mapping[str, int | None] = (),
        combiner: str | Mapping[str, str] = "mean",
        embeddings_initializer: Any = "uniform",
        aggregation: str = "concat",
        validate_ids: bool = False,
        *,
        indicators: Mapping[str, int] | None = None,
        shared: Mapping[str, str] | None = None,
        skip_negative: bool = False,
        shard: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(embedding_sizes, Mapping):
            if isinstance(continuous, str):  # NVTabular's second argument
                aggregation, continuous = continuous, ()
            if continuous or combiner != "mean" or indicators or shared:
                raise TrainingError(
                    "Expected feature columns alone, which say the rest. Received: continuous, "
                    "combiner, indicators or shared as well."
                )
            facts = read_dense(embedding_sizes)
            embedding_sizes, combiner = facts.sizes, facts.combiners
            indicators, continuous, shared = facts.indicators, facts.numbers, facts.shared
            skip_negative = True
        self.continuous = widths_of(continuous)
        self.indicators = [(name, plain(rows)) for name, rows in (indicators or {}).items()]
        self.aggregation = aggregation
        self.embeddings_initializer = initializer_of(embeddings_initializer)
        sizes: Mapping[str, tuple[int, int]] = plain(embedding_sizes)
        check_sizes(sizes)
        self._check(sizes)
        self._validate_ids = validate_ids
        # XLA compiles for fixed shapes, which lists change in each batch, and drops checks.
        self.supports_jit = not self.indicators and set(self.continuous.values()) <= {None, 1}
        self.embeddings = None
        if sizes:
            self.embeddings = EmbeddingCollection(
                sizes,
                combiner,
                self.embeddings_initializer,
                validate_ids,
                shared,
                skip_negative=skip_negative,
                shard=shard,
                name="embeddings",
                dtype=self.dtype_policy,
                trainable=self.trainable,
            )

    def _check(self, sizes: Mapping[str, tuple[int, int]]) -> None:
        for name, rows in self.indicators:
            check_size(name, rows, 1)
        names = [*sizes, *dict(self.indicators), *self.continuous]
        if not names or len(set(names)) != len(names):
            raise TrainingError(
                "Expected at least one column, and each once, in embedding_sizes, indicators or "
                f"continuous. Received: {listed(names) or 'none'}."
            )
        if self.aggregation not in AGGREGATIONS:
            raise TrainingError(
                f"Expected an aggregation among {', '.join(AGGREGATIONS)}. "
                f"Received: {self.aggregation!r}."
            )
        widths = {name: width for name, (_, width) in sizes.items()}
        widths |= dict(self.indicators)
        widths |= {name: width or 1 for name, width in self.continuous.items()}
        if self.aggregation == "stack" and len(set(widths.values())) > 1:
            raise TrainingError(
                "Expected columns of one width to stack, where continuous ones have 1 by default. "
                f"Received: {listed(f'{name} of {width}' for name, width in widths.items())}."
            )

    @property
    def validate_ids(self) -> bool:
        """Whether ids and row lengths are checked in every call; settable."""
        return self._validate_ids

    @validate_ids.setter
    def validate_ids(self, value: bool) -> None:
        self._validate_ids = value
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
        """Create the tables."""
        if self.embeddings is not None:
            self.embeddings.build()

    def call(self, inputs: Mapping[str, Any]) -> tf.Tensor:
        """The tensor of all columns; see the class."""
        check_present(self.name, self._names, inputs)
        parts = list(self._embedded(inputs))
        stack = self.aggregation == "stack"
        if not stack:
            parts = [tf.reshape(part, [-1, part.shape[1] * part.shape[2]]) for part in parts]
        for column in self._matrices(inputs):
            parts.append(column[:, tf.newaxis] if stack else column)
        return tf.concat(parts, axis=1) if len(parts) > 1 else parts[0]

    @property
    def _names(self) -> list[str]:
        return [*self._widths, *dict(self.indicators), *self.continuous]

    def _matrices(self, inputs: Mapping[str, Any]) -> Iterator[tf.Tensor]:
        """Each column without a table, (N, width)."""
        for name, rows in self.indicators:
            yield count_ids(
                name, inputs[name], rows, self.compute_dtype, validate=self.validate_ids
            )
        for name, width in self.continuous.items():
            yield number_rows(name, inputs[name], width, self.compute_dtype)

    def _embedded(self, inputs: Mapping[str, Any]) -> Iterator[tf.Tensor]:
        """Vectors (N, columns, width), in order; neighbours looked up together stay joined."""
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
        check_present(self.name, self._names, input_shape)
        widths = [*self._widths.values(), *dict(self.indicators).values()]
        rows = [rows_of(input_shape[name]) for name in self._names[: len(widths)]]
        for name, width in self.continuous.items():
            widths.append(number_count(name, input_shape[name], width))
            # A flat vector does not have the batch's number of rows.
            if width in (None, 1) or input_shape[name][1] == width:
                rows.append(input_shape[name][0])
        row_count = rows[0] if rows else None
        if self.aggregation == "stack":
            return (row_count, len(widths), widths[0])
        return (row_count, sum(widths))

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able."""
        sizes = [] if self.embeddings is None else self.embeddings.embedding_sizes
        return {
            **super().get_config(),
            # The tables are all its weights, and may be frozen by themselves.
            "trainable": self.trainable and (self.embeddings is None or self.embeddings.trainable),
            "embedding_sizes": [list(entry) for entry in sizes],
            "indicators": [list(entry) for entry in self.indicators],
            "continuous": [list(entry) for entry in self.continuous.items()],
            "combiner": "mean" if self.embeddings is None else self.embeddings.combiner,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "aggregation": self.aggregation,
            "validate_ids": self.validate_ids,
            "shared": {} if self.embeddings is None else dict(self.embeddings.shared),
            "skip_negative": self.embeddings is not None and self.embeddings.skip_negative,
            "shard": None if self.embeddings is None else self.embeddings.shard,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> DenseFeatures:
        """The layer described by a result of `get_config`."""
        sizes = {name: (rows, width) for name, rows, width in config["embedding_sizes"]}
        mappings = {name: dict(config[name]) for name in ("indicators", "continuous")}
        return cls(**{**config, **mappings, "embedding_sizes": sizes})


def _runs(places: list[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Join adjacent positions within a block: (block, first, one beyond the last).

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
