"""From blocks of rows to batches.

The rows of an epoch are one stream, chunk after chunk, and batches are consecutive runs of it.
So the rows of any batch are known from the plan alone, which is what makes resuming cheap.
Cutting copies nothing where the batch size is a multiple of 64: a batch is views into its block.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from loader.order.plan import Chunk

Array = npt.NDArray[Any]

# TensorFlow's kernels abort the process on memory that is less aligned than this.
ALIGNMENT = 64


@dataclass(frozen=True)
class Dense:
    """A column with one row of the array for each row of the batch: shape (rows, width)."""

    array: Array

    def batches(self, batch_size: int) -> list[Iterator[Array]]:
        """The tensors of each batch."""
        return [_runs(self.array, batch_size)]


@dataclass(frozen=True)
class Ragged:
    """A list column: values (nnz, 1) and lengths (rows, 1)."""

    values: Array
    lengths: Array

    def batches(self, batch_size: int) -> list[Iterator[Array]]:
        """The tensors of each batch: values, then row lengths."""
        ends = np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])
        bounds = [*ends[:-1:batch_size].tolist(), int(ends[-1])]
        values = (self.values[start:stop] for start, stop in itertools.pairwise(bounds))
        return [map(_aligned, values), _runs(self.lengths, batch_size)]


def _runs(array: Array, batch_size: int) -> Iterator[Array]:
    """The rows of each batch, in memory that TensorFlow may borrow."""
    rows, width = array.shape
    whole = rows // batch_size * batch_size
    runs: Iterator[Array] = iter(array[:whole].reshape(-1, batch_size, width))
    if whole < rows:
        runs = itertools.chain(runs, [array[whole:]])
    # Where the first starts at an aligned address and all are as long as is right, all do.
    step = batch_size * array.strides[0]
    return map(_aligned, runs) if _misses(array) or step % ALIGNMENT else runs


def _misses(array: Array) -> bool:
    return array.dtype != object and array.ctypes.data % ALIGNMENT != 0


def _aligned(array: Array) -> Array:
    """The array itself, or a copy of it at an address that is aligned."""
    if not _misses(array):
        return array
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


@dataclass(frozen=True)
class Block:
    """Rows in memory of which whole batches are cut; only an epoch's last may be short."""

    columns: Sequence[Dense | Ragged]

    def batches(self, batch_size: int) -> Iterator[Sequence[Array]]:
        """The tensors of each batch, in the order of the layout, a list column giving two."""
        arrays = [each for column in self.columns for each in column.batches(batch_size)]
        # In C for all columns together: a step of Python for each costs more than the cut.
        return zip(*arrays, strict=True)


class BlockSource(Protocol):
    """Source of an epoch's rows in blocks of whole batches; each device has one.

    Attributes:
        chunks_per_read: how many chunks are read at once, where the buffer allows it.
        order_by: what draws the order of rows from a seed, with its version.
    """

    chunks_per_read: int
    order_by: str

    def blocks(
        self, groups: Sequence[Sequence[Chunk]], batch_size: int, seed: tuple[int, int] | None
    ) -> Iterator[Any]:
        """Read chunks and give their rows in blocks of whole batches, nothing lost in between.

        Args:
            groups: chunks of an epoch in order, grouped by what is read at once.
            batch_size: rows in each batch.
            seed: seed and epoch number of the row order, or None to leave rows in place.
        """
