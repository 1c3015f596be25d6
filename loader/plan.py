"""Who reads which rows, in which order: pure arithmetic on row counts, no data.

An epoch is one long stream of rows: the row groups of all files, in an order drawn from the
seed and the epoch number, one after another. Every rank takes an equal share of that stream,
cut at rows, not at row groups, so that all ranks take the same number of steps however few
files there are.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from loader.files import RowGroup


@dataclass(frozen=True)
class Piece:
    """A run of rows inside one row group.

    Attributes:
        path: the file.
        row_group: the number of the row group in the file, for messages.
        start: first row, counted in the file.
        rows: number of rows.
        number: its place in the unshuffled order, the same on every rank.
    """

    path: str
    row_group: int
    start: int
    rows: int
    number: int


@dataclass(frozen=True)
class Chunk:
    """Pieces whose rows are shuffled together, and the rows to leave out at its start.

    Attributes:
        pieces: what to read.
        skip: rows of the shuffled chunk that an earlier run has consumed already.
    """

    pieces: tuple[Piece, ...]
    skip: int = 0

    @property
    def rows(self) -> int:
        """The number of rows before `skip` is taken off."""
        return sum(piece.rows for piece in self.pieces)


@dataclass(frozen=True)
class Share:
    """The part of an epoch that one of several workers reads: `rank` of `size`."""

    size: int = 1
    rank: int = 0

    def rows(self, total: int) -> int:
        """How many rows each rank gets: the same for all, so some get one row twice."""
        return -(-total // self.size)


def split_row_groups(row_groups: Sequence[RowGroup], max_rows: int) -> list[Piece]:
    """The pieces to read, none with more than `max_rows` rows.

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


def epoch_pieces(
    pieces: Sequence[Piece], share: Share, seed: tuple[int, int] | None
) -> list[Piece]:
    """The pieces of one rank in the order of one epoch.

    Args:
        pieces: all pieces, as `split_row_groups` gives them.
        share: which rank of how many.
        seed: seed and epoch number, or None for the order of the files.
    """
    order = list(pieces)
    if seed is not None:
        permutation = np.random.default_rng([*seed, 0]).permutation(len(order))
        order = [order[index] for index in permutation]
    if share.size == 1:
        return order
    total = sum(piece.rows for piece in order)
    first = share.rank * total // share.size
    last = (share.rank + 1) * total // share.size
    mine = _row_range(order, first, last)
    # Top-up rule: a rank that is one row short takes its first row again (the stream's first
    # row, should it have none), so that nobody waits for it at the last step.
    if last - first < share.rows(total):
        mine += _row_range(order, first % total, first % total + 1)
    return mine


def _row_range(pieces: Sequence[Piece], first: int, last: int) -> list[Piece]:
    found = []
    position = 0
    for piece in pieces:
        start, stop = max(first - position, 0), min(last - position, piece.rows)
        if start < stop:
            found.append(replace(piece, start=piece.start + start, rows=stop - start))
        position += piece.rows
    return found


def chunks_of(pieces: Sequence[Piece], parts_per_chunk: int, max_rows: int) -> list[Chunk]:
    """Group consecutive pieces for shuffling, within the memory that `max_rows` stands for."""
    chunks: list[Chunk] = []
    current: list[Piece] = []
    rows = 0
    for piece in pieces:
        if current and (len(current) == parts_per_chunk or rows + piece.rows > max_rows):
            chunks.append(Chunk(tuple(current)))
            current, rows = [], 0
        current.append(piece)
        rows += piece.rows
    return [*chunks, Chunk(tuple(current))] if current else chunks


def skip_rows(chunks: Sequence[Chunk], rows: int) -> list[Chunk]:
    """What is left of a stream after its first rows: whole chunks are dropped unread."""
    for number, chunk in enumerate(chunks):
        if rows < chunk.rows:
            return [replace(chunk, skip=rows), *chunks[number + 1 :]]
        rows -= chunk.rows
    return []
