"""Reading pieces of parquet into memory: the interface, and the reader for the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import polars as pl

from loader.errors import DamagedError, LoaderError
from loader.layout import BatchColumn, Layout
from loader.plan import Piece
from workflow.schema import DTYPES


class ChunkReader(Protocol):
    """Turns pieces into data frames; each device has one."""

    def read(self, pieces: Sequence[Piece]) -> list[pl.DataFrame]:
        """One frame a piece with the wanted columns, each checked against the layout."""


class ParquetReader:
    """Reads row groups with Polars, several in one query so that all cores have work.

    Args:
        layout: the columns wanted.
        options: further arguments of `polars.scan_parquet`.
    """

    def __init__(self, layout: Layout, options: Mapping[str, Any]) -> None:
        self._layout = layout
        self._options = dict(options)

    def read(self, pieces: Sequence[Piece]) -> list[pl.DataFrame]:
        """Decode the pieces.

        Raises:
            LoaderError: a file that cannot be decoded, or values that do not fit the layout.
        """
        queries = [self._query(piece) for piece in pieces]
        try:
            frames = _collect(queries)
        except (pl.exceptions.PolarsError, OSError, pl.exceptions.PanicException) as error:
            raise self._culprit(pieces, error) from error
        for piece, frame in zip(pieces, frames, strict=True):
            check(frame, piece, self._layout)
        return frames

    def _query(self, piece: Piece) -> pl.LazyFrame:
        scan = pl.scan_parquet(piece.path, glob=False, **self._options)
        return scan.slice(piece.start, piece.rows).select(self._layout.names)

    def _culprit(self, pieces: Sequence[Piece], error: BaseException) -> DamagedError:
        """Read piece by piece to tell which one is broken."""
        for piece in pieces:
            try:
                _collect([self._query(piece)])
            except (pl.exceptions.PolarsError, OSError, pl.exceptions.PanicException) as reason:
                return unreadable(piece, reason)
        return unreadable(pieces[0], error)


def _collect(queries: list[pl.LazyFrame]) -> list[pl.DataFrame]:
    # Polars would make one scan of those of one file, and decode all of it for a few row groups.
    return pl.collect_all(queries, optimizations=pl.QueryOptFlags(comm_subplan_elim=False))


class FrameReader:
    """Cuts a data frame in memory into chunks, as if it were a file."""

    def __init__(self, layout: Layout, frame: pl.DataFrame) -> None:
        self._layout = layout
        self._frame = frame.select(layout.names)

    def read(self, pieces: Sequence[Piece]) -> list[pl.DataFrame]:
        """Cut the pieces out. Tensors may borrow them: TensorFlow writes to nothing it borrows."""
        frames = [self._frame[piece.start : piece.start + piece.rows] for piece in pieces]
        for piece, frame in zip(pieces, frames, strict=True):
            check(frame, piece, self._layout)
        return frames


def check(frame: pl.DataFrame, piece: Piece, layout: Layout) -> None:
    """Hold a decoded piece to what tensors can carry.

    Raises:
        DamagedError: other rows or types than the footer promised, or a null in a column that is
            not of floats.
        LoaderError: a list longer than its padded width.
    """
    if len(frame) != piece.rows:
        raise unreadable(piece, f"{len(frame)} rows where the footer promised {piece.rows}")
    for column in layout.columns:
        series = frame.get_column(column.name)
        _check_type(series, column, piece)
        if column.type.is_list:
            _check_list(series, column, piece)
        elif DTYPES[column.type.dtype].kind != "float" and series.null_count():
            raise null_error(column, piece, series.null_count())


def _check_type(series: pl.Series, column: BatchColumn, piece: Piece) -> None:
    """The footer told the type when the loader was made; the file may be another one now."""
    is_list = isinstance(series.dtype, (pl.List, pl.Array))
    element = series.dtype.inner if isinstance(series.dtype, (pl.List, pl.Array)) else series.dtype
    if is_list != column.type.is_list or str(element) != DTYPES[column.type.dtype].polars:
        raise unreadable(piece, f"{series.dtype} in column {column.name!r}, not {column.type}")


def _check_list(series: pl.Series, column: BatchColumn, piece: Piece) -> None:
    if DTYPES[column.type.dtype].kind != "float":
        elements = elements_of(series)
        if elements.null_count():
            raise null_error(column, piece, elements.null_count())
    longest = lengths_of(series).max() if column.width is not None else 0
    if column.width is not None and isinstance(longest, int) and longest > column.width:
        raise too_long(column, piece, longest)


def elements_of(series: pl.Series) -> pl.Series:
    """The elements of all rows of a list column, one after another."""
    if isinstance(series.dtype, pl.Array):
        series = series.arr.to_list()
    return series.explode(empty_as_null=False, keep_nulls=False)


def lengths_of(series: pl.Series) -> pl.Series:
    """The row lengths of a list column; a null row is an empty row. Int32."""
    if isinstance(series.dtype, pl.Array):
        series = series.arr.to_list()
    return series.list.len().fill_null(0).cast(pl.Int32)


def null_error(column: BatchColumn, piece: Piece, nulls: int) -> DamagedError:
    """The error for nulls where a tensor cannot hold any."""
    return DamagedError(
        f"Expected column {column.name!r} ({column.type}) without nulls. "
        f"Received: {nulls} nulls in {_where(piece)}. "
        "Fill them in the workflow with FillMissing or Categorify."
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
        "The file has changed or is damaged: write it again."
    )


def _where(piece: Piece) -> str:
    return f"{piece.path}, row group {piece.row_group}"
