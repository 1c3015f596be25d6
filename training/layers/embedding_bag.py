"""An embedding of single values and of lists, without ragged tensors."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.layers.takes_lists import TakesLists
from training.sharding.division import division
from training.sharding.plan import check_shard
from training.tables.bags import check_combiner
from training.tables.initial_table import initializer_of
from training.tables.shared_table import SharedTable
from workflow.schema.own_names import OwnNames
from workflow.schema.python_number import plain


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class EmbeddingBag(TakesLists, metaclass=OwnNames):
    """Embeddings from one table, with the vectors of a list combined into one vector.

    Called with ids of shape (N, 1) it returns a vector for each row. Called with a pair `(values,
    nnzs)`, where nnzs are row lengths, it combines the vectors of each row's values; an empty row
    gives zeros. A row's result is the same bit for bit alone and in a batch.

    Differs from `keras.layers.Embedding` in two ways that matter for large tables: the table is
    only gathered from, never read as a whole, and mixed precision casts the looked-up vectors, not
    the table. For many columns `DenseFeatures` and `EmbeddingCollection` are faster: they look up
    all columns of one width at once.

    An id out of range takes the row for unknown ids, on every device: zeros, unless such ids
    occurred in training, which then share one trained vector.

    Args:
        input_dim: the number of ids, which are 0 .. input_dim - 1.
        output_dim: the width of a vector.
        combiner: how to combine vectors: "sum", "mean" or "sqrtn" (the sum divided by the square
            root of the count).
        embeddings_initializer: a Keras initializer for the table.
        validate_ids: checks ids and row lengths in every call, for debugging; slow on a GPU.
        shard: how the table is divided among workers: see `EmbeddingCollection`.
        **kwargs: arguments of `keras.layers.Layer`, and `fits`, which `train` records.

    Call arguments:
        inputs: ids (N, 1), or a pair of values (nnz, 1) and row lengths (N, 1), each of any integer
            dtype.

    Output shape: (N, output_dim), in the layer's compute dtype.

    Attributes:
        embeddings: the variable, (input_dim + 1, output_dim), the row for unknown ids last, or this
            worker's part of it.
        table: a copy of the vectors of the ids, (input_dim, output_dim).

    Raises:
        TrainingError: a size below one, an unknown combiner or `shard`, inputs of another shape, or a
            table too large for all workers.
        tf.errors.InvalidArgumentError: on the CPU, row lengths that do not add up to the number of
            values; with `validate_ids` on every device, also for ids out of range.

    Example:
        >>> bag = EmbeddingBag(22, 16, combiner="mean")
        >>> values, nnzs = tf.constant([[3], [7], [3]]), tf.constant([[2], [0], [1]])
        >>> bag((values, nnzs)).shape
        TensorShape([3, 16])
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        combiner: str = "mean",
        embeddings_initializer: Any = "uniform",
        validate_ids: bool = False,
        *,
        shard: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        input_dim, output_dim = plain((input_dim, output_dim))
        check_size(self.name, input_dim, output_dim)
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.combiner = check_combiner(combiner)
        self.embeddings_initializer = initializer_of(embeddings_initializer)
        self.validate_ids = validate_ids
        self.shard = check_shard(shard)
        self._table = SharedTable(
            {self.name: input_dim},
            output_dim,
            self.embeddings_initializer,
            combiner,
            name="table",
            dtype=self.dtype_policy,
            trainable=self.trainable,
            **division({self.name: (input_dim + 1, output_dim)}, self.shard),
        )

    @property
    def embeddings(self) -> keras.Variable:
        """The variable, (input_dim + 1, output_dim), or this worker's part of it."""
        return self._table.embeddings

    @property
    def table(self) -> tf.Tensor:
        """The vectors of the ids, (input_dim, output_dim)."""
        return self._table.table(self.name)

    def build(self, input_shape: Any = None) -> None:  # noqa: ARG002 - the table needs no shape
        """Create the table."""
        self._table.build()

    def call(self, inputs: Any) -> tf.Tensor:
        """The vectors of the rows; see the class."""
        self._table.validate_ids = self.validate_ids
        if not isinstance(inputs, (tuple, list)):
            vectors = self._table.single({self.name: inputs})[:, 0]
        elif len(inputs) == 2:
            vectors = self._table.bags({self.name: tuple(inputs)})[0]
        else:
            raise TrainingError(
                f"Expected ids, or a pair (values, nnzs), for {self.name!r}. "
                f"Received: {len(inputs)} tensors."
            )
        return tf.cast(vectors, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, int]:
        """(N, output_dim), where N is the number of rows of the ids or of the nnzs."""
        return (rows_of(input_shape), self.output_dim)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able."""
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "combiner": self.combiner,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "validate_ids": self.validate_ids,
            "shard": self.shard,
        }


def check_size(name: str, rows: Any, width: Any) -> None:
    """Raise TrainingError for an invalid size of a table."""
    if not (isinstance(rows, int) and isinstance(width, int)) or min(rows, width) < 1:
        raise TrainingError(
            f"Expected a table {name!r} of at least one row and one column, as integers. "
            f"Received: input_dim={rows!r}, output_dim={width!r}."
        )


def rows_of(shape: Any) -> int | None:
    """The number of rows of a column's shape, or of the shapes of its values and nnzs."""
    pair = bool(shape) and isinstance(shape[0], (tuple, list))
    rows: int | None = shape[1][0] if pair else shape[0]
    return rows
