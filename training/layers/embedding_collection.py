"""Embeddings of many columns, with one table for all columns of one width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.layers.embedding_bag import check_size, rows_of
from training.layers.takes_lists import TakesLists
from training.sharding.division import division
from training.sharding.plan import check_shard
from training.tables.bags import check_combiner
from training.tables.initial_table import initializer_of
from training.tables.shared_table import SharedTable
from workflow.schema.names import did_you_mean, listed
from workflow.schema.own_names import OwnNames
from workflow.schema.python_number import plain


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class EmbeddingCollection(TakesLists, metaclass=OwnNames):
    """Embeddings of many columns of ids, single values and lists.

    The tables of all columns of one width are one variable, so that a step gathers, scatters and
    updates once instead of once for each column.

    An id out of range takes its column's row for unknown ids, on every device: zeros, unless such
    ids occurred in training, which then share one trained vector.

    Args:
        embedding_sizes: column name -> (cardinality, width), single values and lists alike.
        combiner: how the vectors of a list become one: "sum", "mean" or "sqrtn", for all columns
            or as column -> combiner. The columns of one width and one combiner share a table.
        embeddings_initializer: a Keras initializer, called separately for each column.
        validate_ids: checks ids and row lengths in every call, for debugging; slow on a GPU.
        shared: column -> the column whose table it shares, of the same size and combiner.
        skip_negative: whether negative ids of a list neither count nor are trained, as in
            `tf.feature_column`.
        shard: how the tables are divided among the workers that `training.join_workers` has
            connected; one process alone holds them whole. "table": each on one worker, in balance;
            "row": rows of each table on all workers in turn; "column": a part of each vector on each
            worker; "auto": large tables by row, small ones whole; None: each worker holds all. All
            workers must make the layer, call it, and see `training.whole_tables` to save it.
        **kwargs: arguments of `keras.layers.Layer`, and `fits`, which `train` records.

    Call arguments:
        inputs: a dictionary with ids (N, 1), or a pair (values (nnz, 1), nnzs (N, 1)), for each
            column. Further columns are ignored.

    Output: a dictionary of column -> (N, width), in the layer's compute dtype.

    Attributes:
        embedding_tables: column -> a copy of the vectors of its ids, (cardinality, width).

    Raises:
        TrainingError: no column, an invalid size, a column that is missing from the inputs or has
            another shape, or no memory for a table. An unknown `shard`, a width that "column" cannot
            divide, or tables too large for all workers.
        tf.errors.InvalidArgumentError: as in `EmbeddingBag`.

    Example:
        >>> layer = EmbeddingCollection({"userId": (100, 16), "genres": (22, 16)})
        >>> vectors = layer({
        ...     "userId": tf.constant([[5], [9]]),
        ...     "genres": (tf.constant([[3], [4], [5]]), tf.constant([[1], [2]])),
        ... })
        >>> vectors["genres"].shape
        TensorShape([2, 16])
    """

    def __init__(
        self,
        embedding_sizes: Mapping[str, tuple[int, int]],
        combiner: str | Mapping[str, str] = "mean",
        embeddings_initializer: Any = "uniform",
        validate_ids: bool = False,
        shared: Mapping[str, str] | None = None,
        *,
        skip_negative: bool = False,
        shard: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        embedding_sizes = plain(embedding_sizes)
        check_sizes(embedding_sizes)
        if not embedding_sizes:
            raise TrainingError("Expected embedding sizes of at least one column. Received: none.")
        # A list of pairs, since Keras returns the dictionaries of a saved layer sorted by key.
        self.embedding_sizes = [
            (name, rows, width) for name, (rows, width) in embedding_sizes.items()
        ]
        self.combiner = _check_combiners(combiner, embedding_sizes)
        self.embeddings_initializer = initializer_of(embeddings_initializer)
        self.validate_ids = validate_ids
        self.shared = _check_shared(shared or {}, embedding_sizes, self.combiner)
        self.skip_negative = skip_negative
        self.shard = check_shard(shard)
        self._tables = self._make_tables()

    @property
    def widths(self) -> dict[str, int]:
        """The width of each column's vectors."""
        return {name: width for name, _, width in self.embedding_sizes}

    def _make_tables(self) -> list[SharedTable]:
        together: dict[tuple[int, str], dict[str, int]] = {}
        for name, rows, width in self.embedding_sizes:
            combiner = self.combiner if isinstance(self.combiner, str) else self.combiner[name]
            together.setdefault((width, combiner), {})[name] = rows
        by_column = not isinstance(self.combiner, str)
        sizes = {
            name: (rows + 1, width)
            for name, rows, width in self.embedding_sizes
            if name not in self.shared
        }
        divided = division(sizes, self.shard)
        return [
            SharedTable(
                columns,
                width,
                self.embeddings_initializer,
                combiner,
                {name: owner for name, owner in self.shared.items() if name in columns},
                name=f"width_{width}_{combiner}" if by_column else f"width_{width}",
                dtype=self.dtype_policy,
                trainable=self.trainable,
                skip_negative=self.skip_negative,
                **divided,
            )
            for (width, combiner), columns in together.items()
        ]

    @property
    def embedding_tables(self) -> dict[str, tf.Tensor]:
        """The vectors of each column's ids, once the layer is built."""
        by_name = {
            name: table.table(name) for table in self._tables for name in table.cardinalities
        }
        return {name: by_name[name] for name in self.widths}

    def set_embedding_table(self, column: str, vectors: Any) -> None:
        """Set the vectors of a column's ids, (cardinality, width), for example pre-trained ones.

        Raises:
            TrainingError: no such column, vectors of another shape, or the layer is not built yet.
        """
        if column not in self.widths:
            raise TrainingError(
                f"Expected a column among {listed(self.widths)}. Received: {column!r}."
            )
        next(table for table in self._tables if column in table.cardinalities).assign(
            column, vectors
        )

    def build(self, input_shape: Any = None) -> None:  # noqa: ARG002 - tables need no shape
        """Create the tables."""
        for table in self._tables:
            table.build()

    def call(self, inputs: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """The vectors of each column; see the class."""
        vectors = {
            name: block[:, place]
            for names, block in self.blocks(inputs)
            for place, name in enumerate(names)
        }
        return {name: vectors[name] for name in self.widths}

    def blocks(self, inputs: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], tf.Tensor]]:
        """The vectors as they were looked up: columns and their vectors (N, columns, width).

        A caller that takes whole blocks need not split and rejoin them.
        """
        check_present(self.name, list(self.widths), inputs)
        for table in self._tables:
            table.validate_ids = self.validate_ids
            columns = {name: inputs[name] for name in table.cardinalities}
            lists = {
                name: self._pair(name, pair)
                for name, pair in columns.items()
                if isinstance(pair, (tuple, list))
            }
            single = {name: ids for name, ids in columns.items() if name not in lists}
            if single:
                yield tuple(single), tf.cast(table.single(single), self.compute_dtype)
            if lists:
                vectors = tf.transpose(table.bags(lists), [1, 0, 2])
                yield tuple(lists), tf.cast(vectors, self.compute_dtype)

    def _pair(self, column: str, tensors: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        if len(tensors) != 2:
            raise TrainingError(
                f"Expected ids, or a pair (values, nnzs), for {column!r}. "
                f"Received: {len(tensors)} tensors."
            )
        return tensors[0], tensors[1]

    def compute_output_shape(self, input_shape: Mapping[str, Any]) -> dict[str, Any]:
        """Column -> (N, width)."""
        check_present(self.name, list(self.widths), input_shape)
        return {name: (rows_of(input_shape[name]), width) for name, width in self.widths.items()}

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able."""
        return {
            **super().get_config(),
            "embedding_sizes": [list(entry) for entry in self.embedding_sizes],
            "combiner": self.combiner if isinstance(self.combiner, str) else dict(self.combiner),
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "validate_ids": self.validate_ids,
            "shared": dict(self.shared),
            "skip_negative": self.skip_negative,
            "shard": self.shard,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> EmbeddingCollection:
        """The layer described by a result of `get_config`."""
        sizes = {name: (rows, width) for name, rows, width in config["embedding_sizes"]}
        return cls(**{**config, "embedding_sizes": sizes})


def _check_combiners(
    combiner: str | Mapping[str, str], columns: Iterable[str]
) -> str | dict[str, str]:
    """One combiner for all columns, or one for each."""
    if not isinstance(combiner, Mapping):
        return check_combiner(combiner)
    if combiner.keys() != set(columns):
        raise TrainingError(
            f"Expected a combiner for each of {listed(columns)}. "
            f"Received: for {listed(combiner) or 'none'}."
        )
    return {name: check_combiner(each) for name, each in combiner.items()}


def _check_shared(
    shared: Mapping[str, str], sizes: Mapping[str, tuple[int, int]], combiner: str | dict[str, str]
) -> dict[str, str]:
    """The columns without a table of their own, each with the column whose table it shares."""
    for name, owner in shared.items():
        has_table = name in sizes and owner in sizes and owner not in shared
        combiners = combiner if isinstance(combiner, dict) else {}
        alike = has_table and (tuple(sizes[name]), combiners.get(name)) == (
            tuple(sizes[owner]),
            combiners.get(owner),
        )
        if not alike:
            raise TrainingError(
                "Expected in shared columns of embedding_sizes, each with another one that has a "
                f"table, the same size and combiner. Received: {name!r} with {owner!r}, of "
                f"{sizes.get(name, 'no size')} and {sizes.get(owner, 'no size')}."
            )
    return dict(shared)


def check_sizes(sizes: Any) -> None:
    """Raise TrainingError unless `sizes` maps column -> (cardinality, width), integers from 1."""
    if not isinstance(sizes, Mapping):
        raise TrainingError(
            "Expected embedding sizes as a dictionary of column -> (cardinality, width), such as "
            f"workflow.get_embedding_sizes gives. Received: {sizes!r}. TensorFlow's feature columns "
            "are for training.layers.DenseFeatures."
        )
    for name, size in sizes.items():
        if not isinstance(size, (tuple, list)) or len(size) != 2:
            raise TrainingError(
                f"Expected the embedding size of {name!r} as (cardinality, width). "
                f"Received: {size!r}."
            )
        check_size(name, *size)


def check_present(layer: str, wanted: list[str], inputs: Mapping[str, Any]) -> None:
    """Raise TrainingError if a column is missing from the features passed to a layer."""
    missing = [name for name in wanted if name not in inputs]
    if missing:
        raise TrainingError(
            f"Expected the columns {listed(wanted)} in the features of {layer!r}. "
            f"Received: {listed(inputs)}; missing: {listed(missing)}."
            + did_you_mean(missing, inputs)
        )
