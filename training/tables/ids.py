"""Ids of columns: checks, and conversion to rows of a shared table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from training.errors import TrainingError
from training.gpu import has_gpu


def flat_integers(layer: str, what: str, tensor: Any) -> tf.Tensor:
    """A column (rows, 1) of integers as int64 (rows,).

    Every integer dtype becomes int64: most int32 operations make TensorFlow copy to the host and
    back, because it uses int32 for shapes. A uint64 beyond int64 becomes negative, and so stays out
    of every table's range.

    Raises:
        TrainingError: another shape, or a dtype that is not an integer.
    """
    _check(layer, what, tensor)
    return tf.reshape(tf.cast(tensor, tf.int64), [-1])


def side_by_side(columns: Mapping[str, Any]) -> tf.Tensor:
    """Columns of ids, each (rows, 1), as (rows, columns), of the dtypes of `one_below_another`.

    One operation, where that takes two and a transposition; slower for many rows.

    Raises:
        TrainingError: as `flat_integers`.
    """
    tensors = _alike(columns)
    ids = tf.concat(tensors, axis=1) if len(tensors) > 1 else tensors[0]
    return ids if ids.dtype == tf.int32 else tf.cast(ids, tf.int64)


def one_below_another(columns: Mapping[str, Any]) -> tf.Tensor:
    """Columns of ids, each (rows, 1), as (columns, rows): int64, or int32 on a CPU if all are.

    Raises:
        TrainingError: as `flat_integers`.
    """
    tensors = _alike(columns)
    ids = tf.reshape(tf.concat(tensors, axis=0), [len(tensors), -1])
    # One cast of all columns takes a tenth of the time of one for each.
    return ids if ids.dtype == tf.int32 else tf.cast(ids, tf.int64)


def _alike(columns: Mapping[str, Any]) -> list[tf.Tensor]:
    """The columns in one dtype."""
    for name, tensor in columns.items():
        _check(name, "ids", tensor)
    tensors = list(columns.values())
    # On a GPU, integers narrower than int64 would be joined on the host.
    if len({tensor.dtype for tensor in tensors}) > 1 or has_gpu():
        return [tf.cast(tensor, tf.int64) for tensor in tensors]
    return tensors


def _check(layer: str, what: str, tensor: Any) -> None:
    if len(tensor.shape) != 2 or tensor.shape[1] != 1 or not tensor.dtype.is_integer:
        raise TrainingError(
            f"Expected {what} of shape (rows, 1) and an integer dtype for {layer!r}. "
            f"Received: shape {tuple(tensor.shape)}, dtype {tensor.dtype.name}."
        )


def table_rows(ids: tf.Tensor, cardinality: Any, offset: Any) -> tf.Tensor:
    """The table row of each id, where a column has `cardinality` rows and one for unknown ids.

    Args:
        ids: int64 or int32, shape (rows,) for one column, or of several columns.
        cardinality: ids of the column are 0 .. cardinality - 1; of several, one for each, along the
            axis of the columns.
        offset: the first row of the column; its row for unknown ids follows the rows of its ids.

    Example:
        >>> table_rows(tf.constant([0, 2, 3, -1], tf.int64), 3, 10).numpy()
        array([10, 12, 13, 13])
    """
    cardinality = tf.constant(cardinality, ids.dtype)
    in_range = tf.logical_and(ids >= 0, ids < cardinality)
    return tf.where(in_range, ids, cardinality) + tf.constant(offset, ids.dtype)


def check_range(column: str, ids: tf.Tensor, cardinality: int) -> tf.Tensor:
    """The ids, after a check of their range.

    Raises:
        tf.errors.InvalidArgumentError: when the graph runs, on any device.
    """
    in_range = tf.reduce_all(tf.logical_and(ids >= 0, ids < cardinality))
    message = (
        f"Expected ids of column {column} in 0 .. {cardinality - 1}. Take the cardinality from "
        "workflow.get_embedding_sizes, and transform the data with that same workflow. Received:"
    )
    return seen(ids, in_range, [message, tf.reduce_min(ids), tf.reduce_max(ids)])


def check_lengths(column: str, lengths: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """The lengths, after a check that they add up to the number of values.

    Raises:
        tf.errors.InvalidArgumentError: when the graph runs, on any device.
    """
    total = tf.reduce_sum(lengths)
    size = tf.size(values, tf.int64)
    valid = tf.logical_and(tf.equal(total, size), tf.reduce_all(lengths >= 0))
    message = (
        f"Expected row lengths of column {column} that add up to its number of values. Received:"
    )
    return seen(lengths, valid, [message, total, size])


def seen(tensor: tf.Tensor, condition: tf.Tensor, message: Sequence[Any]) -> tf.Tensor:
    """The tensor, after a check of a condition.

    Args:
        tensor: the result.
        condition: a bool, shape ().
        message: the error's message, followed by tensors to include in it.

    Raises:
        tf.errors.InvalidArgumentError: when the graph runs, on any device.
    """
    check = tf.debugging.Assert(condition, message)
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(tensor)
