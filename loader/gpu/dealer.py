"""Batches dealt from the rows of several reads by compiled TensorFlow functions.

The rows that some batches take of a chunk are consecutive. So these spans are joined, and one gather
brings all rows into the order of the batches: rows lie side by side, so that it reads whole ones.
Runs of rows have runs of elements, to which the same applies.

As in `cutter`, the reader's thread must not run eager operations with arguments on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from loader.batches.batches import Array
from loader.gpu.column_matrix import BatchFormat, GpuRows
from loader.gpu.cutter import CutBatches, Cutter, Tensors, row_specs

# Spans begin and end at multiples of this number of rows: 64 bytes of any column, at which
# TensorFlow slices a vector without a copy.
UNIT = 16
# The fewest spans for which a function is compiled; then twice as many, and so on.
_LEAST_SPANS = 4


@dataclass(frozen=True)
class RowsOfRead:
    """Rows of a read from which batches are dealt.

    Attributes:
        rows: the rows.
        marks: for each ragged column, the number of elements before each unit of rows, and of all.
    """

    rows: GpuRows
    marks: tuple[Array, ...]


@dataclass(frozen=True)
class Span:
    """Consecutive units of rows: from `first` to before `stop`; the last one may be short."""

    held: RowsOfRead
    first: int
    stop: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return min(self.stop * UNIT, self.held.rows.count) - self.first * UNIT

    def bounds(self) -> list[tuple[int, int]]:
        """The begin and the size in the rows, and in the elements of each ragged column."""
        elements = [(marks[self.first], marks[self.stop]) for marks in self.held.marks]
        return [
            (self.first * UNIT, self.rows),
            *((int(first), int(stop - first)) for first, stop in elements),
        ]


class Dealer:
    """A dealer of batches from rows, in memory that belongs to TensorFlow alone.

    Args:
        batch_format: how columns travel.
        cutter: divides rows into batches.
        device: TensorFlow's name of the GPU.
    """

    def __init__(self, batch_format: BatchFormat, cutter: Cutter, device: str) -> None:
        self._format = batch_format
        self._cutter = cutter
        self._device = device
        self._specs = row_specs(batch_format)
        self._mark = tf.function(self._mark_rows, autograph=False).get_concrete_function(
            self._specs[0]
        )
        self._deals: dict[int, Any] = {}
        no_marks = tuple(np.zeros(1, np.int64) for _ in batch_format.ragged)
        self._nothing = Span(RowsOfRead(cutter.nothing, no_marks), 0, 0)

    def hold(self, rows: GpuRows) -> RowsOfRead:
        """Prepare rows for dealing. Copies none of them."""
        if not self._format.ragged:
            return RowsOfRead(rows, ())
        with tf.device(self._device):
            return RowsOfRead(rows, tuple(marks.numpy() for marks in self._mark(rows.matrices)))

    def deal(
        self, spans: Sequence[Span], begins: Array, sizes: Array, batch_size: int
    ) -> CutBatches:
        """Deal runs of rows, one after another. On return the GPU has finished with the spans.

        Args:
            spans: the rows, one after another.
            begins: the first row of each run, counted in the spans.
            sizes: the rows of each run; together those of whole batches.
            batch_size: rows in each batch.
        """
        count = max(_LEAST_SPANS, 1 << (len(spans) - 1).bit_length())
        spans = [*spans, *[self._nothing] * (count - len(spans))]
        if count not in self._deals:
            self._deals[count] = self._compiled(count)
        bounds = np.array([span.bounds() for span in spans]).transpose(1, 0, 2)
        with tf.device("/cpu:0"):  # a slice takes its bounds from the host
            numbers = [tf.constant(each, tf.int64) for each in (bounds, begins, sizes)]
        rows = [span.held.rows.groups() for span in spans]
        with tf.device(self._device):
            batches = self._deals[count](rows, *numbers, tf.constant(batch_size))
            return self._cutter.divided(batches, self._cutter.nothing)

    def _compiled(self, count: int) -> Any:
        bounds = tf.TensorSpec((1 + len(self._format.ragged), count, 2), tf.int64)
        vector, size = tf.TensorSpec((None,), tf.int64), tf.TensorSpec((), tf.int32)
        deal = tf.function(self._deal_runs, autograph=False)
        return deal.get_concrete_function([self._specs] * count, bounds, vector, vector, size)

    def _mark_rows(self, matrices: Tensors) -> Tensors:
        """`HeldRows.marks`."""
        with tf.device(self._device):
            before = [_before(lengths) for lengths in self._format.lengths_of(matrices)]
            return tuple(tf.concat([each[:-1:UNIT], each[-1:]], 0) for each in before)

    def _deal_runs(
        self,
        rows: Sequence[Sequence[Tensors]],
        bounds: tf.Tensor,
        begins: tf.Tensor,
        sizes: tf.Tensor,
        batch_size: tf.Tensor,
    ) -> tuple[Tensors, ...]:
        """The argument of `Cutter.divided`."""
        with _on_host():
            of_rows, *of_elements = tf.unstack(bounds)
            ends = tf.cumsum(sizes)
            shifts, count = begins - (ends - sizes), ends[-1]
        with tf.device(self._device):
            matrices, padded, values = (
                [*zip(*parts, strict=True)] for parts in zip(*rows, strict=True)
            )
            joined = [_joined(parts, of_rows) for parts in matrices]
            lengths = self._format.lengths_of(joined)
            elements = tuple(
                _elements(_joined(parts, element_bounds), counts, begins, sizes)
                for parts, element_bounds, counts in zip(values, of_elements, lengths, strict=True)
            )
            order = _places(shifts, ends, count)
            dealt = [tf.gather(matrix, order) for matrix in joined]
            dealt_padded = [tf.gather(_joined(parts, of_rows), order) for parts in padded]
            *dense, numbers = self._cutter.by_batch(dealt, dealt_padded, batch_size)
            return (*dense, elements, numbers)


def _on_host() -> Any:
    """Scope of operations inside a compiled function whose results bound others."""
    return tf.device("/cpu:0")


def _joined(parts: Sequence[tf.Tensor], bounds: tf.Tensor) -> tf.Tensor:
    """Some rows of each part, one after another.

    Args:
        parts: each of shape (rows, width).
        bounds: begin and size in each of them, shape (parts, 2).
    """
    width = parts[0].shape[1]
    with _on_host():
        slices = [tf.split(each, 2) for each in tf.unstack(bounds * width)]
    # Only of a vector does TensorFlow slice rows without a copy.
    flat = [tf.reshape(part, [-1]) for part in parts]
    rows = [tf.slice(each, *extent) for each, extent in zip(flat, slices, strict=True)]
    return tf.reshape(tf.concat(rows, 0), [-1, width])


def _elements(
    values: tf.Tensor, lengths: tf.Tensor, begins: tf.Tensor, sizes: tf.Tensor
) -> tf.Tensor:
    """The elements of runs of rows; `lengths` are the lengths of the rows."""
    before = _before(lengths)
    first, stop = tf.gather(before, begins), tf.gather(before, begins + sizes)
    starts = _before(stop - first)
    return tf.gather(values, _places(first - starts[:-1], starts[1:], starts[-1]))


def _before(counts: tf.Tensor) -> tf.Tensor:
    """Cumulative sums of the counts, from 0 to their total."""
    # In float64, which is exact: TensorFlow has no such sum of integers on a GPU.
    return tf.cast(tf.cumsum(tf.pad(tf.cast(counts, tf.float64), [[1, 0]])), tf.int64)


def _places(shifts: tf.Tensor, ends: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """The places of the rows of runs: each one's own number, and the shift of its run.

    Args:
        shifts: the shift of each run.
        ends: the number after each run's last row.
        count: the number of all rows.
    """
    with _on_host():
        first, step = tf.zeros([], tf.int64), tf.ones([], tf.int64)
    numbers = tf.range(first, count, step)
    runs = tf.raw_ops.UpperBound(sorted_inputs=ends[None], values=numbers[None], out_type=tf.int64)
    return numbers + tf.gather(shifts, runs[0])
