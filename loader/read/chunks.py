"""Pieces of parquet read into memory: the interface, and the reader for the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from loader.errors import DamagedError, LoaderError
from loader.files.fetch import Copy, Fetcher
from loader.files.layout import BatchColumn, BatchLayout
from loader.files.parquet_files import ReadableFiles
from loader.order.epoch_plan import Piece
from workflow.data.checksums import Checksums
from workflow.errors import WorkflowError
from workflow.schema.dtypes import DTYPES

_UNREADABLE = (pl.exceptions.PolarsError, OSError, pl.exceptions.PanicException)

# Files whose parsed footers are kept.
_SCANS = 64
# Queries of one call: Polars starts a thread for each, and warns of a deadlock at 512.
_QUERIES = 128
# Above this many rows a query's time is its reading, below it is its planning.
JOINED_ROWS = 16384


class ChunkReader(Protocol):
    """A reader of pieces as data frames; each device has one."""

    def read(self, pieces: Sequence[Piece]) -> list[pl.DataFrame]:
        """One frame for each piece with the wanted columns, each checked against the layout."""


class ParquetReader:
    """A reader of row groups with Polars, several in one query to use all cores.

    Args:
        layout: the columns wanted.
        options: further arguments of `polars.scan_parquet`.
        source: the files.
    """

    def __init__(
        self, layout: BatchLayout, options: Mapping[str, Any], source: ReadableFiles
    ) -> None:
        self._layout = layout
        self._table, self._files, self._fetcher = source.table, source.files, source.fetcher
        self._options = {"glob": False, "hive_partitioning": False, **options}
        # A scan that is used again keeps the footer it has parsed.
        self._scan = lru_cache(_SCANS)(self._open)

    def _open(self, path: str | Path) -> pl.LazyFrame:
        return pl.scan_parquet(path, **self._options)

    def read(self, pieces: Sequence[Piece]) -> list[pl.DataFrame]:
        """Decode the pieces.

        Raises:
            LoaderError: a file that cannot be decoded, or values that do not fit the layout.
        """
        copies = {} if self._fetcher is None else self._fetch(self._fetcher, pieces)
        runs = _neighbours(pieces)
        try:
            results = _collect([self._query(r, copies) for r in runs], sum(p.rows for p in pieces))
        except _UNREADABLE:
            frames = [
                self._read_alone(piece, copies) for piece in pieces
            ]  # finds the one that fails
        else:
            pairs = zip(runs, results, strict=True)
            frames = [frame for run, whole in pairs for frame in _cut(whole, run)]
        for piece, frame in zip(pieces, frames, strict=True):
            check(frame, piece, self._layout)
        return frames

    def _fetch(self, fetcher: Fetcher, pieces: Sequence[Piece]) -> dict[str, Copy]:
        """Copies of the objects among the pieces' files, with the pieces' row groups.

        Raises:
            DamagedError: an object is no longer the listed one, or differs from its checksums.
            LoaderError: its store cannot be reached.
        """
        try:
            copies = fetcher.take(places_of(pieces))
        except WorkflowError as error:
            raise LoaderError(str(error)) from error
        except OSError as error:
            first = next(piece for piece in pieces if piece.path == error.filename)
            raise unreadable(first, error.strerror) from error
        for path, copy in copies.items():
            by_group = {piece.row_group: piece for piece in pieces if piece.path == path}
            check_pages(self._files[path].checksums, by_group, list(self._table.schema), copy.path)
        return copies

    def _read_alone(self, piece: Piece, copies: Mapping[str, Copy]) -> pl.DataFrame:
        try:
            return _collect([self._query([piece], copies)], piece.rows)[0]
        except _UNREADABLE as error:
            raise unreadable(piece, error) from error

    def _query(self, run: Sequence[Piece], copies: Mapping[str, Copy]) -> pl.LazyFrame:
        path, start = run[0].path, run[0].start
        rows = sum(piece.rows for piece in run)
        # Not kept: the next copy may have the path of this one.
        frame = self._open(copies[path].path) if path in copies else self._scan(path)
        return self._table.columns_of(frame.slice(start, rows), self._files[path])


def places_of(pieces: Sequence[Piece]) -> list[tuple[str, int]]:
    """File and row group of each piece."""
    return [(piece.path, piece.row_group) for piece in pieces]


def check_pages(
    checksums: Checksums | None,
    pieces: Mapping[int, Piece],
    columns: Sequence[str],
    copy: Path | None = None,
) -> None:
    """Check the pages of a file that were not checked before, if it has checksums.

    Args:
        checksums: those of the file.
        pieces: a piece of each row group.
        columns: the columns that are read.
        copy: the file to read if the file itself is an object.

    Raises:
        DamagedError: they differ, or the file cannot be read.
    """
    if checksums is None:
        return
    try:
        damage = checksums.damaged(pieces, columns, copy)
    except OSError as error:
        raise unreadable(next(iter(pieces.values())), error) from error
    if damage is not None:
        group, column = damage
        raise unreadable(pieces[group], f"other bytes than were written in column {column!r}")


def _neighbours(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Pieces grouped into queries: runs of small pieces that follow each other in a file."""
    runs: list[list[Piece]] = []
    rows = 0
    for piece in pieces:
        before = runs[-1][-1] if runs else None
        follows = before and (before.path, before.start + before.rows) == (piece.path, piece.start)
        if follows and rows + piece.rows <= JOINED_ROWS:
            runs[-1].append(piece)
        else:
            runs.append([piece])
            rows = 0
        rows += piece.rows
    return runs


