"""The gradient of a table as it travels between GPUs: sums for small columns, rows for large ones."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from training.tables.side_by_side import side_by_side_of

# Rows of a small column: of fewer than a batch has on a GPU, most occur in it several times.
SMALL = 1 << 16


@dataclass(frozen=True)
class TableGradient:
    """The gradient of a table on this worker.

    Attributes:
        rows: numbers of rows, (n,), int64; of a known n, 0, if all columns are small.
        values: the gradient of these rows, (n, width).
        shape: of the table.
        small: of the rows of small columns the sums (m, width), and if it matters 1 for each row that
            was looked up, else 0, (m,); empty if there are none.
        small_rows: the numbers of these rows, (m,).
    """

    rows: tf.Tensor
    values: tf.Tensor
    shape: tf.Tensor
    small: list[tf.Tensor] = field(default_factory=list)
    small_rows: Any = None

    @property
    def is_all_small(self) -> bool:
        """Whether there are no rows besides those of small columns."""
        return bool(self.rows.shape[0] == 0)

    def with_small(
        self, rows: tf.Tensor, values: tf.Tensor, small: Sequence[tf.Tensor]
    ) -> tf.IndexedSlices:
        """The gradient of all workers.

        A row of a small column that nobody looked up has a number beyond the table, which a GPU
        ignores.

        Args:
            rows: of large columns, of all workers.
            values: the gradient of these.
            small: the sums over the workers of this one's `small`.
        """
        if self.small:
            of_small = tf.constant(self.small_rows, tf.int64)
            if len(small) > 1:
                of_small = tf.where(small[1] > 0, of_small, self.shape[0])
            rows = tf.concat([of_small, rows], axis=0)
            values = tf.concat([small[0], values], axis=0)
        return tf.IndexedSlices(values, rows, self.shape)


def divided_by_height(
    gradient: tf.IndexedSlices, table: keras.Variable, *, marks: bool
) -> TableGradient:
    """A gradient of a table whose columns of ids are looked up side by side.

    Those of small columns are summed by row: there are fewer rows than lookups, and as many on all
    workers. Where lists are looked up as well, all travel as they are.

    Args:
        gradient: with the rows of all columns for each row of the batch.
        table: the variable.
        marks: whether it matters which rows were looked up: without, all rows of small columns count
            as such, some with a gradient of zero.
    """
    columns = side_by_side_of(table)
    rows, values = tf.cast(gradient.indices, tf.int64), gradient.values
    shape = tf.constant(tuple(table.shape), tf.int64)
    small = [n for n, (_, height) in enumerate(columns or ()) if height <= SMALL]
    if columns is None or not small:
        return TableGradient(rows, values, shape)
    starts = sorted({columns[n] for n in small})
    ends = [*itertools.accumulate(height for _, height in starts)]
    first = {start: end - height for (start, height), end in zip(starts, ends, strict=True)}
    by_column = tf.reshape(rows, [-1, len(columns)])
    of_column = tf.reshape(values, [-1, len(columns), values.shape[1]])
    shifts = tf.constant([first[columns[n][0]] - columns[n][0] for n in small], tf.int64)
    places = tf.reshape(_taken(by_column, small) + shifts, [-1])
    sums = tf.math.unsorted_segment_sum(
        tf.reshape(_taken(of_column, small), [-1, values.shape[1]]), places, ends[-1]
    )
    sent = [sums]
    if marks:
        ones = tf.ones_like(places, tf.float32)
        sent.append(tf.tensor_scatter_nd_update(tf.zeros([ends[-1]]), places[:, tf.newaxis], ones))
    large = [n for n in range(len(columns)) if n not in small]
    rows, values = tf.zeros([0], rows.dtype), tf.zeros([0, values.shape[1]], values.dtype)
    if large:
        rows = tf.reshape(_taken(by_column, large), [-1])
        values = tf.reshape(_taken(of_column, large), [-1, values.shape[1]])
    return TableGradient(
        rows,
        values,
        shape,
        sent,
        np.concatenate([np.arange(start, start + height) for start, height in starts]),
    )


def _taken(tensor: tf.Tensor, columns: Sequence[int]) -> tf.Tensor:
    """Some columns of (rows, columns, ...), by slices of neighbours."""
    runs = itertools.groupby(enumerate(columns), key=lambda pair: pair[1] - pair[0])
    spans = [[column for _, column in run] for _, run in runs]
    parts = [tensor[:, span[0] : span[-1] + 1] for span in spans]
    return tf.concat(parts, axis=1) if len(parts) > 1 else parts[0]
