"""Reading pieces of parquet into memory: the interface, and the reader for the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import polars as pl

from loader.errors import LoaderError
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
            frames = pl.collect_all(queries)
        except (pl.exceptions.PolarsError, OSError, pl.exceptions.PanicException) as error:
            raise self._culprit(pieces, error) from error
        for piece, frame in zip(pieces, frames, strict=True):
            check(frame, piece, self._layout)
        return frames

    def _query(self, piece: Piece) -> pl.LazyFrame:
        scan = pl.scan_parquet(piece.path, glob=False, **self._options)
        return scan.slice(piece.start, piece.rows).select(self._layout.names)

    def _culprit(self, pieces: Sequence[Piece], error: BaseException) -> LoaderError:
        """Read piece by piece to tell which one is broken."""
        for piece in pieces:
            try:
                self._query(piece).collect()
            except (pl.exceptions.PolarsError, OSError, pl.exceptions.PanicException) as reason:
                return _unreadable(piece, reason)
        return _unreadable(pieces[0], error)


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
        LoaderError: fewer rows than the footer promised, a null in a column that is not of
            floats, or a list longer than its padded width.
    """
    if len(frame) != piece.rows:
        raise _unreadable(piece, f"{len(frame)} rows where the footer promised {piece.rows}")
    for column in layout.columns:
        series = frame.get_column(column.name)
        if column.type.is_list:
            _check_list(series, column, piece)
        elif DTYPES[column.type.dtype].kind != "float" and series.null_count():
            raise _null(column.name, piece, series)


def _check_list(series: pl.Series, column: BatchColumn, piece: Piece) -> None:
    if DTYPES[column.type.dtype].kind != "float":
        elements = elements_of(series)
        if elements.null_count():
            raise _null(column.name, piece, elements)
    longest = lengths_of(series).max() if column.width is not None else 0
    if column.width is not None and isinstance(longest, int) and longest > column.width:
        raise LoaderError(
            f"Expected lists of at most {column.width} elements in column {column.name!r} "
            f"(sparse_max). Received: {longest} elements in {_where(piece)}. "
            "Raise sparse_max, or cut the lists in the workflow."
        )


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


def _null(name: str, piece: Piece, series: pl.Series) -> LoaderError:
    return LoaderError(
        f"Expected column {name!r} ({series.dtype}) without nulls. "
        f"Received: {series.null_count()} nulls in {_where(piece)}. "
        "Fill them in the workflow with FillMissing or Categorify."
    )


def _unreadable(piece: Piece, reason: object) -> LoaderError:
    return LoaderError(
        f"Expected {piece.rows} rows from {_where(piece)}. Received: {reason}. "
        "The file has changed or is damaged: write it again."
    )


def _where(piece: Piece) -> str:
    return f"{piece.path}, row group {piece.row_group}"
