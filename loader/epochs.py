"""Epochs as streams of batches, and the position in them."""

from __future__ import annotations

import functools
import json
import os
import threading
import weakref
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from loader.batches.batches import BlockSource
from loader.batches.prefetch import Prefetcher, Reader, Wait, wait_without_limit
from loader.batches.process import expect_process
from loader.batches.stream import Stream
from loader.errors import LoaderError
from loader.files.skipped import Skipped
from loader.options import call_seed_fn
from loader.order.epoch_plan import (
    Chunk,
    Leg,
    Piece,
    Share,
    epoch_chunks,
    rest_of,
    rows_left,
    share_of,
    take_rows,
)
from loader.order.mixing import (
    ORDER,
    Mixing,
    Mixture,
    left_after,
    mix,
    most_chunk_rows,
    row_groups_in,
)
from loader.order.position import Pass, Position, Progress, Trail, read_state, write_state

# The fewest rows that justify a read.
_LEAST_ROWS = 16384


@dataclass(frozen=True)
class Settings:
    """Settings that decide the content and the order of batches.

    Attributes:
        batch_size: rows in a batch.
        shuffle: whether each epoch has its own order.
        seed: seed of that order, together with the epoch's number.
        seed_fn: returns a seed for each epoch instead.
        mixing: which rows of a shuffled epoch a batch takes.
        max_rows: the most rows that are decoded at once.
        drop_last: leave a last, short batch out.
        share: the worker's rank and the number of workers.
    """

    batch_size: int
    shuffle: bool
    seed: int
    seed_fn: Callable[[], int] | None
    mixing: Mixing
    max_rows: int
    drop_last: bool
    share: Share


