"""From parquet to tables on the GPU, by cuDF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from loader.chunks import null_error, takes_no_null, too_long, unreadable
from loader.damage import StandIns
from loader.errors import LoaderError
from loader.files import RowGroup
from loader.gpu.runtime import use_device
from loader.layout import BatchColumn, Layout
from loader.plan import Piece


class TableReader(Protocol):
    """Turns pieces into one cuDF table with the rows of all of them, in order."""

    def read(self, pieces: Sequence[Piece]) -> Any:
        """The table, each piece's rows checked against the layout."""


class Decoder:
    """Decodes pieces of parquet on the GPU, on a CUDA stream of its own.

    Args:
        layout: the columns wanted.
        row_groups: all row groups there are; what is whole of them decodes fastest.
        number: the GPU's number.

    Attributes:
        stream: the CUDA stream; a table that `read` gives is ready.
    """

    def __init__(self, layout: Layout, row_groups: Sequence[RowGroup], number: int) -> None:
        import pylibcudf  # noqa: PLC0415 - it needs a GPU to be imported
        from rmm.pylibrmm.stream import Stream  # noqa: PLC0415

        self._plc = pylibcudf
        self._layout = layout
        self._whole = {(g.path, g.index): (g.start, g.rows) for g in row_groups}
        self._sizes = {path: _size(path) for path in {group.path for group in row_groups}}
        self._number = number
        use_device(number)
        self.stream = Stream()

    def read(self, pieces: Sequence[Piece]) -> Any:
        """One table of all pieces' rows, in order.

        Raises:
            DamagedError: a file that cannot be decoded, or a null where no tensor can hold one.
            LoaderError: a list longer than its padded width, too little memory, or a damaged page
                that ended this process's use of the GPU, which nothing can skip.
        """
        use_device(self._number)
        for piece in pieces:
            self._check_size(piece)
        table = self._decode(pieces)
        self.stream.synchronize()
        self._check_nulls(table, pieces)
        self._check_lengths(table, pieces)
        return table

    def _check_size(self, piece: Piece) -> None:
        size, expected = _size(piece.path), self._sizes[piece.path]
        if size != expected:
            received = "no such file" if size is None else f"{size} bytes where it had {expected}"
            raise unreadable(piece, received)

    def _decode(self, pieces: Sequence[Piece]) -> Any:
        try:
            if all(self._is_whole(piece) for piece in pieces):
                table = self._read_whole(pieces)
                if table.num_rows() == sum(piece.rows for piece in pieces):
                    self._check_types(table, pieces[0])
                    return table
        except MemoryError as error:
            raise LoaderError(
                f"Expected GPU memory for {sum(p.rows for p in pieces)} rows at once. "
                f"Received: {error}. Lower buffer_size, or what TensorFlow takes, with "
                "configure_tensorflow."
            ) from error
        except (RuntimeError, OSError) as error:  # one of them is damaged: read them one by one
            check_gpu_lives(error, pieces)
        tables = [self._read_alone(piece) for piece in pieces]
        if len(tables) == 1:
            return tables[0]
        return self._plc.concatenate.concatenate(tables, stream=self.stream)

    def _is_whole(self, piece: Piece) -> bool:
        return self._whole.get((piece.path, piece.row_group)) == (piece.start, piece.rows)

    def _read_whole(self, pieces: Sequence[Piece]) -> Any:
        paths, groups = _by_file(pieces)
        options = self._options(paths)
        options.set_row_groups(groups)
        return self._plc.io.parquet.read_parquet(options, stream=self.stream).tbl

    def _read_alone(self, piece: Piece) -> Any:
        options = self._options([piece.path])
        options.set_skip_rows(piece.start)
        options.set_num_rows(piece.rows)
        try:
            table = self._plc.io.parquet.read_parquet(options, stream=self.stream).tbl
        except (RuntimeError, OSError) as error:
            check_gpu_lives(error, [piece])
            raise unreadable(piece, error) from error
        if table.num_rows() != piece.rows:
            raise unreadable(piece, f"{table.num_rows()} rows where the footer promised others")
        self._check_types(table, piece)
        return table

    def _options(self, paths: list[str]) -> Any:
        parquet, types = self._plc.io.parquet, self._plc.io.types
        builder = parquet.ParquetReaderOptions.builder(types.SourceInfo(paths))
        return builder.column_names(self._layout.names).build()

    def _check_types(self, table: Any, piece: Piece) -> None:
        """The footer told the types when the loader was made; the file may be another now."""
        for column, data in zip(self._layout.columns, table.columns(), strict=True):
            is_list = data.type().id() == self._plc.TypeId.LIST
            values = data.list_view().child() if is_list else data
            dtype = column.type.dtype
            expected = self._plc.TypeId["BOOL8" if dtype == "bool" else dtype.upper()]
            if is_list != column.type.is_list or values.type().id() != expected:
                found = f"{values.type().id().name} in column {column.name!r}, not {column.type}"
                raise unreadable(piece, found)

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
        """The values of some rows; lists share theirs with the rows around them."""
        return part.list_view().get_sliced_child(self.stream) if column.type.is_list else part

    def _longest(self, data: Any) -> int:
        counts = self._plc.lists.count_elements(data, stream=self.stream)
        _, most = self._plc.reduce.minmax(counts, stream=self.stream)
        return most.to_py(self.stream) or 0  # None where all rows are null


class SkippingDecoder:
    """Decodes as another does, and other rows in the place of damaged ones.

    Args:
        decoder: what decodes.
        stand_ins: what it decodes instead.
    """

    def __init__(self, decoder: TableReader, stand_ins: StandIns) -> None:
        self._decoder = decoder
        self._stand_ins = stand_ins

    def read(self, pieces: Sequence[Piece]) -> Any:
        """One table of as many rows as the pieces have.

        Raises:
            LoaderError: when not one row group can be read.
        """
        table, _ = self._stand_ins.read(self._decoder.read, pieces)
        return table


def check_gpu_lives(error: Exception, pieces: Sequence[Piece]) -> None:
    """A kernel that reads outside of memory takes the process's whole CUDA context with it."""
    if any(sign in str(error) for sign in ("Fatal CUDA error", "cudaErrorIllegalAddress")):
        first, last = (f"{p.path}, row group {p.row_group}" for p in (pieces[0], pieces[-1]))
        where = first if first == last else f"{len(pieces)} row groups from {first} to {last}"
        raise LoaderError(
            f"Expected parquet that cuDF can decode in {where}. Received: {error}. After "
            'that the GPU works again only in a new process. device="cpu" finds what is damaged.'
        ) from error


def _elements(column: BatchColumn, data: Any) -> Any:
    return data.list_view().child() if column.type.is_list else data


def _size(path: str) -> int | None:
    """The bytes of a file; None where there is none."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return None


def _by_file(pieces: Sequence[Piece]) -> tuple[list[str], list[list[int]]]:
    """Files, each with consecutive pieces' row groups, as cuDF reads them in order."""
    paths: list[str] = []
    groups: list[list[int]] = []
    for piece in pieces:
        if not paths or paths[-1] != piece.path:
            paths.append(piece.path)
            groups.append([])
        groups[-1].append(piece.row_group)
    return paths, groups
