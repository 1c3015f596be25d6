"""What `on_bad_files="skip"` does with row groups that turn out to be damaged while reading."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

import polars as pl

from loader.chunks import ChunkReader
from loader.errors import DamagedError, LoaderError
from loader.files import RowGroup, Skipped
from loader.plan import Piece

T = TypeVar("T")


class StandIns:
    """Which rows are read in the place of damaged ones.

    Leaving rows out would give workers different numbers of steps, and those with more would
    wait for the others for ever. So a damaged row group is replaced with as many rows of those
    that follow it in the files. That depends on nothing but the files: every epoch keeps its
    number of batches, and a position means the same rows after an interruption.

    Args:
        row_groups: all row groups there are.
        skipped: where to write down what was replaced.
    """

    def __init__(self, row_groups: Sequence[RowGroup], skipped: Skipped) -> None:
        self._row_groups = row_groups
        self._skipped = skipped
        self._damaged: dict[tuple[str, int], DamagedError] = {}

    def read(
        self, read: Callable[[Sequence[Piece]], T], pieces: Sequence[Piece]
    ) -> tuple[T, list[int]]:
        """Read pieces, again for as long as a damaged one is found among them.

        Args:
            read: reads pieces; raises `DamagedError`.
            pieces: what is wanted.

        Returns:
            What `read` gave, and by how many pieces each one of `pieces` was read.

        Raises:
            LoaderError: when not one row group can be read.
        """
        while True:
            found = [self._instead_of(piece) for piece in pieces]
            try:
                return read(list(itertools.chain.from_iterable(found))), list(map(len, found))
            except DamagedError as error:
                self._damaged[error.where] = error

    def _instead_of(self, piece: Piece) -> list[Piece]:
        error = self._damaged.get((piece.path, piece.row_group))
        if error is None:
            return [piece]
        self._skipped.add_row_group(piece.path, piece.row_group, error)
        return self._stand_ins(piece)

    def _stand_ins(self, piece: Piece) -> list[Piece]:
        """As many rows as the piece has, of the row groups that follow it, round and round."""
        places = [(group.path, group.index) for group in self._row_groups]
        number = places.index((piece.path, piece.row_group))
        others = [*self._row_groups[number + 1 :], *self._row_groups[:number]]
        whole = [group for group in others if (group.path, group.index) not in self._damaged]
        if not whole:
            raise LoaderError(
                f"Expected a row group that can be read. Received: {len(places)} damaged ones. "
                f"The last one: {self._damaged[places[number]]}"
            )
        found = []
        missing = piece.rows
        following = itertools.cycle(whole)
        while missing:
            group = next(following)
            rows = min(missing, group.rows)
            found.append(Piece(group.path, group.index, group.start, rows, piece.number))
            missing -= rows
        return found


class SkippingReader:
    """Reads as another reader does, and other rows in the place of damaged ones.

    Args:
        reader: what reads.
        stand_ins: what it reads instead.
    """

    def __init__(self, reader: ChunkReader, stand_ins: StandIns) -> None:
        self._reader = reader
        self._stand_ins = stand_ins

    def read(self, pieces: Sequence[Piece]) -> list[pl.DataFrame]:
        """One frame a piece.

        Raises:
            LoaderError: when not one row group can be read.
        """
        frames, counts = self._stand_ins.read(self._reader.read, pieces)
        rest = iter(frames)
        return [pl.concat(itertools.islice(rest, count)) for count in counts]
