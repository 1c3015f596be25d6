"""What `on_bad_files="skip"` does with row groups that turn out to be damaged while reading."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from loader.chunks import ChunkReader
from loader.errors import DamagedError, LoaderError
from loader.files import RowGroup, Skipped
from loader.plan import Piece


class SkippingReader:
    """Reads as another reader does, and puts the rows of others in the place of damaged ones.

    Leaving rows out would give workers different numbers of steps, and those with more would
    wait for the others for ever. So a damaged row group is replaced with as many rows of those
    that follow it in the files. That depends on nothing but the files: every epoch keeps its
    number of batches, and a position means the same rows after an interruption.

    Args:
        reader: what reads.
        row_groups: all row groups there are.
        skipped: where to write down what was replaced.
    """

    def __init__(
        self, reader: ChunkReader, row_groups: Sequence[RowGroup], skipped: Skipped
    ) -> None:
        self._reader = reader
        self._row_groups = row_groups
        self._skipped = skipped
        self._damaged: dict[tuple[str, int], DamagedError] = {}

    def read(self, pieces: Sequence[Piece]) -> list[pl.DataFrame]:
        """One frame a piece.

        Raises:
            LoaderError: when not one row group can be read.
        """
        if not any((piece.path, piece.row_group) in self._damaged for piece in pieces):
            try:
                return self._reader.read(pieces)
            except DamagedError:
                pass  # one of them: read them one by one
        return [self._read_or_replace(piece) for piece in pieces]

    def _read_or_replace(self, piece: Piece) -> pl.DataFrame:
        frame = self._try(piece)
        if frame is None:
            error = self._damaged[piece.path, piece.row_group]
            self._skipped.add_row_group(piece.path, piece.row_group, error)
            frame = self._stand_in(piece)
        return frame

    def _try(self, piece: Piece) -> pl.DataFrame | None:
        where = (piece.path, piece.row_group)
        if where in self._damaged:
            return None
        try:
            return self._reader.read([piece])[0]
        except DamagedError as error:
            self._damaged[where] = error
            return None

    def _stand_in(self, piece: Piece) -> pl.DataFrame:
        """As many rows as the piece has, of the row groups that follow it, round and round."""
        places = [(group.path, group.index) for group in self._row_groups]
        number = places.index((piece.path, piece.row_group))
        frames: list[pl.DataFrame] = []
        missing = piece.rows
        for group in [*self._row_groups[number + 1 :], *self._row_groups[:number]]:
            rows = min(missing, group.rows)
            frame = self._try(Piece(group.path, group.index, group.start, rows, piece.number))
            if frame is not None:
                frames.append(frame)
                missing -= rows
            if not missing:
                break
        if not frames:
            raise LoaderError(
                f"Expected a row group that can be read. Received: {len(places)} damaged ones. "
                f"The last one: {self._damaged[places[number]]}"
            )
        repeats = -(-piece.rows // (piece.rows - missing))
        return pl.concat(frames * repeats)[: piece.rows]
