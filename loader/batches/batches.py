"""Cutting of blocks of rows into batches.

A source puts the rows of an epoch into the order of its batches: in order, chunk after chunk; shuffled,
as loader/order/mixing.py deals them. Batches are then consecutive runs of a block. So the plan alone
says which rows a batch holds, which makes resuming cheap. Where the batch size is a multiple of 64, a
batch is a set of views into its block and nothing is copied.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from loader.order.epoch_plan import Chunk
from loader.order.mixing import Mixture

Array = npt.NDArray[Any]

# TensorFlow's kernels abort the process on memory with a smaller alignment.
ALIGNMENT = 64


@dataclass(frozen=True)
class Dense:
    """A column as an array (rows, width), one row of it for each row of the block."""

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
    # If the first batch starts at an aligned address and its length is aligned, so are all others.
    step = batch_size * array.strides[0]
    return map(_aligned, runs) if _misses(array) or step % ALIGNMENT else runs


def _misses(array: Array) -> bool:
    return array.dtype != object and array.ctypes.data % ALIGNMENT != 0


def _aligned(array: Array) -> Array:
    """The array itself, or a copy at an aligned address."""
    return aligned_copy(array) if _misses(array) else array


def aligned_copy(array: Array) -> Array:
    """A copy at an address where TensorFlow may borrow it."""
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


@dataclass(frozen=True)
class Block:
    """Rows in memory, cut into whole batches; only the last batch of an epoch may be short."""

    columns: Sequence[Dense | Ragged]

    def batches(self, batch_size: int) -> Iterator[Sequence[Array]]:
        """The tensors of each batch, in the order of the layout; a list column gives two."""
        arrays = [array for column in self.columns for array in column.batches(batch_size)]
        # zip cuts all columns in C: a Python step for each would cost more than the cut itself.
        return zip(*arrays, strict=True)


class BlockSource(Protocol):
    """Source of an epoch's rows in blocks of whole batches; each device has one.

    Attributes:
        chunks_per_read: how many chunks are read at once, if the buffer is large enough.
        pieces_per_chunk: how many pieces a chunk of a shuffled epoch has, if the buffer allows.
        row_groups_mixed: from how many row groups a shuffled batch draws, if the buffer allows.
        most_parts: into how many parts a row group is divided to mix that many, where reading a part
            costs as much as reading the whole; None where it costs less.
        reads_parts: whether the first batches of an epoch in order are read alone, before the other
            rows of their row group.
        order_by: the algorithm that derives the row order from a seed, and its version.
    """

    chunks_per_read: int
    pieces_per_chunk: int
    row_groups_mixed: int
    most_parts: int | None
    reads_parts: bool
    order_by: str

    def in_order(self, groups: Sequence[Sequence[Chunk]], batch_size: int) -> Iterator[Any]:
        """Read chunks and yield their rows in blocks of whole batches, without gaps.

        Args:
            groups: the chunks of an epoch in order, grouped into reads.
            batch_size: rows in each batch.
        """

    def mixed(
        self,
        groups: Sequence[Sequence[Chunk]],
        mixture: Mixture,
        batch_size: int,
        seed: tuple[int, int],
    ) -> Iterator[Any]:
        """Read chunks and yield the batches of a mixture, in blocks.

        Args:
            groups: the chunks of the mixture, grouped into reads.
            mixture: the batches.
            batch_size: rows in each batch.
            seed: seed and epoch number of the rows' order in each chunk.
        """
