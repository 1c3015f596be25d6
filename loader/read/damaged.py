"""Files that changed, and what `on_bad_files="skip"` does with row groups that are damaged."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import polars as pl

from loader.errors import DamagedError, LoaderError
from loader.files.parquet_files import ReadableFiles, RowGroup, Skipped
from loader.order.plan import Piece
from loader.read.chunks import unreadable

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class PieceReader(Protocol[T_co]):
    """Reads pieces, all at once; raises `DamagedError` at the first that is damaged."""

    def read(self, pieces: Sequence[Piece]) -> T_co:
        """Read the pieces' rows."""


class SkippingReader(Generic[T]):
    """Reads as another reader does, and other rows in the place of damaged ones.

    Leaving rows out would give workers different numbers of steps, and those with more would
    wait for the others for ever. So a damaged row group is replaced with as many rows of those
    that follow it in the files. That depends on nothing but the files: every epoch keeps its
    number of batches, and a position means the same rows after an interruption.

    Args:
        reader: what reads.
        row_groups: all row groups there are.
        skipped: where to write down what was replaced.
        regroup: puts together what was read in the place of each piece, from all that was read
            and the number of pieces in each place. Default: for a reader that gives one thing for
            all pieces.
    """

    def __init__(
        self,
        reader: PieceReader[T],
        row_groups: Sequence[RowGroup],
        skipped: Skipped,
        regroup: Callable[[T, Sequence[int]], T] = lambda found, _: found,
    ) -> None:
        self._reader = reader
        self._row_groups = row_groups
        self._skipped = skipped
        self._regroup = regroup
        self._damaged: dict[tuple[str, int], DamagedError] = {}

    def read(self, pieces: Sequence[Piece]) -> T:
        """Read pieces, again for as long as a damaged one is found among them.

        Raises:
            LoaderError: when not one row group can be read.
        """
        while True:
            places = [self._instead_of(piece) for piece in pieces]
            try:
                found = self._reader.read(list(itertools.chain.from_iterable(places)))
            except DamagedError as error:
                # Without its traceback, which would keep what was read before it, GPU memory too.
                self._damaged[error.where] = DamagedError(str(error), error.where)
            else:
                return self._regroup(found, list(map(len, places)))

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


class UnchangedReader(Generic[T]):
    """Reads as another reader does, but no file that differs from what was written.

    Row groups are known from the footers of the beginning: a file that has grown, shrunk or gone
    since would have other rows at their places. Pages that have checksums are checked before they
    are read for the first time, on the host, since a damaged page can end the use of a GPU.

    Args:
        reader: what reads.
        source: all row groups there are.
    """

    def __init__(self, reader: PieceReader[T], source: ReadableFiles) -> None:
        self._reader = reader
        self._columns = list(source.types)
        files = source.files.items()
        self._checksums = {path: file.checksums for path, file in files}
        self._sizes = {path: file.size for path, file in files}

    def read(self, pieces: Sequence[Piece]) -> T:
        """Read pieces.

        Raises:
            DamagedError: a file has changed, or what reads finds it damaged.
        """
        by_file: dict[str, list[Piece]] = {}
        for piece in pieces:
            by_file.setdefault(piece.path, []).append(piece)
        for path, own in by_file.items():
            size, expected = _size(path), self._sizes[path]
            if size is None:
                raise unreadable(own[0], "no such file")
            if size != expected:
                raise unreadable(own[0], f"{size} bytes where it had {expected}")
            self._check_pages(path, {piece.row_group: piece for piece in own})
        return self._reader.read(pieces)

    def _check_pages(self, path: str, pieces: Mapping[int, Piece]) -> None:
        checksums = self._checksums.get(path)
        if checksums is None:
            return
        try:
            found = checksums.damaged(pieces, self._columns)
        except OSError as error:
            raise unreadable(next(iter(pieces.values())), error) from error
        if found is not None:
            group, column = found
            raise unreadable(pieces[group], f"other bytes than were written in column {column!r}")


def _size(path: str) -> int | None:
    """The bytes of a file; None where there is none."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return None


def one_frame_each(frames: Sequence[pl.DataFrame], counts: Sequence[int]) -> list[pl.DataFrame]:
    """Frames joined by consecutive runs of `counts`: how a `ChunkReader` is regrouped."""
    rest = iter(frames)
    return [pl.concat(itertools.islice(rest, count)) for count in counts]