class Epochs:
    """The data as a sequence of epochs, each a stream of batches.

    Args:
        pieces: all pieces of the data.
        source: reads pieces.
        settings: batch size, order and share.
        skipped: reports, at the end of each epoch, data that could not be read.
        wait: how to wait for the source.
        digest: returns a text in which other data differ.
        fits: column -> the property `fit_digest` of its schema.

    Raises:
        LoaderError: the data does not fill one batch.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        source: BlockSource,
        settings: Settings,
        skipped: Skipped | None = None,
        wait: Wait = wait_without_limit,
        digest: Callable[[], str] = str,
        fits: Mapping[str, str] | None = None,
    ) -> None:
        self._pieces = pieces
        self.digest = digest
        self.fits = fits or {}
        self._wait = wait
        self.skipped = skipped
        self._source = source
        self.settings = settings
        self._total = sum(piece.rows for piece in pieces)
        self.steps = self._steps((), settings.share.size)
        if not self.steps:
            raise LoaderError(
                f"Expected at least one batch. Received: {settings.share.rows(self._total)} rows "
                f"for this rank, with batch_size={settings.batch_size} and drop_last=True. "
                "Lower batch_size."
            )
        self._made_in = os.getpid()
        self._lock = threading.RLock()  # `seed_fn` is called under it, and may ask for the state
        self._seed = settings.seed
        self._next = self._start_of(0)
        self._progress = Progress()
        self._followed: Callable[[], Trail | None] = lambda: None
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._readers: list[Reader] = []

    def stream(self, epochs: int | None = 1) -> Stream:
        """A new iterator over batches; an epoch is fixed when its first batch is requested.

        Args:
            epochs: how many epochs follow one another; None for an endless stream.
        """
        reading = Pass(repeats=epochs != 1)
        stream = Stream(lambda: self._begin(reading), self.settings.batch_size, self._end, epochs)
        self._streams.add(stream)
        return stream

    def close(self) -> None:
        """End all reading; in a fork there is none, and memory of a GPU cannot be given back."""
        if os.getpid() != self._made_in:
            return
        for stream in list(self._streams):
            stream.close()
        self._end_dropped()

    def _end_dropped(self) -> None:
        """Wait for the readers of streams that were dropped."""
        for reader in self._readers:
            if reader.is_ending:
                reader.end()

    def first(self) -> Stream:
        """A stream that reads the next epoch without using it up."""
        expect_process(self._made_in)
        position = self.next_position()
        return Stream(lambda: self._open(position), self.settings.batch_size)

    def next_position(self) -> Position:
        """Position at which the next stream begins, with its seed."""
        with self._lock:
            self._next = self._with_seed(self._next)
            return self._next

    def _begin(self, reading: Pass) -> tuple[Progress, Prefetcher[Any]]:
        """Start the next epoch, and track the position in it from now on."""
        # Before the lock, which may have been held when the process was forked.
        expect_process(self._made_in)
        with self._lock:
            position = self._with_seed(self._next)
            self._next = self._start_of(position.epoch + 1)
            if (trail := self._followed()) is not None:
                trail.begun.append((reading, position))
            self._progress, reader = self._open(position)
            return self._progress, reader

    def _end(self) -> None:
        if self.skipped is not None:
            self.skipped.report()

    def _open(self, position: Position) -> tuple[Progress, Prefetcher[Any]]:
        steps = self._steps(position.legs, self.settings.share.size)
        # What they still hold would come on top of the memory that this reader may take.
        self._end_dropped()
        blocks = self._read(position)
        self._readers = [reader for reader in self._readers if reader.is_running] + [blocks.reader]
        return Progress(position, steps), blocks

    def _read(self, position: Position) -> Prefetcher[Any]:
        """Start reading from a position in the background."""
        settings, source, batch_size = self.settings, self._source, self.settings.batch_size
        if settings.shuffle and position.seed is not None:
            mixture = self._mixture(position)
            seed = (position.seed, position.epoch)
            chunks = [*mixture.chunks.values()]
            groups = _read_groups(chunks, settings, source.chunks_per_read)
            return Prefetcher(
                lambda: source.mixed(groups, mixture, batch_size, seed), wait=self._wait
            )
        chunks = epoch_chunks(self._pieces, 1, settings.max_rows, None)
        rest = rest_of(chunks, position.legs, self._left_in_order)
        share, last = share_of(rest, settings.share)
        share = self._left_in_order([*share, *([last] if last else [])], position.batch)
        first, later = _first_read(share, batch_size) if source.reads_parts else ([], share)
        groups = first + _read_groups(later, settings, source.chunks_per_read)
        return Prefetcher(lambda: source.in_order(groups, batch_size), wait=self._wait)

    def _left_in_order(self, chunks: Sequence[Chunk], batches: int) -> list[Chunk]:
        return take_rows(chunks, batches * self.settings.batch_size, self._total + 1)

    def _mixture(self, position: Position) -> Mixture:
        """The batches of a shuffled epoch from a position on."""
        settings, mixing = self.settings, self.settings.mixing
        seed = (position.seed or 0, position.epoch)
        chunks = epoch_chunks(
            self._pieces,
            mixing.pieces,
            settings.max_rows,
            seed,
            least_rows=mixing.least_rows,
            spread=mixing.pieces * mixing.width,
        )
        batch_size = settings.batch_size

        def left(chunks: Sequence[Chunk], batches: int) -> list[Chunk]:
            width = mixing.width_of(len(chunks))
            return left_after(chunks, batches, width=width, batch_size=batch_size)

        share, last = share_of(rest_of(chunks, position.legs, left), settings.share)
        mixture = mix(share, last, mixing.width_of(len(share)), batch_size, position.batch)
        return replace(mixture, sliced=mixing.sliced)

    def mixing(self) -> int:
        """The number of row groups from which the first batch draws rows."""
        if not self.settings.shuffle:
            return 1
        mixture = self._mixture(Position(0, 0, self._seed))
        return row_groups_in(next(mixture.batches), mixture.chunks)

    def _steps(self, legs: Sequence[Leg], workers: int) -> int:
        """The number of batches that each of `workers` workers takes after some legs of an epoch."""
        batch_size = self.settings.batch_size
        rows = Share(workers).rows(rows_left(self._total, legs, batch_size))
        whole, rest = divmod(rows, batch_size)
        return whole + bool(rest and not self.settings.drop_last)

    def get_state(self) -> dict[str, Any]:
        """The position after the last batch that was handed out, as JSON-able numbers."""
        with self._lock:
            return self._state(self._progress.position or self._next)

    def next_state(self) -> dict[str, Any]:
        """The position at which the next stream begins, whatever others still read."""
        with self._lock:
            return self._state(self._next)

    def follow(self) -> Trail:
        """Count batches from here on: the trail gives the state after any number of them."""
        with self._lock:
            trail = Trail(self._state_after)
            # Each epoch adds to it for as long as somebody has it.
            self._followed = weakref.ref(trail)
            return trail

    def _state_after(self, positions: Sequence[Position], batches: int) -> dict[str, Any]:
        with self._lock:
            return self._state(self._after(positions, batches))

    def _after(self, positions: Sequence[Position], batches: int) -> Position:
        """The position after some batches of epochs that were begun one after another."""
        for position in positions:
            batches_left = self._steps(position.legs, self.settings.share.size) - position.batch
            if batches < batches_left:
                return replace(position, batch=position.batch + batches)
            batches -= batches_left
        return self._start_of(positions[-1].epoch + 1) if positions else self._next

    def _state(self, position: Position) -> dict[str, Any]:
        return write_state(position, self.settings.share.size, self.order)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Make the next stream resume at a position.

        Raises:
            LoaderError: a state of another shape, or of other data or settings.
        """
        workers = self.settings.share.size
        position = read_state(
            state, workers, self.order, lambda old, size: self._steps(old.legs, size)
        )
        if not self._steps(position.legs, workers):  # less than one batch for each worker is left
            position = self._start_of(position.epoch + 1)
        with self._lock:
            self._seed = self._seed if position.seed is None else position.seed
            self._next = position
            self._progress = Progress()

    def _start_of(self, epoch: int) -> Position:
        return Position(epoch, 0, None if self.settings.seed_fn is not None else self._seed)

    def _with_seed(self, position: Position) -> Position:
        if position.seed is not None:
            return position
        # A state that was saved by a loader with `seed_fn` may have none.
        seed_fn = self.settings.seed_fn
        return replace(position, seed=self._seed if seed_fn is None else call_seed_fn(seed_fn))

    @functools.cached_property
    def order(self) -> int:
        """A number that differs when the same position would refer to other rows."""
        settings, mixing = self.settings, self.settings.mixing
        largest = max(piece.rows for piece in self._pieces)
        chunk_rows = most_chunk_rows(mixing.pieces, largest, mixing.least_rows, settings.max_rows)
        facts = [
            # Not the files themselves: workers with files of their own take the state of the first one.
            [piece.rows for piece in self._pieces],
            [settings.batch_size, settings.shuffle],
            # The order of the files does not depend on the memory.
            (ORDER, *astuple(mixing), chunk_rows) if settings.shuffle else (),
            self._source.order_by,
        ]
        return zlib.crc32(json.dumps(facts).encode())


