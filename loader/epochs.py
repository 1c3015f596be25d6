"""Epochs as streams of batches, and the position in them."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from loader.batches import Block, blocks
from loader.chunks import ChunkReader
from loader.errors import LoaderError
from loader.layout import Layout
from loader.plan import Chunk, Piece, Share, chunks_of, epoch_pieces, skip_rows
from loader.position import Position, Progress, read_state, write_state
from loader.prefetch import Prefetcher
from loader.stream import Stream

# One row group alone does not keep all cores at work; more than two cost memory, not time.
_CHUNKS_PER_READ = 2


@dataclass(frozen=True)
class Settings:
    """What decides the content and the order of batches.

    Attributes:
        batch_size: rows in a batch.
        shuffle: whether each epoch has an order of its own.
        seed: what that order is drawn from, together with the epoch's number.
        seed_fn: gives a seed for each epoch instead.
        parts_per_chunk: row groups whose rows are shuffled together.
        max_rows: rows that are decoded at once.
        drop_last: leave a last, short batch out.
        share: which worker of how many this is.
    """

    batch_size: int
    shuffle: bool
    seed: int
    seed_fn: Callable[[], int] | None
    parts_per_chunk: int
    max_rows: int
    drop_last: bool
    share: Share


class Epochs:
    """The data as a sequence of epochs, each a stream of batches.

    Args:
        pieces: all rows there are.
        reader: reads pieces.
        layout: the columns of a batch.
        settings: batch size, order and share.

    Raises:
        LoaderError: when there is not one batch to give.
    """

    def __init__(
        self, pieces: Sequence[Piece], reader: ChunkReader, layout: Layout, settings: Settings
    ) -> None:
        self._pieces = pieces
        self._reader = reader
        self._layout = layout
        self.settings = settings
        rows = settings.share.rows(sum(piece.rows for piece in pieces))
        whole, rest = divmod(rows, settings.batch_size)
        self.steps = whole + bool(rest and not settings.drop_last)
        if not self.steps:
            raise LoaderError(
                f"Expected at least one batch. Received: {rows} rows for this rank, with "
                f"batch_size={settings.batch_size} and drop_last=True. Lower batch_size."
            )
        self._lock = threading.Lock()
        self._seed = settings.seed
        self._next = self._start_of(0)
        self._progress = Progress()

    def stream(self) -> Stream:
        """A new iterator over batches; its epoch is decided when its first batch is asked for."""
        return Stream(self._begin, self.steps, self.settings.batch_size)

    def first(self) -> Stream:
        """A stream that reads what the next epoch will give, without taking that epoch."""
        with self._lock:
            self._next = position = self._with_seed(self._next)
        return Stream(lambda: self._open(position), self.steps, self.settings.batch_size)

    def _begin(self) -> tuple[Progress, Prefetcher[Block]]:
        """Take the next epoch, and follow the position in it from now on."""
        with self._lock:
            position = self._with_seed(self._next)
            self._next = self._start_of(position.epoch + 1)
            self._progress, reader = self._open(position)
            return self._progress, reader

    def _open(self, position: Position) -> tuple[Progress, Prefetcher[Block]]:
        return Progress(position), self._read(position)

    def _read(self, position: Position) -> Prefetcher[Block]:
        """Start reading from a position in the background."""
        settings = self.settings
        seed = None
        if settings.shuffle and position.seed is not None:
            seed = (position.seed, position.epoch)
        pieces = epoch_pieces(self._pieces, settings.share, seed)
        chunks = chunks_of(pieces, settings.parts_per_chunk, settings.max_rows)
        chunks = skip_rows(chunks, position.batch * settings.batch_size)
        groups = _read_groups(chunks, settings.max_rows)
        reader, layout, batch_size = self._reader, self._layout, settings.batch_size
        return Prefetcher(lambda: blocks(reader, groups, layout, batch_size, seed))

    def get_state(self) -> dict[str, Any]:
        """The position after the last batch that was handed out, as JSON-able numbers."""
        with self._lock:
            position = self._progress.position or self._next
        return write_state(position, self._fingerprint())

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Make the next stream go on at a position.

        Raises:
            LoaderError: a state of another shape, or of other data or settings.
        """
        position = read_state(state, self._fingerprint(), self.steps)
        with self._lock:
            self._seed = self._seed if position.seed is None else position.seed
            self._next = position
            self._progress = Progress()

    def _start_of(self, epoch: int) -> Position:
        return Position(epoch, 0, None if self.settings.seed_fn is not None else self._seed)

    def _with_seed(self, position: Position) -> Position:
        if position.seed is not None or self.settings.seed_fn is None:
            return position
        return Position(position.epoch, position.batch, int(self.settings.seed_fn()))

    def _fingerprint(self) -> int:
        """A number that differs when the same position would mean other rows."""
        settings = self.settings
        rows = [piece.rows for piece in self._pieces]
        # The memory limit matters only where it binds: a larger machine may go on.
        max_rows = min(settings.max_rows, settings.parts_per_chunk * max(rows))
        facts = [
            rows,
            [settings.batch_size, settings.shuffle, settings.parts_per_chunk, max_rows],
            [settings.share.size, settings.share.rank],
            pl.__version__,  # which draws the order of rows
        ]
        return zlib.crc32(json.dumps(facts).encode())


def _read_groups(chunks: Sequence[Chunk], max_rows: int) -> list[list[Chunk]]:
    groups: list[list[Chunk]] = []
    for chunk in chunks:
        last = groups[-1] if groups else []
        rows = sum(other.rows for other in last) + chunk.rows
        if last and len(last) < _CHUNKS_PER_READ and rows <= max_rows:
            last.append(chunk)
        else:
            groups.append([chunk])
    return groups
