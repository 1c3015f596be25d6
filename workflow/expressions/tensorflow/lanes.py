"""Columns one below another, (columns, N), so that one operation computes all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from .column import TensorColumn
from .guard import guarded

# Fewer columns than this cost more to join than the saved operations.
_FEWEST = 4


def one_below_another(columns: Sequence[TensorColumn]) -> TensorColumn:
    """Columns of N rows as one tensor, (columns, N).

    Example:
        >>> one_below_another([TensorColumn(tf.constant([1, 2])), TensorColumn(tf.constant([3, 4]))]).values.numpy()
        array([[1, 2],
               [3, 4]], dtype=int32)
    """
    tensors = [column.values for column in columns]
    if all(tensor is tensors[0] for tensor in tensors):
        tensors[0] = guarded(tensors[0])  # Grappler would make a Tile, which uint16 lacks
    values = tf.stack(tensors)
    if all(column.valid is None for column in columns):
        return TensorColumn(values)
    masks = [
        tf.ones_like(column.values, tf.bool) if column.valid is None else column.valid
        for column in columns
    ]
    return TensorColumn(values, tf.stack(masks))


def apart(block: TensorColumn, count: int) -> list[TensorColumn]:
    """The columns of a tensor (columns, N).

    Example:
        >>> [column.values.numpy().tolist() for column in apart(TensorColumn(tf.constant([[1, 2], [3, 4]])), 2)]
        [[1, 2], [3, 4]]
    """
    values = tf.unstack(block.values, count)
    masks = [None] * count if block.valid is None else tf.unstack(block.valid, count)
    return [TensorColumn(value, mask) for value, mask in zip(values, masks, strict=True)]


def masks_of(columns: Sequence[TensorColumn], mask: Callable[[Any], Any]) -> list[Any]:
    """A mask of each column's values. Columns of equal length and dtype are computed together.

    Args:
        columns: the columns, whose own masks are not used.
        mask: makes a mask of any tensor's values.

    Example:
        >>> column = TensorColumn(tf.constant([1, 2]))
        >>> masks_of([column] * 4, lambda values: values > 1)[3].numpy()
        array([False,  True])
    """
    alike: dict[Any, list[int]] = defaultdict(list)
    for place, column in enumerate(columns):
        # Not the dtype itself, which equals a number: tf.int64 == 9.
        alike[place if column.is_list else column.values.dtype.name].append(place)
    results: dict[int, Any] = {}
    for places in alike.values():
        values = [columns[place].values for place in places]
        few = len(places) < _FEWEST
        masks = map(mask, values) if few else tf.unstack(mask(tf.stack(values)), len(values))
        results |= dict(zip(places, masks, strict=True))
    return [results[place] for place in range(len(columns))]
