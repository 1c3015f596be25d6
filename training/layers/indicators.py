"""Columns of ids as counts of each id."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from training.tables.bags import combine, row_of_value
from training.tables.ids import check_lengths, check_range, flat_integers


def count_ids(
    column: str, given: Any, cardinality: int, dtype: str, *, validate: bool = False
) -> tf.Tensor:
    """Count each id in each row: (N, cardinality).

    Ids out of range are not counted.

    Args:
        column: name of the column.
        given: ids (N, 1), or a pair (values (nnz, 1), nnzs (N, 1)).
        cardinality: ids are 0 .. cardinality - 1.
        dtype: dtype of the counts.
        validate: whether ids and row lengths are checked.

    Raises:
        TrainingError: another shape, or a dtype that is not an integer.
        tf.errors.InvalidArgumentError: raised by the checks.

    Example:
        >>> count_ids("tags", tf.constant([[1], [0]]), 3, "float32").numpy().tolist()
        [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    is_pair = isinstance(given, (tuple, list))
    ids = flat_integers(column, "ids", given[0] if is_pair else given)
    if validate:
        ids = check_range(column, ids, cardinality)
    marks = tf.one_hot(ids, cardinality, dtype=dtype)
    if not is_pair:
        return marks
    lengths = flat_integers(column, "nnzs", given[1])
    if validate:
        lengths = check_lengths(column, lengths, ids)
    rows = row_of_value(lengths, ids)
    # One extra row, for values beyond the sum of the lengths; see row_of_value.
    return combine(marks, rows, tf.concat([lengths, [0]], axis=0), "sum")[:-1]
