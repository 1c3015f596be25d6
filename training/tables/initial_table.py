"""The initial values of a table, written directly into its memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.sharding.layout import Layout, Own

# Initializers that draw each value independently of the shape, so that rows can come in blocks.
_BY_VALUE = (
    keras.initializers.RandomUniform,
    keras.initializers.RandomNormal,
    keras.initializers.TruncatedNormal,
    keras.initializers.Zeros,
    keras.initializers.Ones,
)
BLOCK = 2**20  # values, 4 MB of float32
# InplaceUpdate counts rows in int32; on a GPU it takes no bfloat16 and at most 2**31 - 1 values.
MOST_ROWS = tf.int32.max
_IN_PLACE = (tf.float32, tf.float64, tf.float16)


def initializer_of(given: Any) -> Any:
    """The initializer that an object or a name stands for.

    Raises:
        TrainingError: Keras knows no such initializer.

    Example:
        >>> type(initializer_of("zeros")).__name__
        'Zeros'
    """
    try:
        return keras.initializers.get(given)
    except (ValueError, TypeError) as error:
        raise TrainingError(
            "Expected an initializer of keras.initializers, or its name, such as 'uniform'. "
            f"Received: {given!r:.200}."
        ) from error


def initial_table(
    cardinalities: Iterable[int],
    width: int,
    initializer: keras.initializers.Initializer,
    dtype: Any,
    layout: Layout | None = None,
) -> tf.Tensor:
    """The rows of several columns, each followed by a row of zeros, in one tensor.

    A table may take most of the memory, and an initializer holds two or three temporaries as large
    as its result. So a table is drawn in blocks, where that makes no difference, which are written
    into the table's memory.

    Args:
        cardinalities: the number of rows of each column.
        width: the width of a row.
        initializer: a Keras initializer, called separately for each column; for blocks of rows if
            it draws each value independently and has no seed.
        dtype: dtype of the values.
        layout: of a table that is divided among workers. Each draws the same values as one that
            holds the whole table, with the same seeds, and keeps its own.

    Returns:
        (sum of cardinalities + number of columns, width), or this worker's part of it.
    """
    columns = tuple(cardinalities)
    shape = (sum(columns) + len(columns), width)
    parts = _parts(columns, width, initializer, dtype)
    if layout is not None:
        shape, parts = layout.shape, _own_parts(parts, layout, dtype)
    if shape[0] > MOST_ROWS or tf.as_dtype(dtype) not in _IN_PLACE:
        return tf.concat([draw() for _, draw in parts], axis=0)
    table = tf.raw_ops.Empty(shape=shape, dtype=dtype)
    block, start = _rows_of_a_block(width), 0
    for _, draw in parts:
        part = draw()
        for first in range(0, len(part), block):
            values = part[first : first + block]
            rows = tf.range(start, start + len(values))
            table = tf.raw_ops.InplaceUpdate(x=table, i=rows, v=values)
            start += len(values)
    return table


def _parts(
    columns: tuple[int, ...], width: int, initializer: keras.initializers.Initializer, dtype: Any
) -> Iterator[tuple[int, Callable[[], tf.Tensor]]]:
    """The numbers of rows of the parts, and what draws them."""
    for rows in columns:
        for size in _sizes(rows, width, initializer):
            # The same initializer object would give columns of equal size equal tables.
            yield size, partial(initializer.clone(), (size, width), dtype)
        yield 1, partial(tf.zeros, (1, width), dtype)


def _own_parts(
    parts: Iterator[tuple[int, Callable[[], tf.Tensor]]], layout: Layout, dtype: Any
) -> Iterator[tuple[int, Callable[[], tf.Tensor]]]:
    """The parts of this worker, in their order."""
    first, own_rows = 0, 0
    for size, draw in parts:
        area = layout.own(layout.rank, first, size)
        first += size
        if area is not None:
            own_rows += area.count
            yield area.count, partial(_selected, draw, area)
    if not own_rows:
        yield 1, partial(tf.zeros, layout.shape, dtype)


def _selected(draw: Callable[[], tf.Tensor], area: Own) -> tf.Tensor:
    return draw()[area.rows, area.columns]


def _sizes(rows: int, width: int, initializer: keras.initializers.Initializer) -> Iterator[int]:
    by_value = type(initializer) in _BY_VALUE and initializer.get_config().get("seed") is None
    block = _rows_of_a_block(width) if by_value else rows
    for start in range(0, rows, block):
        yield min(block, rows - start)


def _rows_of_a_block(width: int) -> int:
    return max(1, BLOCK // width)
