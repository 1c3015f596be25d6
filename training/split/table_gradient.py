"""The gradient of a table on a GPU: sums for small columns, rows for large ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from training.optimizers.rows import SparseRows
from training.parallel.collectives import Collectives
from training.parallel.lengths import dtype_of_rows, lengthened
from training.tables.side_by_side import LookedRows, side_by_side_of

# Rows of a small column: of fewer than a batch has on a GPU, most occur in it several times. And those
# of all small columns of a table, whose sums cost as much for a small batch as for a large one.
SMALL, TOGETHER = 1 << 16, 1 << 18
# A GPU adds to one place one after the other, so frequent rows are summed in several copies: of a
# column of lists the first rows, the frequent ones where ids are numbered by frequency, as Categorify
# does; of other columns all, if so many copies have no more than so many numbers.
FIRST, _COPIES = 1 << 10, 32


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
    workers. So are those of the first rows of large columns of lists.

    Args:
        lookups: what was looked up in the table.
        table: the variable.
        marks: whether it matters which rows were looked up: without, all rows that are summed count
            as such, some with a gradient of zero.

    Attributes:
        height: number of rows of the table.
        shape: of the table.
        sent: of large columns, and of unknown ones.
        small: of the rows that are summed the sums (m, width), and if it matters 1 for each row that
            was looked up, else 0, (m,); empty if there are none.
    """

    def __init__(
        self, lookups: Sequence[LookedRows], table: keras.Variable, *, marks: bool
    ) -> None:
        self.height = table.shape[0]
        self.shape = tf.constant(tuple(table.shape), tf.int64)
        whole = ((0, self.height),)
        columns_of = [looked.columns or whole for looked in lookups]
        spans = _summed_rows(lookups, columns_of)
        self._small_rows = np.concatenate(
            [np.zeros(0, np.int64), *(np.arange(s, s + n) for s, n in spans.items())]
        )
        self.sent: list[SentRows] = []
        sums = _Sums(spans, table.shape[1], marks=marks)
        for looked, columns in zip(lookups, columns_of, strict=True):
            if looked.is_list and looked.columns:
                self._add_list(sums, looked, spans)
            else:
                self._add_columns(sums, looked, columns, spans)
        self.small = sums.found()

    def _add_columns(
        self,
        sums: _Sums,
        looked: LookedRows,
        columns: Sequence[tuple[int, int]],
        spans: Mapping[int, int],
    ) -> None:
        small = [spans.get(start, 0) == height for start, height in columns]
        if any(small):
            # Negative for rows of large columns: a selection would copy the values.
            shifts = [
                (sums.places[start] if is_small else -self.height) - start
                for (start, _), is_small in zip(columns, small, strict=True)
            ]
            rows = tf.reshape(looked.rows, [-1, len(columns)])
            sums.add(tf.reshape(rows + tf.constant(shifts, tf.int64), [-1]), looked.values)
        large = tuple(n for n, is_small in enumerate(small) if not is_small)
        if large:
            sent = SentRows(looked.rows, looked.values, len(columns), large, looked.is_list)
            self.sent.append(sent)

    def _add_list(self, sums: _Sums, looked: LookedRows, spans: Mapping[int, int]) -> None:
        ((start, height),) = looked.columns or ()
        summed = spans[start]
        numbers = looked.rows - start
        sums.add_list(start, numbers, looked.values)
        if summed < height:
            rows = tf.where(numbers < summed, tf.constant(self.height, tf.int64), looked.rows)
            self.sent.append(SentRows(rows, looked.values, 1, (0,), is_list=True))

    @property
    def lists(self) -> list[tf.Tensor]:
        """Indices of table rows; workers may have different numbers of them."""
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

        A row that is summed and that nobody looked up has a number beyond the table, which a GPU
        ignores.

        Args:
            collectives: the workers.
            kind: dtype in which the gradients of rows travel.
        """
        dtype = dtype_of_rows(self.height)
        values, rows = self._joined(
            collectives.summed,
            lambda rows: collectives.joined(rows, dtype),
            lambda values: collectives.joined(values, kind),
        )
        return values / collectives.size, rows

    def alone(self) -> tf.IndexedSlices:
        """The gradient of this worker alone, with such numbers of rows; their values do not count."""

        def same(tensor: tf.Tensor) -> tf.Tensor:
            return tensor

        return tf.IndexedSlices(*self._joined(same, same, same), self.shape)

    def _joined(
        self,
        summed: Callable[[tf.Tensor], tf.Tensor],
        rows_of_all: Callable[[tf.Tensor], tf.Tensor],
        values_of_all: Callable[[tf.Tensor], tf.Tensor],
    ) -> tuple[tf.Tensor, tf.Tensor]:
        rows, values = [], []
        if self.small:
            of_small = tf.constant(self._small_rows, tf.int64)
            if len(self.small) > 1:
                marks = summed(self.small[1])
                of_small = tf.where(marks > 0, of_small, tf.constant(self.height, tf.int64))
            rows.append(of_small)
            values.append(summed(self.small[0]))
        for sent in self.sent:
            large = _taken(sent.rows, sent.columns, sent.large)
            rows.append(rows_of_all(tf.reshape(large, [-1])))
            large = _taken(sent.values, sent.columns, sent.large)
            values.append(values_of_all(tf.reshape(large, [-1, large.shape[-1]])))
        return tf.concat(values, axis=0), tf.concat(rows, axis=0)


def gradient_of_table(
    gradient: tf.IndexedSlices | Sequence[LookedRows], table: keras.Variable, optimizer: Any
) -> TableGradient:
    """The gradient of a table, of all its lookups together or of each.

    Args:
        gradient: on a GPU.
        table: the variable.
        optimizer: what it is for.
    """
    lookups = gradient
    if isinstance(gradient, tf.IndexedSlices):
        columns = side_by_side_of(table)
        rows = tf.cast(gradient.indices, tf.int64)
        lookups = [LookedRows(rows, gradient.values, columns, is_list=columns is None)]
    # Where a gradient of zero changes nothing, it does not matter which rows have one.
    return TableGradient(lookups, table, marks=not getattr(optimizer, "linear", False))


def takes_rows(optimizer: Any) -> bool:
    """Whether an optimizer updates rows alone, and ignores rows beyond a table."""
    return isinstance(getattr(optimizer, "inner_optimizer", optimizer), SparseRows)


def _summed_rows(
    lookups: Sequence[LookedRows], columns_of: Sequence[Sequence[tuple[int, int]]]
) -> dict[int, int]:
    """The rows of a table that are summed: of each column the first one and their number, in order.

    Args:
        lookups: in the table.
        columns_of: each one's columns.
    """
    columns = sorted({column for columns in columns_of for column in columns}, key=itemgetter(1))
    totals = itertools.accumulate(height for _, height in columns)
    spans = {
        start: height
        for (start, height), total in zip(columns, totals, strict=True)
        if height <= SMALL and total <= TOGETHER
    }
    for looked in lookups:
        for start, height in looked.columns or () if looked.is_list else ():
            spans.setdefault(start, min(height, FIRST))
    return dict(sorted(spans.items()))


class _Sums:
    """Sums of gradients of rows.

    Args:
        spans: the rows: first ones and numbers, in order.
        width: of the gradients.
        marks: whether to mark the rows to which something was added.

    Attributes:
        places: the place of each first row among the sums.
    """

    def __init__(self, spans: Mapping[int, int], width: int, *, marks: bool) -> None:
        ends = itertools.accumulate(spans.values(), initial=0)
        self.places = dict(zip(spans, ends, strict=False))
        self._spans = spans
        self._count = sum(spans.values())
        self._width = width
        self._marks = marks
        # Not one sum of all, which would copy the values.
        self._parts: list[tf.Tensor] = []
        self._of_lists: dict[int, list[tf.Tensor]] = {}
        self._added: list[tf.Tensor] = []

    def add(self, places: tf.Tensor, values: tf.Tensor) -> None:
        """Add values (n, width) at places (n,); those at negative ones are left out."""
        self._added.append(places)
        copies = max(1, _COPIES // self._width)
        if copies == 1:
            self._parts.append(tf.math.unsorted_segment_sum(values, places, self._count))
            return
        at = places * copies + _lanes(tf.shape(places)[0], copies)
        copy_sums = tf.math.unsorted_segment_sum(values, at, self._count * copies)
        copied = tf.reshape(copy_sums, [self._count, copies, self._width])
        self._parts.append(tf.reduce_sum(copied, axis=1))

    def add_list(self, start: int, numbers: tf.Tensor, values: tf.Tensor) -> None:
        """Add values of a list's column.

        Args:
            start: its first row.
            numbers: of rows of the column, (n,).
            values: (n, width).
        """
        summed = self._spans[start]
        head = min(summed, FIRST)
        copies = head * _COPIES
        at = numbers * _COPIES + _lanes(tf.shape(numbers)[0], _COPIES)
        if head < summed:
            at = tf.where(numbers < head, at, numbers + (copies - head))
        at = tf.where(numbers < summed, at, tf.constant(-1, tf.int64))
        copy_sums = tf.math.unsorted_segment_sum(values, at, copies + summed - head)
        first = tf.reshape(copy_sums[:copies], [head, _COPIES, self._width])
        sums = tf.concat([tf.reduce_sum(first, axis=1), copy_sums[copies:]], axis=0)
        self._of_lists.setdefault(start, []).append(sums)
        if self._marks:
            outside = tf.constant(-1, tf.int64)
            self._added.append(tf.where(numbers < summed, numbers + self.places[start], outside))

    def found(self) -> list[tf.Tensor]:
        """The sums, and the marks if wanted; nothing if there are no rows."""
        if not self._spans:
            return []
        parts = self._parts
        if self._of_lists:
            columns = [
                tf.add_n(self._of_lists.get(start, [tf.zeros([rows, self._width])]))
                for start, rows in self._spans.items()
            ]
            parts = [*parts, tf.concat(columns, axis=0)]
        results = [tf.add_n(parts)]
        if self._marks:
            at = tf.concat(self._added, axis=0)
            at = tf.where(at < 0, tf.constant(self._count, tf.int64), at)
            ones = tf.ones_like(at, tf.float32)
            marks = tf.zeros([self._count + 1])
            results.append(tf.tensor_scatter_nd_update(marks, at[:, tf.newaxis], ones)[:-1])
        return results


def _lanes(count: tf.Tensor, copies: int) -> tf.Tensor:
    """0, 1, ... up to the number of copies, over and over, computed on the GPU: int64 (count,)."""
    block = tf.constant(np.arange(1024) % copies, tf.float64)
    blocks = tf.ones([-(-count // 1024), 1], tf.float64) * block
    return tf.cast(tf.reshape(blocks, [-1])[:count], tf.int64)


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
