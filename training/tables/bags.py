"""Combination of the vectors of list columns into one vector a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import tensorflow as tf

from training.errors import TrainingError

COMBINERS = ("sum", "mean", "sqrtn")
# Elements that one multiprocessor of a GPU sums; about the square root of the longest tensors.
_BLOCK = 2048
_FOR_FEW_ROWS: ContextVar[bool] = ContextVar("for_few_rows", default=False)


@contextmanager
def for_few_rows() -> Iterator[None]:
    """Build graphs with a third of the operations, whose overhead dominates a request of one row.

    Results are identical bit for bit. On a GPU these graphs sum a whole tensor on one
    multiprocessor and take lengths from the host, which slows training on many rows.
    """
    before = _FOR_FEW_ROWS.set(True)
    try:
        yield
    finally:
        _FOR_FEW_ROWS.reset(before)


def is_for_few_rows() -> bool:
    """Whether the graph under construction is for few rows."""
    return _FOR_FEW_ROWS.get()


def check_combiner(combiner: str) -> str:
    """The combiner, if it is valid.

    Raises:
        TrainingError: an unknown combiner.
    """
    if combiner not in COMBINERS:
        raise TrainingError(
            f"Expected a combiner among {', '.join(COMBINERS)}. Received: {combiner!r}."
        )
    return combiner


def combine(vectors: tf.Tensor, rows: tf.Tensor, lengths: tf.Tensor, combiner: str) -> tf.Tensor:
    """Add up the vectors of each row; an empty row gets zeros.

    A row's vectors are added in their order, so its result is the same bit for bit alone and in a
    batch.

    Args:
        vectors: (values, width).
        rows: int64 (values,), the row of each vector, ascending.
        lengths: (rows,), the number of vectors of each row, of any numeric dtype.
        combiner: "sum", "mean" or "sqrtn" (the sum divided by the square root of the count).

    Returns:
        (rows, width), of the dtype of `vectors`.
    """
    bags = _sum_rows(vectors, rows, tf.size(lengths))
    if combiner != "sum":
        counts = tf.cast(tf.maximum(lengths, 1), bags.dtype)
        divisor = counts if combiner == "mean" else tf.sqrt(counts)
        bags /= divisor[:, tf.newaxis]
    return tf.ensure_shape(bags, [None, vectors.shape[1]])


def _sum_rows(vectors: tf.Tensor, rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    # Captured: arguments pass through an operation on the GPU, and count, a shape, is for the host.
    @tf.custom_gradient
    def summed(vectors: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        # This kernel adds a row's vectors in order and gives rows without vectors zeros.
        bags = tf.raw_ops.SparseSegmentSumWithNumSegments(
            data=vectors,
            indices=_positions(rows),
            segment_ids=rows,
            num_segments=count,
        )
        # TensorFlow's own gradient sorts and sums, as indices in general need.
        return bags, lambda upstream: tf.gather(upstream, rows)

    return summed(vectors)


def row_of_value(lengths: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """The row that each value of a list column belongs to.

    Marks where rows end and counts the marks, so the cost depends on the numbers of rows and values
    only, however long the longest row is. The number of values comes from their shape, which is
    known without waiting for a GPU.

    Args:
        lengths: int64 row lengths, shape (N,).
        values: a tensor with as many rows as there are values.

    Returns:
        int64 of shape (values,), ascending. On a GPU, if the lengths add up to less than the number
        of values, surplus values get the row N, which does not exist; if they add up to more,
        surplus lengths get no values.

    Raises:
        tf.errors.InvalidArgumentError: on the CPU, lengths that do not add up to the number of
            values. On a GPU the check would wait for the GPU in every step.

    Example:
        >>> row_of_value(tf.constant([2, 0, 1], tf.int64), tf.constant([7, 8, 9])).numpy()
        array([0, 0, 2])
    """
    ends = _running_sum(lengths)[:, tf.newaxis]
    marks = tf.zeros(tf.shape(values)[:1] + 1, tf.float64)
    marks = tf.tensor_scatter_nd_add(marks, ends, tf.ones_like(lengths, tf.float64))
    rows = _running_sum(marks)[:-1]
    # Adds zero. On the CPU the gather raises for a row that does not exist.
    return rows + tf.minimum(tf.gather(lengths, rows), 0)


def length_of(tensor: tf.Tensor) -> tf.Tensor:
    """The length of a tensor (n,) as int64, computed on the tensor's device.

    TensorFlow keeps shapes on the host. A number copied from there to a GPU arrives after all
    queued work, and delays the operations that need it.

    Example:
        >>> int(length_of(tf.constant([7.0, 8.0, 9.0])))
        3
    """
    if is_for_few_rows():
        return tf.size(tensor, tf.int64)
    # A sum of floats, since a GPU cannot sum all integer types.
    return tf.cast(tf.reduce_sum(tf.ones_like(tensor, tf.float64)), tf.int64)


def _positions(tensor: tf.Tensor) -> tf.Tensor:
    """0, 1, 2, ... up to the length of a tensor, int64, computed on the tensor's device.

    `tf.range` would be computed on the host and copied.
    """
    if is_for_few_rows():
        return tf.range(length_of(tensor))
    return _running_sum(tf.ones_like(tensor)) - 1


def _running_sum(numbers: tf.Tensor) -> tf.Tensor:
    """The cumulative sum of whole numbers (n,) as int64.

    On a GPU TensorFlow sums floats only (exact up to 2**53), and each row of a matrix on one
    multiprocessor. So blocks are summed first, in parallel, and then their totals.
    """
    numbers = tf.cast(numbers, tf.float64)
    if is_for_few_rows():
        return tf.cast(tf.cumsum(numbers), tf.int64)
    count = tf.shape(numbers)[0]
    padded = tf.pad(numbers, [[0, -count % _BLOCK]])
    sums = tf.cumsum(tf.reshape(padded, [-1, _BLOCK]), axis=1)
    before = tf.cumsum(sums[:, -1:], exclusive=True)
    return tf.cast(tf.reshape(sums + before, [-1])[:count], tf.int64)
