"""Assignment of rows to workers and steps: pure arithmetic on row counts, no data.

An epoch consists of the row groups of all files, in an order drawn from the seed and the epoch number,
which is the same for any number of workers. Each worker takes an equal share of it, cut at rows, not
at row groups, so that all take the same number of steps however few files there are, and mixes its
share (`mixing`). Rows that an interrupted run left over can be shared anew by another number of
workers.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from loader.files.parquet_files import RowGroup


@dataclass(frozen=True)
class Piece:
    """A run of rows inside one row group.

    Attributes:
        path: the file.
        row_group: the number of the row group in the file, for messages.
        start: first row, counted in the file.
        rows: number of rows.
        number: its index in the unshuffled order.
    """

    path: str
    row_group: int
    start: int
    rows: int
    number: int


@dataclass(frozen=True)
class Chunk:
    """Pieces whose rows are shuffled together, and the run of rows in that order that is wanted.

    Attributes:
        pieces: the pieces to read.
        skip: rows to leave out at the start.
        stop: the row to stop before; None for the end.
    """

    pieces: tuple[Piece, ...]
    skip: int = 0
    stop: int | None = None

    @property
    def rows(self) -> int:
        """The number of rows to read."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def wanted(self) -> int:
        """The number of rows to yield."""
        return (self.rows if self.stop is None else self.stop) - self.skip


