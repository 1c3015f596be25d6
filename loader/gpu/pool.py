"""Chunks on the GPU from which batches take rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from loader.gpu.column_matrix import GpuRows
from loader.gpu.cutter import CutBatches
from loader.gpu.dealer import UNIT, Dealer, RowsOfRead, Span
from loader.order.epoch_plan import Chunk
from loader.order.mixing import Mixed


class Pool:
    """Chunks that have been read and have rows left. A read leaves memory with its last chunk."""

    def __init__(self, dealer: Dealer, chunks: Mapping[int, Chunk]) -> None:
        self._dealer = dealer
        self._chunks = chunks
        # For each chunk the rows of its read, and the number of its first row among them.
        self._places: dict[int, tuple[RowsOfRead, int]] = {}

    def add(self, numbers: Iterable[int], rows: GpuRows) -> None:
        """Add chunks.

        Args:
            numbers: the numbers of the chunks of a read.
            rows: the wanted rows of these chunks, one after another.
        """
        held_rows = self._dealer.hold(rows)
        first = 0
        for number in numbers:
            self._places[number] = held_rows, first
            first += self._chunks[number].wanted

    def deal(self, batches: Sequence[Mixed]) -> CutBatches:
        """The rows of consecutive batches of one size."""
        runs = [run for batch in batches for run in batch.runs]
        ranges: dict[int, tuple[int, int]] = {}
        for run in runs:
            ranges[run.chunk] = ranges.get(run.chunk, (run.start, 0))[0], run.stop
        spans = [self._span(number, *rows) for number, rows in ranges.items()]
        begins = itertools.accumulate((span.rows for span in spans), initial=0)
        shifts = {
            number: begin - span.first * UNIT + self._places[number][1]
            for number, span, begin in zip(ranges, spans, begins, strict=False)
        }
        starts = np.array([shifts[run.chunk] + run.start for run in runs])
        sizes = np.array([run.stop - run.start for run in runs])
        cut = self._dealer.deal(spans, starts, sizes, rows_of(batches[0]))
        for number, (_, stop) in ranges.items():
            if stop == self._chunks[number].wanted:
                del self._places[number]
        return cut

    def _span(self, number: int, start: int, stop: int) -> Span:
        held_rows, first = self._places[number]
        return Span(held_rows, (first + start) // UNIT, -(-(first + stop) // UNIT))


def rows_of(batch: Mixed) -> int:
    """The number of rows of a batch."""
    return sum(run.stop - run.start for run in batch.runs)
