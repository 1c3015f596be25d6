"""Blocks of rows in the machine's memory: read chunks, shuffle rows, carry the remainder over."""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain

import numpy as np
import polars as pl

from loader.batches.batches import Array, Block, Dense, Ragged, aligned_copy
from loader.batches.prefetch import Prefetcher
from loader.errors import LoaderError
from loader.files.fetch import AHEAD, Fetcher
from loader.files.layout import BatchColumn, BatchLayout
from loader.order.epoch_plan import Chunk, Piece
from loader.order.mixing import Mixed, Mixture, Run
from loader.read.chunks import ChunkReader, elements_of, lengths_of, places_of

# The fewest rows of a block of a mixture: a column of it is copied at once.
_BLOCK_ROWS = 131_072
# Rows of which a column of four bytes takes an eighth of a processor's second-level cache of 1 MB.
_SLICE_ROWS = 32_768
# Shorter runs are gathered: copying one run takes as long as gathering this many rows.
_RUN_ROWS = 1_024

# A chunk, and the order of its wanted rows.
_Ordered = tuple[pl.DataFrame, pl.Series]


class HostBlocks:
    """Blocks in the machine's memory.

    Args:
        reader: reads pieces.
        layout: the columns of a batch.
        fetcher: fetches the row groups of objects before they are read; None if there are none.
        reads_parts: see `BlockSource`.
        borrows: whether the reader's frames share memory with the user's data, which whoever gets a
            batch may not change.
    """

    # One row group does not keep all cores busy; more than two cost memory and save no time.
    chunks_per_read = 2
    pieces_per_chunk = 1
    row_groups_mixed = 8
    most_parts: int | None = None
    order_by = f"polars {pl.__version__}, mixed"

    def __init__(
        self,
        reader: ChunkReader,
        layout: BatchLayout,
        fetcher: Fetcher | None = None,
        *,
        reads_parts: bool = False,
        borrows: bool = False,
    ) -> None:
        self._reader = reader
        self._layout = layout
        self._fetcher = fetcher
        self.reads_parts = reads_parts
        self._borrows = borrows

    def in_order(self, groups: Sequence[Sequence[Chunk]], batch_size: int) -> Iterator[Block]:
        """See `BlockSource`."""
        with contextlib.closing(self._parts(groups, batch_size)) as parts:
            yield from self._cut(parts, batch_size)

    def _parts(
        self, groups: Sequence[Sequence[Chunk]], batch_size: int
    ) -> Generator[tuple[pl.DataFrame, pl.DataFrame]]:
        """The rows of each chunk: those that complete the batch begun before it, and the rest."""
        read = functools.partial(self._reads, groups)
        with Prefetcher(read, ahead=0, name="parquet-loader-decode") as reads:
            rows = 0
            for group, frames in reads:
                for chunk in group:
                    head = min(-rows % batch_size, chunk.wanted)
                    rows += chunk.wanted
                    # Not bound to a name, which would hold it while the next group is read.
                    yield _split([frames.pop(0) for _ in chunk.pieces], chunk, head)

    def mixed(
        self,
        groups: Sequence[Sequence[Chunk]],
        mixture: Mixture,
        batch_size: int,
        seed: tuple[int, int],
    ) -> Iterator[Block]:
        """See `BlockSource`."""
        take = functools.partial(self._taken, groups, mixture, batch_size, seed)
        # Decoding, shuffling and cutting each leave cores idle at times: overlap them.
        with Prefetcher(take, ahead=0, name="parquet-loader-shuffle") as blocks:
            for rows, runs in blocks:
                yield make_block(_dealt(rows, runs), self._layout)

    def _taken(
        self,
        groups: Sequence[Sequence[Chunk]],
        mixture: Mixture,
        batch_size: int,
        seed: tuple[int, int],
    ) -> Generator[tuple[Mapping[int, pl.DataFrame], Sequence[Run]]]:
        """The rows of each chunk for a block, and the runs of its batches in them."""
        slice_rows = _SLICE_ROWS if mixture.sliced else None
        with contextlib.closing(self._ordered(groups, seed, slice_rows)) as ordered:
            pool: dict[int, _Ordered] = {}
            numbers = deque(mixture.chunks)
            # Little more than a chunk; the buffer has room for several.
            most = min(
                _BLOCK_ROWS, max((chunk.rows for chunk in mixture.chunks.values()), default=0)
            )
            for batches in _blocks(mixture, -(-most // batch_size)):
                while numbers and numbers[0] < batches[-1].begun:
                    pool[numbers.popleft()] = next(ordered)
                runs = [run for batch in batches for run in batch.runs]
                yield _take(pool, runs), runs

    def _ordered(
        self, groups: Sequence[Sequence[Chunk]], seed: tuple[int, int], slice_rows: int | None
    ) -> Generator[_Ordered]:
        """Each chunk, and the order of its wanted rows."""
        read = functools.partial(self._reads, groups)
        with Prefetcher(read, ahead=0, name="parquet-loader-decode") as reads:
            for group, frames in reads:
                orders = _row_orders(group, seed, slice_rows)
                for chunk, order in zip(group, orders, strict=True):
                    # Not bound to a name, which would hold it while the next group is read.
                    yield pl.concat([frames.pop(0) for _ in chunk.pieces], rechunk=True), order

    def _reads(
        self, groups: Sequence[Sequence[Chunk]]
    ) -> Iterator[tuple[Sequence[Chunk], list[pl.DataFrame]]]:
        """Chunks with their pieces' frames; before an error, those that can be read."""
        with self._fetcher or contextlib.nullcontext() as fetcher:
            for number, group in enumerate(groups):
                if fetcher is not None:
                    for later in groups[number : number + 1 + AHEAD]:
                        fetcher.announce(places_of(_pieces(later)))
                try:
                    frames = self._read(group)
                except LoaderError:
                    yield from (([chunk], self._read([chunk])) for chunk in group)
                else:
                    yield group, frames
                    del frames

    def _read(self, group: Sequence[Chunk]) -> list[pl.DataFrame]:
        return self._reader.read(_pieces(group))

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
                yield self._block(pl.concat(carry, rechunk=True))
            whole = len(body) // batch_size * batch_size
            if whole:
                yield self._block(body[:whole])
            carry, rows = [body[whole:]], len(body) - whole
            del head, body
        if rows:
            yield self._block(pl.concat(carry, rechunk=True))

    def _block(self, frame: pl.DataFrame) -> Block:
        """The numpy form of rows that nothing has gathered, which would have copied them."""
        return make_block(frame, self._layout, copies=self._borrows)


def _pieces(group: Sequence[Chunk]) -> list[Piece]:
    return [piece for chunk in group for piece in chunk.pieces]


def _row_orders(
    group: Sequence[Chunk], seed: tuple[int, int], slice_rows: int | None
) -> Iterator[pl.Series]:
    """The wanted rows of each chunk in its order."""
    # Polars draws one order on one core, and planning a query costs more than drawing for a small
    # chunk: one query for all of them uses several cores and is planned once.
    slices = [_row_slices(chunk, seed, slice_rows) for chunk in group]
    drawn = iter(pl.select(expression.alias(str(n)) for n, expression in enumerate(chain(*slices))))
    for chunk, parts in zip(group, slices, strict=True):
        order = pl.concat([next(drawn).item() for _ in parts], rechunk=True)
        yield order[chunk.skip : chunk.stop]


def _row_slices(chunk: Chunk, seed: tuple[int, int], slice_rows: int | None) -> list[pl.Expr]:
    """The order of a chunk's rows: its slices in a random order, and the rows of each as well.

    A slice's columns fit the processor's cache, in which a gather takes half as long. Several row
    groups are one slice, so that any run of rows is of all of them.
    """
    # The first piece's number, so that the order depends on the rows alone.
    random = np.random.default_rng([*seed, 1, chunk.pieces[0].number, chunk.pieces[0].start])
    size = slice_rows if slice_rows and len(chunk.pieces) == 1 else chunk.rows
    starts = range(0, chunk.rows, size)
    # Polars shuffles twice as fast as numpy, which provides the seeds only.
    return [
        pl.int_range(starts[n], min(starts[n] + size, chunk.rows), dtype=pl.UInt32)
        .shuffle(seed=int(random.integers(2**63)))
        .implode()
        for n in random.permutation(len(starts))
    ]


def _blocks(mixture: Mixture, most: int) -> Iterator[list[Mixed]]:
    """The batches of each block: at most `most`, of chunks that all have begun before the first."""
    block: list[Mixed] = []
    for batch in mixture.batches:
        # Batches of one chunk need no further copy.
        alone = len(batch.runs) == 1 and block and len(block[-1].runs) > 1
        if block and (len(block) >= most or batch.begun > block[-1].begun or alone):
            yield block
            block = []
        block.append(batch)
    if block:
        yield block


def _take(pool: dict[int, _Ordered], runs: Sequence[Run]) -> Mapping[int, pl.DataFrame]:
    """The rows of each chunk that some runs take, in its order. Chunks without further rows leave the pool.

    All runs of a chunk are gathered at once. To gather the whole chunk when it begins takes a third
    longer, since its rows have left the processor's cache when they are dealt.
    """
    rows = {}
    for number, (start, stop) in _spans(runs).items():
        frame, order = pool[number]
        rows[number] = frame[order[start:stop]]
        if stop == len(order):
            del pool[number]
    return rows


def _spans(runs: Sequence[Run]) -> dict[int, tuple[int, int]]:
    """The first row of each chunk in some runs, and the one after the last; they follow each other."""
    spans: dict[int, tuple[int, int]] = {}
    for run in runs:
        spans[run.chunk] = (spans.get(run.chunk, (run.start, 0))[0], run.stop)
    return spans


def _dealt(rows: Mapping[int, pl.DataFrame], runs: Sequence[Run]) -> pl.DataFrame:
    """The rows of consecutive batches, from those of each chunk."""
    if len(rows) == 1:
        return rows[runs[0].chunk]
    first = {number: start for number, (start, _) in _spans(runs).items()}
    if len(runs) * _RUN_ROWS <= sum(run.stop - run.start for run in runs):
        places = [(run.chunk, run.start - first[run.chunk], run.stop - run.start) for run in runs]
        return pl.concat([rows[n].slice(start, count) for n, start, count in places], rechunk=True)
    # Short runs: gathered from one frame of all rows.
    frame = pl.concat(rows.values(), rechunk=True)
    begins = accumulate(map(len, rows.values()), initial=0)
    shift = {number: begin - first[number] for number, begin in zip(rows, begins, strict=False)}
    order = [np.arange(shift[r.chunk] + r.start, shift[r.chunk] + r.stop) for r in runs]
    return frame[np.concatenate(order).astype(np.uint32)]


def _split(
    pieces: Sequence[pl.DataFrame], chunk: Chunk, rows: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The first wanted rows of a chunk, and the remaining ones."""
    frame = pl.concat(pieces, rechunk=False)
    return frame[chunk.skip : chunk.skip + rows], frame[chunk.skip + rows : chunk.stop]


def make_block(frame: pl.DataFrame, layout: BatchLayout, *, copies: bool = False) -> Block:
    """The numpy form of a frame, sharing its memory where it can, unless it is to be copied."""
    columns = [
        make_column(frame.get_column(column.name), column, copies=copies)
        for column in layout.columns
    ]
    return Block(columns)


def make_column(series: pl.Series, column: BatchColumn, *, copies: bool = False) -> Dense | Ragged:
    """The numpy form of one column."""
    if not column.type.is_list:
        return Dense(_as_array(series, copies=copies))
    lengths = _as_array(lengths_of(series))
    values = _as_array(elements_of(series), copies=copies and column.is_ragged)
    if column.is_ragged:
        return Ragged(values, lengths)
    filler = "" if values.dtype == object else 0
    padded = np.full((len(lengths), column.width or 0), filler, values.dtype)
    padded[np.arange(column.width or 0) < lengths] = values[:, 0]
    return Dense(padded)


def _as_array(series: pl.Series, *, copies: bool = False) -> Array:
    """The values as a column of shape (rows, 1)."""
    array = series.rechunk().to_numpy()
    if array.dtype == object:
        return array[:, None]
    exported: Array = np.asarray(_Exported(array))
    return aligned_copy(exported) if copies else exported


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
