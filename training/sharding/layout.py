"""The parts of a table that each worker holds."""

from __future__ import annotations

import bisect
import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

_BLOCK = 2**20  # values, 4 MB of float32


@dataclass(frozen=True)
class Own:
    """The part of a block of a table that a worker holds.

    Attributes:
        rows: of the block.
        columns: of the block.
        start: the row of the worker's part in which they begin.
        count: number of rows.
    """

    rows: slice
    columns: slice
    start: int
    count: int


class Layout(ABC):
    """A table of several columns of ids, one below the other, divided among workers.

    Args:
        heights: the number of rows of each column.
        width: width of the vectors.
        size: number of workers.
        rank: number of this worker.
    """

    def __init__(self, heights: Sequence[int], width: int, size: int, rank: int) -> None:
        self.heights = list(heights)
        self.starts = list(itertools.accumulate(heights, initial=0))
        self.size = size
        self.rank = rank
        self.whole = (self.starts.pop(), width)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """The shape of this worker's part; it has one row at least."""

    @abstractmethod
    def own(self, rank: int, first: int, count: int) -> Own | None:
        """The part of a block of rows of one column that a worker holds, if any."""

    @abstractmethod
    def route(self, rows: tf.Tensor) -> Route:
        """The way of rows (n,) to the workers that hold them."""

    @abstractmethod
    def held(self, rows: tf.Tensor) -> tf.Tensor:
        """The numbers of rows (n,) in this worker's part, or one beyond it for those of others."""

    def own_columns(self, vectors: tf.Tensor) -> tf.Tensor:
        """The part of vectors (n, width) that this worker holds."""
        return vectors

    def in_columns(self, vectors: tf.Tensor) -> tf.Tensor:
        """This worker's part of vectors, with zeros for what others hold: (n, width)."""
        return vectors

    def blocks(self) -> Iterator[tuple[int, int]]:
        """First row and number of rows of blocks of a few MB, none with rows of two columns."""
        most = max(1, _BLOCK // self.whole[1])
        for start, height in zip(self.starts, self.heights, strict=True):
            for first in range(start, start + height, most):
                yield first, min(most, start + height - first)


@dataclass(frozen=True)
class Route:
    """The way of looked-up rows to the workers that hold them, and of their vectors back.

    Attributes:
        rows: for each worker the rows of its part.
        places: for each worker the numbers of these among the looked-up rows; None if each holds a
            part of all vectors.
    """

    rows: list[tf.Tensor]
    places: list[tf.Tensor] | None

    def joined(self, vectors: Sequence[tf.Tensor]) -> tf.Tensor:
        """Join the vectors of all workers to vectors (n, width)."""
        if self.places is None:
            return tf.concat(vectors, axis=1)
        return tf.dynamic_stitch(self.places, vectors)

    def divided(self, vectors: tf.Tensor) -> list[tf.Tensor]:
        """The inverse of `joined`."""
        if self.places is None:
            return tf.split(vectors, len(self.rows), axis=1)
        return [tf.gather(vectors, places) for places in self.places]


class ByRow(Layout):
    """Whole columns of ids on a worker each, and others divided by row among all.

    Rows of a divided column go round the workers, so that frequent ids, which are small, do not
    meet on one.

    Args:
        heights: the number of rows of each column.
        places: for each column the worker that holds it, None if all do.
        width: width of the vectors.
        size: number of workers.
        rank: number of this worker.
    """

    def __init__(
        self,
        heights: Sequence[int],
        places: Sequence[int | None],
        width: int,
        size: int,
        rank: int,
    ) -> None:
        super().__init__(heights, width, size, rank)
        self._steps = [size if place is None else 1 for place in places]
        self._firsts = [place or 0 for place in places]
        counts = [
            [_count(height, place, worker, size) for worker in range(size)]
            for height, place in zip(heights, places, strict=True)
        ]
        sums = np.cumsum(np.array(counts, np.int64), axis=0)
        # The first row of each column in the part of each worker.
        self._locals = sums - np.array(counts)
        self._held = sums[-1]
        self._places = list(places)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of this worker's part; it has one row at least."""
        return max(int(self._held[self.rank]), 1), self.whole[1]

    def own(self, rank: int, first: int, count: int) -> Own | None:
        """The part of a block of rows of one column that a worker holds, if any."""
        column = bisect.bisect_right(self.starts, first) - 1
        number, step = first - self.starts[column], self._steps[column]
        if self._places[column] not in (None, rank):
            return None
        skipped = (rank - number) % step if self._places[column] is None else 0
        if skipped >= count:
            return None
        start = int(self._locals[column, rank]) + (number + skipped) // step
        return Own(slice(skipped, count, step), slice(None), start, -(-(count - skipped) // step))

    def route(self, rows: tf.Tensor) -> Route:
        """The way of rows (n,) to the workers that hold them."""
        local_rows, workers = self._held_by(rows)
        places = tf.range(tf.size(rows))
        return Route(
            tf.dynamic_partition(local_rows, workers, self.size),
            tf.dynamic_partition(places, workers, self.size),
        )

    def held(self, rows: tf.Tensor) -> tf.Tensor:
        """The numbers of rows (n,) in this worker's part, or one beyond it for those of others."""
        return self._compiled(rows)

    @functools.cached_property
    def _compiled(self) -> Any:
        # TensorFlow itself computes integers on the host, or copies them there.
        def held(rows: tf.Tensor) -> tf.Tensor:
            local_rows, workers = self._held_by(tf.minimum(rows, self.whole[0] - 1))
            is_held = (workers == self.rank) & (rows < self.whole[0])
            return tf.where(is_held, local_rows, self.shape[0])

        return tf.function(held, autograph=False, jit_compile=True, reduce_retracing=True)

    def _held_by(self, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The numbers of rows (n,) in the part of the worker that holds each, and the workers."""
        rows = tf.cast(rows, tf.int64)
        starts = tf.constant(self.starts, tf.int64)
        columns = tf.searchsorted(starts, rows, side="right", out_type=tf.int64) - 1
        numbers = rows - tf.gather(starts, columns)
        steps = tf.gather(tf.constant(self._steps, tf.int64), columns)
        workers = tf.gather(tf.constant(self._firsts, tf.int64), columns) + numbers % steps
        first = tf.gather(tf.constant(self._locals.reshape(-1)), columns * self.size + workers)
        return first + numbers // steps, tf.cast(workers, tf.int32)


class ByColumn(Layout):
    """Each worker holds the same part of every vector."""

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of this worker's part."""
        return self.whole[0], self.whole[1] // self.size

    def own(self, rank: int, first: int, count: int) -> Own:
        """The part of a block of rows that a worker holds."""
        width = self.shape[1]
        return Own(slice(0, count), slice(rank * width, (rank + 1) * width), first, count)

    def route(self, rows: tf.Tensor) -> Route:
        """The way of rows (n,) to all workers."""
        return Route([tf.cast(rows, tf.int64)] * self.size, None)

    def held(self, rows: tf.Tensor) -> tf.Tensor:
        """The rows themselves."""
        return rows

    def own_columns(self, vectors: tf.Tensor) -> tf.Tensor:
        """The part of vectors (n, width) that this worker holds."""
        width = self.shape[1]
        return vectors[:, self.rank * width : (self.rank + 1) * width]

    def in_columns(self, vectors: tf.Tensor) -> tf.Tensor:
        """This worker's part of vectors, with zeros for what others hold: (n, width)."""
        parts = [vectors if n == self.rank else tf.zeros_like(vectors) for n in range(self.size)]
        return tf.concat(parts, axis=1)


def _count(height: int, place: int | None, rank: int, size: int) -> int:
    """The rows of a column that a worker holds."""
    if place is None:
        return max(0, -(-(height - rank) // size))
    return height if place == rank else 0


def layout_of(variable: keras.Variable) -> Layout | None:
    """The layout of a table of which this worker holds a part, or of its optimizer state."""
    return getattr(variable, "sharding_layout", None)


def set_layout(variable: keras.Variable, layout: Layout | None) -> None:
    """Mark a variable as this worker's part of a table."""
    variable.sharding_layout = layout


def assign_own(
    variable: keras.Variable,
    layout: Layout,
    whole: Any,
    first: int = 0,
    count: int | None = None,
) -> None:
    """Set this worker's part of a table, or of its state.

    Args:
        variable: the part.
        layout: its layout.
        whole: rows of the table, sliced block by block: an array, or a dataset of an HDF5 file.
        first: the row of the table that is its first one.
        count: the number of its rows; None for all of the table.
    """
    end = layout.whole[0] if count is None else first + count
    for start, length in layout.blocks():
        height = min(length, end - start)
        area = layout.own(layout.rank, start, height) if start >= first and height > 0 else None
        if area is not None:
            block = np.asarray(whole[start - first : start - first + height])
            values = tf.convert_to_tensor(block[area.rows, area.columns], variable.dtype)
            # Not by a slice of the variable, whose assignment holds a second copy of it.
            rows = tf.range(area.start, area.start + area.count)
            variable.value.scatter_update(tf.IndexedSlices(values, rows))


def assign_rows(variable: keras.Variable, rows: Any, vectors: tf.Tensor) -> None:
    """Set rows of a table, or of this worker's part of it.

    Args:
        variable: the table, or the part.
        rows: numbers of rows of the whole table, (n,), each once.
        vectors: their values, (n, width); of a variable with one value a row (n,).
    """
    vectors = tf.cast(vectors, variable.dtype)
    if (layout := layout_of(variable)) is not None:
        local_rows = layout.held(tf.constant(rows, tf.int64))
        is_own = local_rows < layout.shape[0]
        rows, vectors = local_rows[is_own], layout.own_columns(vectors)[is_own]
    variable.value.scatter_update(tf.IndexedSlices(vectors, rows))
