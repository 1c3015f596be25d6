"""An embedding of single values and of lists, without ragged tensors."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError

COMBINERS = ("sum", "mean", "sqrtn")


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class EmbeddingBag(keras.layers.Layer):
    """Looks ids up in one table, and combines the vectors of a list into one vector.

    Called with ids of shape (N, 1) it gives each row its vector. Called with a pair
    `(values, nnzs)`, where nnzs are row lengths, it combines the vectors of each row's values;
    an empty row gives zeros. A row's result is the same to the last bit alone and in a batch.

    Differs from `keras.layers.Embedding` in two ways that matter for large tables: the table is
    gathered from and never read as a whole, and under mixed precision it is the looked-up
    vectors that are cast, not the table.

    Args:
        input_dim: the number of rows of the table; ids are 0 .. input_dim - 1.
        output_dim: the width of a vector.
        combiner: what makes one vector of many: "sum", "mean" or "sqrtn" (the sum divided by
            the square root of the count).
        embeddings_initializer: a Keras initializer for the table.
        **kwargs: those of `keras.layers.Layer`.

    Call arguments:
        inputs: ids (N, 1), or a pair of values (nnz, 1) and row lengths (N, 1), each of an
            integer dtype of its own.

    Output shape: (N, output_dim), in the layer's compute dtype.

    Raises:
        TrainingError: a size below one, an unknown combiner, or inputs of another form.
        tf.errors.InvalidArgumentError: on the CPU, an id out of range, or row lengths that do
            not add up to the number of values.

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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not (isinstance(input_dim, int) and isinstance(output_dim, int)) or (
            min(input_dim, output_dim) < 1
        ):
            raise TrainingError(
                f"Expected a table {self.name!r} of at least one row and one column, as integers. "
                f"Received: input_dim={input_dim!r}, output_dim={output_dim!r}."
            )
        if combiner not in COMBINERS:
            raise TrainingError(
                f"Expected a combiner among {', '.join(COMBINERS)}. Received: {combiner!r}."
            )
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.combiner = combiner
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, input_shape: Any = None) -> None:  # noqa: ARG002 - the table needs no shape
        """Creates the table, `embeddings`, of shape (input_dim, output_dim)."""
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.input_dim, self.output_dim),
            initializer=self.embeddings_initializer,
            # Otherwise mixed precision casts the whole table in every step.
            autocast=False,
        )
        self.built = True

    def call(self, inputs: Any) -> tf.Tensor:
        """The vectors of the rows; see the class."""
        if isinstance(inputs, (tuple, list)):
            if len(inputs) != 2:
                raise TrainingError(
                    f"Expected ids, or a pair (values, nnzs), for {self.name!r}. "
                    f"Received: {len(inputs)} tensors."
                )
            return self._bags(*inputs)
        return tf.cast(self._vectors("ids", inputs), self.compute_dtype)

    def _bags(self, values: tf.Tensor, nnzs: tf.Tensor) -> tf.Tensor:
        vectors = self._vectors("values", values)
        lengths = tf.cast(self._flat("nnzs", nnzs), tf.int64)
        # Its kernel adds a row's vectors in order and fills rows that have none with zeros.
        bags = tf.raw_ops.SparseSegmentSumWithNumSegments(
            data=vectors,
            indices=tf.range(tf.shape(vectors)[0]),
            segment_ids=row_of_value(lengths),
            num_segments=tf.size(lengths),
        )
        if self.combiner != "sum":
            counts = tf.cast(tf.maximum(lengths, 1), bags.dtype)
            divisor = counts if self.combiner == "mean" else tf.sqrt(counts)
            bags /= divisor[:, tf.newaxis]
        bags = tf.ensure_shape(bags, [None, self.output_dim])
        return tf.cast(bags, self.compute_dtype)

    def _vectors(self, what: str, ids: tf.Tensor) -> tf.Tensor:
        flat = self._flat(what, ids)
        if flat.dtype not in (tf.int32, tf.int64):
            flat = tf.cast(flat, tf.int64)
        return tf.gather(self.embeddings.value, flat)

    def _flat(self, what: str, tensor: tf.Tensor) -> tf.Tensor:
        if len(tensor.shape) != 2 or tensor.shape[1] != 1 or not tensor.dtype.is_integer:
            raise TrainingError(
                f"Expected {what} of shape (rows, 1) and an integer dtype for {self.name!r}. "
                f"Received: shape {tuple(tensor.shape)}, dtype {tensor.dtype.name}."
            )
        return tf.reshape(tensor, [-1])

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, int]:
        """(N, output_dim), where N are the rows of the ids or of the nnzs."""
        pair = bool(input_shape) and isinstance(input_shape[0], (tuple, list))
        rows = input_shape[1][0] if pair else input_shape[0]
        return (rows, self.output_dim)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able."""
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "combiner": self.combiner,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }


def row_of_value(lengths: tf.Tensor) -> tf.Tensor:
    """The row that each value of a list column belongs to.

    Marks where rows end and counts the marks, so the cost is that of the rows and values,
    however long the longest row is. The result is as long as the lengths' sum: where values are
    more or fewer, the operation that consumes both fails instead of mixing rows up.

    Args:
        lengths: int32 or int64 row lengths, shape (N,).

    Returns:
        Integers of the dtype of `lengths`, shape (sum of lengths,), ascending.

    Example:
        >>> row_of_value(tf.constant([2, 0, 1])).numpy()
        array([0, 0, 2], dtype=int32)
    """
    total = tf.reduce_sum(lengths)
    ends = tf.cumsum(lengths)[:, tf.newaxis]
    marks = tf.zeros(tf.reshape(total + 1, [1]), lengths.dtype)
    marks = tf.tensor_scatter_nd_add(marks, ends, tf.ones_like(lengths))
    return tf.cumsum(marks)[:total]
