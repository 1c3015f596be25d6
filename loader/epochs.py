"""Epochs as streams of batches, and the position in them."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loader.batches import Array, Block, blocks
from loader.chunks import ChunkReader
from loader.errors import LoaderError
from loader.layout import Layout
from loader.plan import Chunk, Piece, Share, chunks_of, epoch_pieces, skip_rows
from loader.prefetch import Prefetcher

STATE_FORMAT = 1
# Row groups are read a few at a time: one alone does not keep all cores at work.
_CHUNKS_PER_READ = 4


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


@dataclass(frozen=True)
class Position:
    """A place between two batches. `seed` is None where the epoch has not drawn one yet."""

    epoch: int
    batch: int
    seed: int | None


class Epochs:
    """The data as a sequence of epochs, each a stream of batches.

    Args:
        pieces: all rows there are.
        reader: reads pieces.
        layout: the columns of a batch.
        settings: batch size, order and share.
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
        self._lock = threading.Lock()
        self._next = self._start_of(0)
        self._current: Stream | None = None

    def stream(self) -> Stream:
        """A new iterator over batches; its epoch is decided when its first batch is asked for."""
        return Stream(self)

    def begin(self, stream: Stream) -> Position:
        """Give the next epoch to a stream, and follow that stream's position from now on."""
        with self._lock:
            position = self._next
            self._next = self._start_of(position.epoch + 1)
            self._current = stream
        return self._with_seed(position)

    def first(self) -> Stream:
        """A stream that reads what the next epoch will give, without taking that epoch."""
        return Stream(self, self._with_seed(self._next))

    def read(self, position: Position) -> Prefetcher[Block]:
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
            current = self._current
            position = current.position if current is not None else None
            position = position or self._next
        return {
            "format": STATE_FORMAT,
            "epoch": position.epoch,
            "batch": position.batch,
            "seed": position.seed,
            "order": self._fingerprint(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Make the next stream go on at a position.

        Raises:
            LoaderError: a state of another shape, or of other data or settings.
        """
        position = _read_state(state)
        if state["order"] != self._fingerprint():
            raise LoaderError(
                "Expected a state of the same data and settings: files, row groups, batch_size, "
                "shuffle, parts_per_chunk, buffer_size, global_size and global_rank. "
                "Received: a state of another order of rows. Start the epoch anew without it."
            )
        if position.batch >= self.steps:
            raise LoaderError(
                f"Expected `batch` below {self.steps}. Received: {position.batch}."
            )
        with self._lock:
            self._next = position
            self._current = None

    def _start_of(self, epoch: int) -> Position:
        settings = self.settings
        return Position(epoch, 0, None if settings.seed_fn is not None else settings.seed)

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
        ]
        return zlib.crc32(json.dumps(facts).encode())


class Stream(Iterator[list[Array]]):
    """The batches of one epoch, as flat lists of arrays in the order of the layout.

    Not for several threads at once. Dropping it ends its reader thread.
    """

    def __init__(self, epochs: Epochs, position: Position | None = None) -> None:
        self._epochs = epochs
        self._fixed = position
        self.position: Position | None = None
        self._blocks: Prefetcher[Block] | None = None
        self._batches: Iterator[list[Array]] = iter(())
        self._done = False

    def __next__(self) -> list[Array]:
        if self._done:
            raise StopIteration
        if self._blocks is None:
            self.position = self._fixed or self._epochs.begin(self)
            self._blocks = self._epochs.read(self.position)
        if self.position is None or self.position.batch >= self._epochs.steps:
            return self._finish()
        batch = next(self._batches, None)
        while batch is None:
            block = next(self._blocks, None)
            if block is None:
                return self._finish()
            self._batches = block.batches(self._epochs.settings.batch_size)
            del block
            batch = next(self._batches, None)
        self._advance(self.position)
        return batch

    @property
    def begun(self) -> bool:
        """Whether a batch was asked for."""
        return self._blocks is not None

    def _advance(self, position: Position) -> None:
        batch = position.batch + 1
        # Keras takes as many batches as there are and does not ask for the end.
        if batch == self._epochs.steps:
            self.position = None
            self.close()
        else:
            self.position = Position(position.epoch, batch, position.seed)

    def _finish(self) -> list[Array]:
        self.position = None
        self.close()
        raise StopIteration

    def close(self) -> None:
        """End the reader thread and drop what it has read."""
        self._done = True
        self._batches = iter(())
        if self._blocks is not None:
            self._blocks.close()


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


def _read_state(state: Mapping[str, Any]) -> Position:
    wanted = {"format", "epoch", "batch", "seed", "order"}
    if not isinstance(state, Mapping) or set(state) != wanted or state["format"] != STATE_FORMAT:
        raise LoaderError(
            f"Expected a state of get_state() with the keys {', '.join(sorted(wanted))} and "
            f"format {STATE_FORMAT}. Received: {state!r}."
        )
    numbers = [state["epoch"], state["batch"], 0 if state["seed"] is None else state["seed"]]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise LoaderError(f"Expected epoch, batch and seed as whole numbers. Received: {state!r}.")
    return Position(state["epoch"], state["batch"], state["seed"])
