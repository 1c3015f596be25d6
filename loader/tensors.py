"""From arrays to TensorFlow: the structure of a batch and the hand-over of its memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from loader.batches import Array
from loader.layout import BatchColumn, Layout

# TensorFlow's kernels abort the process on memory that is less aligned than this.
_ALIGNMENT = 64


def pack(layout: Layout, items: Sequence[Any]) -> Any:
    """Arrange one item a tensor as a batch: `(x, y)`, or `x` alone without labels.

    `x` maps names to tensors, a list feature to a pair; `y` is one label's tensor, or a dict of
    several.

    Args:
        layout: the columns.
        items: in the order of the layout, two for a ragged column.
    """
    rest = iter(items)
    x = {column.name: _pack_column(column, rest) for column in layout.features}
    y = {column.name: next(rest) for column in layout.labels}
    if not y:
        return x
    return (x, y) if len(y) > 1 else (x, next(iter(y.values())))


def _pack_column(column: BatchColumn, items: Iterator[Any]) -> Any:
    return (next(items), next(items)) if column.is_ragged else next(items)


def flat_specs(layout: Layout) -> list[tf.TensorSpec]:
    """Dtype and shape of each tensor, in the order of the layout."""
    specs = []
    for column in layout.columns:
        specs.append(tf.TensorSpec((None, column.width or 1), column.type.dtype))
        if column.is_ragged:
            specs.append(tf.TensorSpec((None, 1), tf.int32))
    return specs


def to_tensor(array: Array) -> tf.Tensor:
    """An array as an eager tensor: borrowed where its alignment allows, else copied."""
    if array.dtype == object or array.ctypes.data % _ALIGNMENT or not array.size:
        return tf.constant(array)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def to_batch(layout: Layout, arrays: Sequence[Array]) -> Any:
    """One batch of eager tensors."""
    return pack(layout, [to_tensor(array) for array in arrays])
