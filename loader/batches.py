"""From chunks to batches: shuffle rows, carry the rest over, cut slices.

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
import polars as pl

from loader.chunks import ChunkReader, elements_of, lengths_of
from loader.layout import BatchColumn, Layout
from loader.plan import Chunk

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
    """What gives an epoch's rows in blocks of whole batches; each device has one.

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


class HostBlocks:
    """Blocks in the machine's memory.

    Args:
        reader: reads pieces.
        layout: the columns of a batch.
    """

    # One row group alone does not keep all cores at work; more than two cost memory, not time.
    chunks_per_read = 2
    order_by = f"polars {pl.__version__}"

    def __init__(self, reader: ChunkReader, layout: Layout) -> None:
        self._reader = reader
        self._layout = layout

    def blocks(
        self, groups: Sequence[Sequence[Chunk]], batch_size: int, seed: tuple[int, int] | None
    ) -> Iterator[Block]:
        """See `BlockSource`."""
        carry = pl.DataFrame()
        for group in groups:
            frames = self._reader.read([piece for chunk in group for piece in chunk.pieces])
            for chunk in group:
                frame = pl.concat([frames.pop(0) for _ in chunk.pieces], rechunk=seed is not None)
                missing = batch_size - len(carry) if len(carry) else 0
                head, body = _split(frame, chunk, min(missing, chunk.wanted), seed)
                del frame  # it would be held while the next group is read
                if missing:
                    carry = pl.concat([carry, head], rechunk=True)
                    if len(carry) < batch_size:
                        continue
                    yield make_block(carry, self._layout)
                whole = len(body) // batch_size * batch_size
                if whole:
                    yield make_block(body[:whole], self._layout)
                carry = body[whole:]
                del head, body
        if len(carry):
            yield make_block(carry, self._layout)


def _split(
    frame: pl.DataFrame, chunk: Chunk, rows: int, seed: tuple[int, int] | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The first rows of a chunk, shuffled if there is a seed, and the rest of them."""
    if seed is None:
        return frame[chunk.skip : chunk.skip + rows], frame[chunk.skip + rows : chunk.stop]
    order = _row_order(chunk, seed)[chunk.skip : chunk.stop]
    # One gather for both, the rest first: its batches then start at aligned addresses.
    mixed = frame[pl.concat([order[rows:], order[:rows]], rechunk=True)]
    return mixed[len(mixed) - rows :], mixed[: len(mixed) - rows]


def _row_order(chunk: Chunk, seed: tuple[int, int]) -> pl.Series:
    # The first piece's number, so that the order depends on the rows alone.
    random = np.random.default_rng([*seed, 1, chunk.pieces[0].number, chunk.pieces[0].start])
    rows = pl.int_range(chunk.rows, dtype=pl.UInt32, eager=True)
    # Polars shuffles twice as fast as numpy, which only gives the seed here.
    return rows.shuffle(seed=int(random.integers(2**63)))


def make_block(frame: pl.DataFrame, layout: Layout) -> Block:
    """The numpy form of a frame, sharing its memory where it can."""
    columns = [make_column(frame.get_column(column.name), column) for column in layout.columns]
    return Block(columns)


def make_column(series: pl.Series, column: BatchColumn) -> Dense | Ragged:
    """The numpy form of one column."""
    if not column.type.is_list:
        return Dense(_as_array(series))
    lengths = _as_array(lengths_of(series))
    values = _as_array(elements_of(series))
    if column.is_ragged:
        return Ragged(values, lengths)
    filler = "" if values.dtype == object else 0
    padded = np.full((len(lengths), column.width or 0), filler, values.dtype)
    padded[np.arange(column.width or 0) < lengths] = values[:, 0]
    return Dense(padded)


def _as_array(series: pl.Series) -> Array:
    """The values as a column of shape (rows, 1)."""
    array = series.rechunk().to_numpy()
    return np.asarray(_Exported(array)) if array.dtype != object else array[:, None]


class _Exported:
    """Lets TensorFlow borrow an array's memory.

    Polars hands out read-only views, and numpy exports only writable arrays through DLPack.
    The memory belongs to the block alone, and TensorFlow does not write to what it borrows.
    """

    def __init__(self, array: Array) -> None:
        array = np.ascontiguousarray(array)
        self.array = array  # keeps the memory alive for as long as a view of it lives
        self.__array_interface__ = {
            "data": (array.ctypes.data, False),
            "shape": (len(array), 1),
            "typestr": array.dtype.str,
            "version": 3,
        }