@dataclass(frozen=True)
class Share:
    """The part of an epoch that one of several workers reads: `rank` of `size`."""

    size: int = 1
    rank: int = 0

    def rows(self, total: int) -> int:
        """The number of rows that each rank gets: equal for all, so some ranks repeat a row."""
        return -(-total // self.size)

    def bounds(self, total: int) -> tuple[int, int]:
        """The rank's own rows in the stream: the first, and the one after the last."""
        return self.rank * total // self.size, (self.rank + 1) * total // self.size


@dataclass(frozen=True)
class Leg:
    """An earlier part of an epoch: each of `workers` workers took `batches` batches."""

    workers: int
    batches: int


def split_row_groups(row_groups: Sequence[RowGroup], max_rows: int) -> list[Piece]:
    """Split row groups into pieces of at most `max_rows` rows.

    Example:
        >>> groups = [RowGroup("a.parquet", 0, 0, 10, 80)]
        >>> [piece.rows for piece in split_row_groups(groups, max_rows=4)]
        [4, 3, 3]
    """
    pieces = []
    numbers = itertools.count()
    for group in row_groups:
        start = group.start
        count = -(-group.rows // max_rows)
        for part in range(count):
            rows = group.rows // count + (part < group.rows % count)
            pieces.append(Piece(group.path, group.index, start, rows, next(numbers)))
            start += rows
    return pieces


def epoch_chunks(
    pieces: Sequence[Piece],
    parts_per_chunk: int,
    max_rows: int,
    seed: tuple[int, int] | None,
    *,
    least_rows: int = 0,
    spread: int = 1,
) -> list[Chunk]:
    """The chunks of an epoch.

    Args:
        pieces: all pieces, from `split_row_groups`.
        parts_per_chunk: the number of pieces in a chunk.
        max_rows: the most rows in a chunk.
        seed: seed and epoch number, or None for the order of the files.
        least_rows: the rows up to which a chunk takes more pieces than that.
        spread: how many pieces that follow one another in the epoch stem from equal parts of the
            data, one from each, and from as many row groups as possible.
    """
    if seed is not None:
        random = np.random.default_rng([*seed, 0])
        row_groups = itertools.groupby(pieces, lambda piece: (piece.path, piece.row_group))
        counts = [len(list(group)) for _, group in row_groups]
        pieces = [pieces[index] for index in _order_of_pieces(counts, spread, random)]
    chunks: list[Chunk] = []
    current: list[Piece] = []
    rows = 0
    for piece in pieces:
        is_full = len(current) >= parts_per_chunk and rows >= least_rows
        if is_full or rows + piece.rows > max_rows:
            chunks.append(Chunk(tuple(current)))
            current, rows = [], 0
        current.append(piece)
        rows += piece.rows
    return [*chunks, Chunk(tuple(current))]


def _order_of_pieces(
    counts: Sequence[int], spread: int, random: np.random.Generator
) -> npt.NDArray[np.intp]:
    """The numbers of all pieces in a random order in which the row groups take turns.

    Args:
        counts: the number of pieces of each row group.
        spread: how many in a row come from all parts of the data.
        random: draws the order.
    """
    groups = len(counts)
    places = np.argsort(_random_order(groups, spread, random))
    again = -(-spread // groups)
    turns = [
        (np.argsort(_random_order(count, again, random)) + (place + 0.5) / groups) / count
        if count > 1
        else [(place + 0.5) / groups]
        for count, place in zip(counts, places, strict=True)
    ]
    return np.argsort(np.concatenate(turns), kind="stable")


def _random_order(count: int, spread: int, random: np.random.Generator) -> npt.NDArray[np.intp]:
    """The numbers below `count` in a random order; any `spread` in a row come from all parts of the range.

    Where data is sorted, each batch so resembles the whole. The order is random in each part, and
    the parts take turns in a random order.
    """
    parts = np.array_split(np.arange(count), min(spread, count))
    turn = np.empty(count)
    for part, first in zip(parts, random.permutation(len(parts)), strict=True):
        turn[part] = (random.permutation(len(part)) + (first + 0.5) / len(parts)) / len(part)
    return np.argsort(turn, kind="stable")


def take_rows(chunks: Sequence[Chunk], first: int, last: int) -> list[Chunk]:
    """The rows of a stream from `first` to before `last`; drops chunks without any of them."""
    parts = []
    position = 0
    for chunk in chunks:
        start, stop = max(first - position, 0), min(last - position, chunk.wanted)
        if start < stop:
            parts.append(replace(chunk, skip=chunk.skip + start, stop=chunk.skip + stop))
        position += chunk.wanted
    return parts


def share_of(chunks: Sequence[Chunk], share: Share) -> tuple[list[Chunk], Chunk | None]:
    """One rank's share of an epoch. A chunk on the border of two ranks is read by both.

    Returns:
        The rank's own rows, and a row to end with, where other ranks have one row more, so that
        no rank waits for this one at the last step: a row of its own first chunk, or of the
        epoch's if it has none.
    """
    total = sum(chunk.wanted for chunk in chunks)
    first, last = share.bounds(total)
    own_chunks = take_rows(chunks, first, last)
    if last - first == share.rows(total):
        return own_chunks, None
    again = (own_chunks or chunks)[0]
    # Ranks that share the chunk repeat different rows of it.
    row = share.rank % again.rows
    ends = list(itertools.accumulate(piece.rows for piece in again.pieces))
    number = bisect.bisect_right(ends, row)
    piece = again.pieces[number]
    start = piece.start + piece.rows - (ends[number] - row)
    return own_chunks, Chunk((replace(piece, start=start, rows=1),))


def rest_of(
    chunks: Sequence[Chunk],
    legs: Sequence[Leg],
    left_after: Callable[[Sequence[Chunk], int], Sequence[Chunk]],
) -> list[Chunk]:
    """The rows of an epoch after some legs, to be shared anew by any number of workers.

    Args:
        chunks: all chunks of the epoch.
        legs: the earlier parts of the epoch.
        left_after: returns what is left of a rank's chunks after some batches.
    """
    for leg in legs:
        total = sum(chunk.wanted for chunk in chunks)
        rest: list[Chunk] = []
        for rank in range(leg.workers):
            first, last = Share(leg.workers, rank).bounds(total)
            rest += left_after(take_rows(chunks, first, last), leg.batches)
        chunks = rest
    return list(chunks)


def rows_left(total: int, legs: Sequence[Leg], batch_size: int) -> int:
    """The number of rows in `rest_of`.

    Example:
        >>> rows_left(1000, [Leg(workers=2, batches=3), Leg(workers=1, batches=1)], batch_size=100)
        300
    """
    for leg in legs:
        fewest, with_one_more = divmod(total, leg.workers)
        left = fewest - leg.batches * batch_size
        total = (leg.workers - with_one_more) * max(left, 0) + with_one_more * max(left + 1, 0)
    return total
