"""Blocks of rows in the machine's memory: read chunks, shuffle rows, carry the remainder over."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Generator, Iterable, Iterator, Sequence

import numpy as np
import polars as pl

from loader.batches.batches import Array, Block, Dense, Ragged
from loader.batches.prefetch import Prefetcher
from loader.errors import LoaderError
from loader.files.layout import BatchColumn, BatchLayout
from loader.order.epoch_plan import Chunk
from loader.read.chunks import ChunkReader, elements_of, lengths_of


class HostBlocks:
    """Blocks in the machine's memory.

    Args:
        reader: reads pieces.
        layout: the columns of a batch.
    """

    # One row group does not keep all cores busy; more than two cost memory and save no time.
    chunks_per_read = 2
    order_by = f"polars {pl.__version__}"

    def __init__(self, reader: ChunkReader, layout: BatchLayout) -> None:
        self._reader = reader
        self._layout = layout

    def blocks(
        self, groups: Sequence[Sequence[Chunk]], batch_size: int, seed: tuple[int, int] | None
    ) -> Iterator[Block]:
        """See `BlockSource`."""
        parts = functools.partial(self._parts, groups, batch_size, seed)
        if seed is None:  # rows in place need no second thread
            with contextlib.closing(parts()) as split:
                yield from self._cut(split, batch_size)
            return
        # Decoding, shuffling and cutting each leave cores idle at times: overlap them.
        with Prefetcher(parts, ahead=0, name="parquet-loader-shuffle") as split:
            yield from self._cut(split, batch_size)

    def _parts(
        self, groups: Sequence[Sequence[Chunk]], batch_size: int, seed: tuple[int, int] | None
    ) -> Generator[tuple[pl.DataFrame, pl.DataFrame]]:
        """The rows of each chunk: those that complete the batch begun before it, and the rest."""
        read = functools.partial(self._reads, groups)
        with Prefetcher(read, ahead=0, name="parquet-loader-decode") as reads:
            rows = 0
            for group, frames in reads:
                for chunk, order in zip(group, _row_orders(group, seed), strict=True):
                    missing = min(-rows % batch_size, chunk.wanted)
                    rows += chunk.wanted
                    # Not bound to a name, which would hold it while the next group is read.
                    yield _split([frames.pop(0) for _ in chunk.pieces], chunk, missing, order)

    def _reads(
        self, groups: Iterable[Sequence[Chunk]]
    ) -> Iterator[tuple[Sequence[Chunk], list[pl.DataFrame]]]:
        """Chunks with their pieces' frames; before an error, those that can be read."""
        for group in groups:
            try:
                frames = self._read(group)
            except LoaderError:
                yield from (([chunk], self._read([chunk])) for chunk in group)
            else:
                yield group, frames
                del frames

    def _read(self, group: Sequence[Chunk]) -> list[pl.DataFrame]:
        return self._reader.read([piece for chunk in group for piece in chunk.pieces])

    def _cut(
        self, parts: Iterable[tuple[pl.DataFrame, pl.DataFrame]], batch_size: int
    ) -> Iterator[Block]:
        """Blocks of whole batches; the last one may end with a short batch."""
        carry: list[pl.DataFrame] = []
        rows = 0
        for head, body in parts:
            if len(head):
                carry.append(head)
                rows += len(head)
                if rows < batch_size:
                    continue
                yield make_block(pl.concat(carry, rechunk=True), self._layout)
            whole = len(body) // batch_size * batch_size
            if whole:
                yield make_block(body[:whole], self._layout)
            carry, rows = [body[whole:]], len(body) - whole
            del head, body
        if rows:
            yield make_block(pl.concat(carry, rechunk=True), self._layout)


def _row_orders(group: Sequence[Chunk], seed: tuple[int, int] | None) -> Sequence[pl.Series | None]:
    """The order of each chunk's rows; None where they stay in place."""
    if seed is None:
        return [None] * len(group)
    # Polars draws one order on one core, and planning a query costs more than drawing for a small
    # chunk: one query for all of them uses several cores and is planned once.
    drawn = pl.select(_row_order(chunk, seed).alias(str(n)) for n, chunk in enumerate(group))
    return [order.item() for order in drawn]


def _row_order(chunk: Chunk, seed: tuple[int, int]) -> pl.Expr:
    # The first piece's number, so that the order depends on the rows alone.
    random = np.random.default_rng([*seed, 1, chunk.pieces[0].number, chunk.pieces[0].start])
    # Polars shuffles twice as fast as numpy, which provides the seed only.
    rows = pl.int_range(chunk.rows, dtype=pl.UInt32)
    return rows.shuffle(seed=int(random.integers(2**63))).implode()


def _split(
    pieces: Sequence[pl.DataFrame], chunk: Chunk, rows: int, order: pl.Series | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The first wanted rows of a chunk, in its order if it has one, and the remaining rows."""
    frame = pl.concat(pieces, rechunk=order is not None)
    if order is None:
        return frame[chunk.skip : chunk.skip + rows], frame[chunk.skip + rows : chunk.stop]
    order = order[chunk.skip : chunk.stop]
    # One gather for both, the remainder first: its batches then start at aligned addresses.
    mixed = frame[pl.concat([order[rows:], order[:rows]], rechunk=True)]
    return mixed[len(mixed) - rows :], mixed[: len(mixed) - rows]


def make_block(frame: pl.DataFrame, layout: BatchLayout) -> Block:
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
    """Export of an array's memory, so that TensorFlow can borrow it.

    Polars returns read-only views, and numpy exports only writable arrays through DLPack.
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
