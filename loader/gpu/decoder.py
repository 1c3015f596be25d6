"""Parquet decoded into tables on the GPU, by cuDF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loader.files.layout import BatchColumn, BatchLayout
from loader.files.parquet_files import RowGroup
from loader.gpu.cuda import CUDF_ERRORS, gpu_lives, tell_gpu_errors, use_device
from loader.order.epoch_plan import Piece
from loader.read.chunks import null_error, takes_no_null, too_long, unreadable


class Decoder:
    """A decoder of parquet pieces on the GPU, on its own CUDA stream.

    Args:
        layout: the columns wanted.
        row_groups: all row groups of the data; pieces that are whole row groups decode fastest.
        number: the GPU's number.

    Attributes:
        stream: the CUDA stream; it has finished with a table when `read` returns it.
    """

    def __init__(self, layout: BatchLayout, row_groups: Sequence[RowGroup], number: int) -> None:
        import pylibcudf  # noqa: PLC0415 - it needs a GPU to be imported
        from rmm.pylibrmm.stream import Stream  # noqa: PLC0415

        self._plc = pylibcudf
        self._layout = layout
        self._whole = {(g.path, g.index): (g.start, g.rows) for g in row_groups}
        self._number = number
        use_device(number)
        self.stream = Stream()

    def read(self, pieces: Sequence[Piece]) -> Any:
        """Read all pieces' rows into one table, in order.

        Raises:
            DamagedError: a file that cannot be decoded, or a null where no tensor can hold one.
            LoaderError: a list longer than its padded width, out of memory, or a damaged page after
                which this process can no longer use the GPU, which nothing can skip.
        """
        use_device(self._number)
        with tell_gpu_errors(pieces):
            table = self._decode(pieces)
            self.stream.synchronize()
            self._check_nulls(table, pieces)
            self._check_lengths(table, pieces)
            return table

    def _decode(self, pieces: Sequence[Piece]) -> Any:
        if all(self._is_whole(piece) for piece in pieces):
            table = self._read_whole(pieces)
            if table is not None:
                return table
        tables = [self._read_alone(piece) for piece in pieces]
        if len(tables) == 1:
            return tables[0]
        return self._plc.concatenate.concatenate(tables, stream=self.stream)

    def _is_whole(self, piece: Piece) -> bool:
        return self._whole.get((piece.path, piece.row_group)) == (piece.start, piece.rows)

    def _read_whole(self, pieces: Sequence[Piece]) -> Any | None:
        """All pieces in one read; None if one of them is damaged, so that each has to be tried."""
        paths, groups = _by_file(pieces)
        options = self._options(paths)
        options.set_row_groups(groups)
        try:
            table = self._plc.io.parquet.read_parquet(options, stream=self.stream).tbl
        except CUDF_ERRORS:
            if not gpu_lives():
                raise
            return None
        if table.num_rows() != sum(piece.rows for piece in pieces):
            return None
        self._check_types(table, pieces[0])
        return table

    def _read_alone(self, piece: Piece) -> Any:
        options = self._options([piece.path])
        options.set_skip_rows(piece.start)
        options.set_num_rows(piece.rows)
        try:
            table = self._plc.io.parquet.read_parquet(options, stream=self.stream).tbl
        except CUDF_ERRORS as error:
            if not gpu_lives():
                raise
            raise unreadable(
                piece, f'{error} (of cuDF; with device="cpu" it may be read)'
            ) from error
        if table.num_rows() != piece.rows:
            raise unreadable(piece, f"{table.num_rows()} rows, unlike its footer")
        self._check_types(table, piece)
        return table

    def _options(self, paths: list[str]) -> Any:
        parquet, types = self._plc.io.parquet, self._plc.io.types
        builder = parquet.ParquetReaderOptions.builder(types.SourceInfo(paths))
        return builder.column_names(self._layout.names).build()

    def _check_types(self, table: Any, piece: Piece) -> None:
        """Check types again: the file may have changed since the loader read its footer."""
        if table.num_columns() != len(self._layout.names):
            raise unreadable(piece, f"{table.num_columns()} of {len(self._layout.names)} columns")
        for column, data in zip(self._layout.columns, table.columns(), strict=True):
            is_list = data.type().id() == self._plc.TypeId.LIST
            values = data.list_view().child() if is_list else data
            dtype = column.type.dtype
            expected = self._plc.TypeId["BOOL8" if dtype == "bool" else dtype.upper()]
            if is_list != column.type.is_list or values.type().id() != expected:
                reason = f"{values.type().id().name} in column {column.name!r}, not {column.type}"
                raise unreadable(piece, reason)

    def _check_nulls(self, table: Any, pieces: Sequence[Piece]) -> None:
        columns = zip(self._layout.columns, table.columns(), strict=True)
        bad = {
            column: self._parts(data, pieces)
            for column, data in columns
            if takes_no_null(column) and _elements(column, data).null_count()
        }
        for number, piece in enumerate(pieces if bad else ()):
            nulls = {
                column: self._own_elements(column, parts[number]).null_count()
                for column, parts in bad.items()
            }
            if any(nulls.values()):
                raise null_error(nulls, piece)

    def _check_lengths(self, table: Any, pieces: Sequence[Piece]) -> None:
        for column, data in zip(self._layout.columns, table.columns(), strict=True):
            if column.width is None or self._longest(data) <= column.width:
                continue
            for piece, part in zip(pieces, self._parts(data, pieces), strict=True):
                if (longest := self._longest(part)) > column.width:
                    raise too_long(column, piece, longest)

    def _parts(self, data: Any, pieces: Sequence[Piece]) -> list[Any]:
        """A column's rows by piece."""
        bounds, start = [], 0
        for piece in pieces:
            bounds += [start, start + piece.rows]
            start += piece.rows
        return list(self._plc.copying.slice(data, bounds, stream=self.stream))

    def _own_elements(self, column: BatchColumn, part: Any) -> Any:
        """The values of some rows; a list's child column contains its neighbours' values too."""
        return part.list_view().get_sliced_child(self.stream) if column.type.is_list else part

    def _longest(self, data: Any) -> int:
        counts = self._plc.lists.count_elements(data, stream=self.stream)
        _, most = self._plc.reduce.minmax(counts, stream=self.stream)
        return most.to_py(self.stream) or 0  # None where all rows are null


def _elements(column: BatchColumn, data: Any) -> Any:
    return data.list_view().child() if column.type.is_list else data


def _by_file(pieces: Sequence[Piece]) -> tuple[list[str], list[list[int]]]:
    """Files, each with the row groups of consecutive pieces, as cuDF reads them in order."""
    paths: list[str] = []
    groups: list[list[int]] = []
    for piece in pieces:
        if not paths or paths[-1] != piece.path:
            paths.append(piece.path)
            groups.append([])
        groups[-1].append(piece.row_group)
    return paths, groups