def _first_read(chunks: list[Chunk], batch_size: int) -> tuple[list[list[Chunk]], list[Chunk]]:
    """Cut the first batches out of a large first row group, to read them alone.

    Reading a row group's first rows, and later the others, costs little more than reading it at once.
    """
    rows = -(-_LEAST_ROWS // batch_size) * batch_size
    if not chunks or len(chunks[0].pieces) > 1 or chunks[0].wanted < rows + _LEAST_ROWS:
        return [], chunks
    (piece,), start = chunks[0].pieces, chunks[0].pieces[0].start + chunks[0].skip
    first = replace(piece, start=start, rows=rows)
    rest = replace(piece, start=start + rows, rows=chunks[0].wanted - rows)
    return [[Chunk((first,))]], [Chunk((rest,)), *chunks[1:]]


def _read_groups(chunks: Sequence[Chunk], settings: Settings, most: int) -> list[list[Chunk]]:
    """Group chunks into reads. The first read is small, so that the first batch arrives early.

    Chunks of few rows are read together, since each read has a fixed cost.
    """
    groups: list[list[Chunk]] = []
    rows = 0
    for chunk in chunks:
        first = len(groups) < 2
        limit = min(most, 2) if first else most
        # Less than a batch is of no use.
        least = settings.batch_size if first else max(settings.batch_size, _LEAST_ROWS)
        joins = groups and (len(groups[-1]) < limit or rows < least)
        if joins and rows + chunk.rows <= settings.max_rows:
            groups[-1].append(chunk)
        else:
            groups.append([chunk])
            rows = 0
        rows += chunk.rows
    return groups
