"""From chunks to batches: shuffle rows, carry the rest over, cut slices.

The rows of an epoch are one stream, chunk after chunk, and batches are consecutive runs of it.
So the rows of any batch are known from the plan alone, which is what makes resuming cheap.
Cutting copies nothing where the batch size is a multiple of 64: a batch is views into its block.
"""

from __future__ import annotations

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


class Sliced:
    """An array of which runs of rows are taken, each in memory that TensorFlow may borrow."""

    def __init__(self, array: Array) -> None:
        self.array = array
        # Asking an array for its address takes longer than cutting it.
        self._address, self._row_bytes = array.ctypes.data, array.strides[0]
        self._is_borrowable = array.dtype != object

    def __getitem__(self, rows: slice) -> Array:
        part = self.array[rows]
        if self._is_borrowable and (self._address + rows.start * self._row_bytes) % ALIGNMENT:
            return _aligned_copy(part)
        return part


def _aligned_copy(array: Array) -> Array:
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


@dataclass(frozen=True)
class Dense:
    """A column with one row of the array for each row of the batch: shape (rows, width)."""

    array: Sliced

    def cut(self, start: int, stop: int) -> list[Array]:
        """The tensors of some rows."""
        return [self.array[start:stop]]


@dataclass(frozen=True)
class Ragged:
    """A list column: values (nnz, 1), lengths (rows, 1) and offsets (rows + 1,)."""

    values: Sliced
    lengths: Sliced
    offsets: Array

    def cut(self, start: int, stop: int) -> list[Array]:
        """The tensors of some rows: values, then row lengths."""
        first, last = self.offsets[start], self.offsets[stop]
        return [self.values[first:last], self.lengths[start:stop]]


@dataclass(frozen=True)
class Block:
    """Rows in memory of which whole batches are cut; only an epoch's last may be short."""

    columns: Sequence[Dense | Ragged]
    rows: int

    def batches(self, batch_size: int) -> Iterator[list[Array]]:
        """The tensors of each batch, in the order of the layout, a list column giving two."""
        for start in range(0, self.rows, batch_size):
            stop = min(start + batch_size, self.rows)
            yield [array for column in self.columns for array in column.cut(start, stop)]


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
    return Block(columns, len(frame))


def make_column(series: pl.Series, column: BatchColumn) -> Dense | Ragged:
    """The numpy form of one column."""
    if not column.type.is_list:
        return Dense(Sliced(_as_array(series)))
    lengths = _as_array(lengths_of(series))
    values = _as_array(elements_of(series))
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths[:, 0], out=offsets[1:])
    if column.is_ragged:
        return Ragged(Sliced(values), Sliced(lengths), offsets)
    filler = "" if values.dtype == object else 0
    padded = np.full((len(lengths), column.width or 0), filler, values.dtype)
    padded[np.arange(column.width or 0) < lengths] = values[:, 0]
    return Dense(Sliced(padded))


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