def _cut(frame: pl.DataFrame, run: Sequence[Piece]) -> list[pl.DataFrame]:
    if len(run) == 1:
        return [frame]
    ends = accumulate(piece.rows for piece in run)
    return [frame[end - piece.rows : end] for piece, end in zip(run, ends, strict=True)]


def _collect(queries: list[pl.LazyFrame], rows: int) -> list[pl.DataFrame]:
    """The frames of queries that read `rows` rows in all."""
    # Streaming takes two thirds of the time for queries of few rows, somewhat more for larger ones.
    streams = rows <= len(queries) * JOINED_ROWS
    return [
        frame
        for first in range(0, len(queries), _QUERIES)
        for frame in pl.collect_all(
            queries[first : first + _QUERIES],
            engine="streaming" if streams else "in-memory",
            # Polars would merge scans of one file, and decode all of it for a few row groups.
            optimizations=pl.QueryOptFlags(comm_subplan_elim=False),
        )
    ]


class FrameReader:
    """A data frame in memory, cut into pieces as if it were a file."""

    def __init__(self, layout: BatchLayout, frame: pl.DataFrame) -> None:
        self._layout = layout
        self._frame = frame.select(pl.col(c.name).cast(c.type.polars) for c in layout.columns)

    def read(self, pieces: Sequence[Piece]) -> list[pl.DataFrame]:
        """Cut the pieces out, in the frame's own memory."""
        frames = [self._frame[piece.start : piece.start + piece.rows] for piece in pieces]
        for piece, frame in zip(pieces, frames, strict=True):
            check(frame, piece, self._layout)
        return frames


def check(frame: pl.DataFrame, piece: Piece, layout: BatchLayout) -> None:
    """Check that tensors can carry a decoded piece.

    Raises:
        DamagedError: rows or types that differ from the footer, or a null in a column that is not a
            float.
        LoaderError: a list longer than its padded width.
    """
    if len(frame) != piece.rows:
        raise unreadable(piece, f"{len(frame)} rows where the footer promised {piece.rows}")
    nulls = {}
    for column in layout.columns:
        series = frame.get_column(column.name)
        _check_type(series, column, piece)
        if column.type.is_list:
            _check_longest(series, column, piece)
        if takes_no_null(column):
            elements = elements_of(series) if column.type.is_list else series
            nulls[column] = elements.null_count()
    if any(nulls.values()):
        raise null_error(nulls, piece)


def _check_type(series: pl.Series, column: BatchColumn, piece: Piece) -> None:
    """Check the type again: the file may have changed since the loader read its footer."""
    if series.dtype != column.type.polars:
        raise unreadable(piece, f"{series.dtype} in column {column.name!r}, not {column.type}")


def takes_no_null(column: BatchColumn) -> bool:
    """Whether a column's tensor cannot hold nulls; in a float column a null becomes NaN."""
    return DTYPES[column.type.dtype].kind != "float"


def _check_longest(series: pl.Series, column: BatchColumn, piece: Piece) -> None:
    longest = lengths_of(series).max() if column.width is not None else 0
    if column.width is not None and isinstance(longest, int) and longest > column.width:
        raise too_long(column, piece, longest)


def elements_of(series: pl.Series) -> pl.Series:
    """The elements of all rows of a list column, one after another."""
    return series.explode(empty_as_null=False, keep_nulls=False)


def lengths_of(series: pl.Series) -> pl.Series:
    """The row lengths of a list column; a null row is an empty row. Int32."""
    return series.list.len().fill_null(0).cast(pl.Int32)


def null_error(nulls: Mapping[BatchColumn, int], piece: Piece) -> DamagedError:
    """The error for nulls where tensors cannot hold any, from the number in each column."""
    nonzero = {column: count for column, count in nulls.items() if count}
    columns = ", ".join(f"{column.name!r} ({column.type})" for column in nonzero)
    counts = ", ".join(f"{count} in {column.name!r}" for column, count in nonzero.items())
    return DamagedError(
        f"Expected no nulls in {columns}. Received: nulls, {counts}, in {_where(piece)}. "
        "Fill them in the workflow, with FillMissing or Categorify, or in a LambdaOp, as in "
        "(rating > 3).fill_null(False): a comparison with null is null. Leave rows without a label "
        "or a weight out of the data, as with frame.drop_nulls(label) in Polars: filled, they teach a "
        "false one.",
        (piece.path, piece.row_group),
    )


def too_long(column: BatchColumn, piece: Piece, longest: int) -> LoaderError:
    """The error for a list that does not fit the width to which its column is padded."""
    return LoaderError(
        f"Expected lists of at most {column.width} elements in column {column.name!r} "
        f"(sparse_max). Received: {longest} elements in {_where(piece)}. "
        "Raise sparse_max, or cut the lists in the workflow."
    )


def unreadable(piece: Piece, reason: object) -> DamagedError:
    """The error for a piece that cannot be decoded."""
    return DamagedError(
        f"Expected {piece.rows} rows from {_where(piece)}. Received: {reason}. "
        "The file has changed or is damaged: write it again.",
        (piece.path, piece.row_group),
    )


def _where(piece: Piece) -> str:
    return f"{piece.path}, row group {piece.row_group}"
