"""Changed files, and the replacement of damaged row groups under `on_bad_files="skip"`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import polars as pl

from loader.errors import DamagedError, LoaderError
from loader.files.parquet_files import ReadableFiles, RowGroup
from loader.files.skipped import Skipped
from loader.order.epoch_plan import Piece
from loader.read.chunks import check_pages, unreadable

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class PieceReader(Protocol[T_co]):
    """A reader of pieces, all at once; it raises `DamagedError` at the first damaged one."""

    def read(self, pieces: Sequence[Piece]) -> T_co:
        """Read the pieces' rows."""


class SkippingReader(Generic[T]):
    """Another reader, with other rows in place of damaged ones.

    Leaving rows out would give workers different numbers of steps, and workers with more steps
    would wait for the others forever. So a damaged row group is replaced with as many rows of the
    row groups that follow it in the files. The replacement depends on the files alone: every epoch
    keeps its number of batches, and a position refers to the same rows after an interruption.

    Args:
        reader: reads pieces.
        row_groups: all row groups of the data.
        skipped: records what was replaced.
        regroup: combines the results that replace each piece, given all results and their number
            for each piece. Default: for a reader that returns one result for all pieces.
    """

    def __init__(
        self,
        reader: PieceReader[T],
        row_groups: Sequence[RowGroup],
        skipped: Skipped,
        regroup: Callable[[T, Sequence[int]], T] = lambda data, _: data,
    ) -> None:
        self._reader = reader
        self._row_groups = row_groups
        self._numbers = {(group.path, group.index): n for n, group in enumerate(row_groups)}
        self._skipped = skipped
        self._regroup = regroup
        self._damaged: dict[tuple[str, int], DamagedError] = {}

    def read(self, pieces: Sequence[Piece]) -> T:
        """Read pieces, again for as long as damaged ones are found among them.

        Raises:
            LoaderError: every row group is damaged.
        """
        while True:
            places = [self._instead_of(piece) for piece in pieces]
            every = list(itertools.chain.from_iterable(places))
            try:
                data = self._reader.read(every)
            except DamagedError as error:
                self._add(error)
                self._find_others(every)
            else:
                return self._regroup(data, list(map(len, places)))

    def _find_others(self, pieces: Sequence[Piece]) -> None:
        """Read pieces one by one: all of them again for each damaged one would take the square."""
        for piece in pieces:
            if (piece.path, piece.row_group) not in self._damaged:
                try:
                    self._reader.read([piece])
                except DamagedError as error:
                    self._add(error)

    def _add(self, error: DamagedError) -> None:
        # Without its traceback, which would keep frames read before it alive, on a GPU too.
        self._damaged[error.where] = DamagedError(str(error), error.where)

    def _instead_of(self, piece: Piece) -> list[Piece]:
        error = self._damaged.get((piece.path, piece.row_group))
        if error is None:
            return [piece]
        self._skipped.add_row_group(piece.path, piece.row_group, error)
        return self._stand_ins(piece)

    def _stand_ins(self, piece: Piece) -> list[Piece]:
        """Pieces with as many rows, from the row groups that follow it, cyclically."""
        place = piece.path, piece.row_group
        number = self._numbers[place]
        row_groups = [*self._row_groups[number + 1 :], *self._row_groups[:number]]
        whole = (group for group in row_groups if (group.path, group.index) not in self._damaged)
        following = itertools.cycle(whole)
        stand_ins: list[Piece] = []
        missing = piece.rows
        while missing:
            group = next(following, None)
            if group is None:
                raise LoaderError(
                    f"Expected a row group that can be read. Received: {len(self._numbers)} damaged "
                    f"ones. The last one: {self._damaged[place]}"
                )
            rows = min(missing, group.rows)
            stand_ins.append(Piece(group.path, group.index, group.start, rows, piece.number))
            missing -= rows
        return stand_ins


class UnchangedReader(Generic[T]):
    """Another reader that refuses files that have changed since they were listed.

    Row groups are known from footers read at the start: a file that has grown, shrunk or gone since
    would have other rows in their places. Pages that have checksums are checked on the host before
    they are first read, since a damaged page can crash the CUDA context.

    Args:
        reader: reads pieces.
        source: all row groups of the data.
    """

    def __init__(self, reader: PieceReader[T], source: ReadableFiles) -> None:
        self._reader = reader
        self._columns = list(source.types)
        # The reader compares objects with their state, and the checksums with what it has fetched.
        files = {p: f for p, f in source.files.items() if isinstance(f.path, Path)}.items()
        self._checksums = {path: file.checksums for path, file in files}
        self._sizes = {path: file.size for path, file in files}

    def read(self, pieces: Sequence[Piece]) -> T:
        """Read pieces.

        Raises:
            DamagedError: a file has changed, or `reader` finds it damaged.
        """
        by_file: dict[str, list[Piece]] = {}
        for piece in pieces:
            by_file.setdefault(piece.path, []).append(piece)
        for path, file_pieces in by_file.items():
            if path not in self._sizes:
                continue
            size, expected = _size(path), self._sizes[path]
            if size is None:
                raise unreadable(file_pieces[0], "no such file")
            if size != expected:
                raise unreadable(file_pieces[0], f"{size} bytes where it had {expected}")
            by_group = {piece.row_group: piece for piece in file_pieces}
            check_pages(self._checksums[path], by_group, self._columns)
        return self._reader.read(pieces)


def _size(path: str) -> int | None:
    """The bytes of a file; None if it does not exist."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return None


def one_frame_each(frames: Sequence[pl.DataFrame], counts: Sequence[int]) -> list[pl.DataFrame]:
    """Join frames in consecutive runs of `counts`: `regroup` for a `ChunkReader`."""
    rest = iter(frames)
    return [pl.concat(itertools.islice(rest, count)) for count in counts]
