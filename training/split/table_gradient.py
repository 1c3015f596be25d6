"""The gradient of a table as it travels between GPUs: sums for small columns, rows for large ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from training.parallel.collectives import Collectives
from training.parallel.lengths import dtype_of_rows, lengthened
from training.tables.side_by_side import LookedRows

# Rows of a small column: of fewer than a batch has on a GPU, most occur in it several times.
SMALL = 1 << 16


@dataclass(frozen=True)
class SentRows:
    """Rows that travel.

    Attributes:
        rows: their numbers, (n * columns,), int64.
        values: (n * columns, width).
        columns: how many are side by side.
        large: those of them that travel.
        is_list: whether workers may have different numbers of rows.
    """

    rows: tf.Tensor
    values: tf.Tensor
    columns: int
    large: tuple[int, ...]
    is_list: bool


class TableGradient:
    """The gradient of a table on this worker.

    Gradients of small columns are summed by row: there are fewer rows than lookups, and as many on all
    workers.

    Args:
        lookups: what was looked up in the table.
        table: the variable.
        marks: whether it matters which rows were looked up: without, all rows of small columns count
            as such, some with a gradient of zero.

    Attributes:
        height: number of rows of the table.
        shape: of the table.
        sent: of large columns, and of unknown ones.
        small: of the rows of small columns the sums (m, width), and if it matters 1 for each row that
            was looked up, else 0, (m,); empty if there are none.
    """

    def __init__(
        self, lookups: Sequence[LookedRows], table: keras.Variable, *, marks: bool
    ) -> None:
        self.height = table.shape[0]
        self.shape = tf.constant(tuple(table.shape), tf.int64)
        whole = ((0, self.height),)
        columns_of = [looked.columns or whole for looked in lookups]
        starts = sorted({c for columns in columns_of for c in columns if c[1] <= SMALL})
        ends = [*itertools.accumulate(height for _, height in starts)]
        # What is added to the number of a row to have its place among the sums.
        shifts = {
            column: end - column[1] - column[0] for column, end in zip(starts, ends, strict=True)
        }
        self._small_rows = np.concatenate(
            [np.zeros(0, np.int64), *(np.arange(start, start + height) for start, height in starts)]
        )
        self.sent: list[SentRows] = []
        places, values = [], []
        for looked, columns in zip(lookups, columns_of, strict=True):
            small = [n for n, column in enumerate(columns) if column in shifts]
            if small:
                own = tf.constant([shifts[columns[n]] for n in small], tf.int64)
                places.append(tf.reshape(_taken(looked.rows, len(columns), small) + own, [-1]))
                own_values = _taken(looked.values, len(columns), small)
                values.append(tf.reshape(own_values, [-1, table.shape[1]]))
            large = tuple(n for n in range(len(columns)) if n not in small)
            if large:
                sent = SentRows(looked.rows, looked.values, len(columns), large, looked.is_list)
                self.sent.append(sent)
        self.small = _sums(places, values, ends[-1], marks=marks) if ends else []

    @property
    def lists(self) -> list[tf.Tensor]:
        """Indices of table rows, of which one worker may have more than another."""
        return [sent.rows for sent in self.sent if sent.is_list]

    def lengthen(self, lengths: Iterator[tf.Tensor]) -> None:
        """Lengthen `lists` to these lengths, by rows beyond the table."""
        self.sent = [
            replace(
                sent,
                rows=lengthened(sent.rows, length := next(lengths), self.height),
                values=lengthened(sent.values, length),
            )
            if sent.is_list
            else sent
            for sent in self.sent
        ]

    def exchanged(self, collectives: Collectives, kind: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
        """The mean gradient of all workers, in a function of XLA: values, and numbers of rows.

        A row of a small column that nobody looked up has a number beyond the table, which a GPU
        ignores.

        Args:
            collectives: the workers.
            kind: dtype in which the gradients of rows travel.
        """
        rows, values = [], []
        if self.small:
            of_small = tf.constant(self._small_rows, tf.int64)
            if len(self.small) > 1:
                marks = collectives.summed(self.small[1])
                of_small = tf.where(marks > 0, of_small, tf.constant(self.height, tf.int64))
            rows.append(of_small)
            values.append(collectives.summed(self.small[0]))
        for sent in self.sent:
            large = _taken(sent.rows, sent.columns, sent.large)
            rows.append(collectives.joined(tf.reshape(large, [-1]), dtype_of_rows(self.height)))
            large = _taken(sent.values, sent.columns, sent.large)
            values.append(collectives.joined(tf.reshape(large, [-1, large.shape[-1]]), kind))
        mean = tf.concat(values, axis=0) / collectives.size
        return mean, tf.concat(rows, axis=0)


def _sums(
    places: list[tf.Tensor], values: list[tf.Tensor], count: int, *, marks: bool
) -> list[tf.Tensor]:
    """Sums by place, and marks."""
    # Not one sum of all, which would copy the values.
    pairs = zip(values, places, strict=True)
    found = [tf.add_n([tf.math.unsorted_segment_sum(*pair, count) for pair in pairs])]
    if marks:
        at = tf.concat(places, axis=0)
        ones = tf.ones_like(at, tf.float32)
        found.append(tf.tensor_scatter_nd_update(tf.zeros([count]), at[:, tf.newaxis], ones))
    return found


def _taken(tensor: tf.Tensor, count: int, columns: Sequence[int]) -> tf.Tensor:
    """Some columns of several side by side, by slices of neighbours: (n, columns, ...).

    Args:
        tensor: (n * count, ...).
        count: number of columns.
        columns: their numbers.
    """
    table: Any = tf.reshape(tensor, [-1, count, *tensor.shape[1:]])
    runs = itertools.groupby(enumerate(columns), key=lambda pair: pair[1] - pair[0])
    spans = [[column for _, column in run] for _, run in runs]
    parts = [table[:, span[0] : span[-1] + 1] for span in spans]
    return tf.concat(parts, axis=1) if len(parts) > 1 else parts[0]
