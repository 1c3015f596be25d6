"""Parquet files to read, and the contents of their footers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import polars as pl

from loader.errors import LoaderError
from loader.files.fetch import Fetcher, RemoteFile
from loader.files.skipped import Skipped
from workflow.data.checksums import TAIL, column_chunks
from workflow.data.dataset import DataFile, schema_beside
from workflow.data.frames import UNREADABLE
from workflow.data.objects import ObjectPath, fetch_ends
from workflow.data.parquet import ParquetTable, inner_type
from workflow.data.parquet_file import FooterSchemas, ParquetFile
from workflow.errors import WorkflowError
from workflow.expressions.polars.series import column_schema, polars_dtype
from workflow.schema.dtypes import DTYPES, SchemaError
from workflow.schema.names import did_you_mean, listed
from workflow.schema.schema import Schema


@dataclass(frozen=True)
class ColumnType:
    """The element dtype of a column (a name of the dtype table), and whether it holds lists."""

    dtype: str
    is_list: bool = False

    @property
    def polars(self) -> pl.DataType:
        """The Polars type that holds it."""
        return polars_dtype(self.dtype, is_list=self.is_list)

    def __str__(self) -> str:
        return f"list[{self.dtype}]" if self.is_list else self.dtype


@dataclass(frozen=True)
class RowGroup:
    """Rows of one file that decode together.

    Attributes:
        path: the file, or a description of the data frame.
        index: the number of the row group in its file.
        start: its first row, counted in the file.
        rows: the number of rows.
        nbytes: bytes of the wanted columns once decoded.
    """

    path: str
    index: int
    start: int
    rows: int
    nbytes: int


@dataclass(frozen=True)
class ReadableFiles:
    """The files that can be read.

    Attributes:
        types: types of the wanted columns.
        row_groups: the row groups in order.
        skipped: record of data that cannot be read; None when such data is an error.
        table: the files as one table of columns of these types; without files for a frame.
        fetcher: fetches the row groups of objects; None if all files are local.
    """

    types: dict[str, ColumnType]
    row_groups: list[RowGroup]
    skipped: Skipped | None = None
    table: ParquetTable = field(default_factory=lambda: ParquetTable([]))
    fetcher: Fetcher | None = None

    @property
    def files(self) -> dict[str, ParquetFile]:
        """The files by path."""
        return {str(file.path): file for file in self.table.files}

    def is_alike(self) -> bool:
        """Whether every file contains each column itself, with its type, also for cuDF."""
        return all(
            _own_types(file, self.types) == self.types
            and self.types.keys().isdisjoint(file.unread_by_cudf)
            for file in self.files.values()
        )


def read_schema(files: Sequence[DataFile]) -> Schema | None:
    """The schema that a workflow wrote beside the first file, or None.

    Raises:
        LoaderError: `_schema.json` exists, but is invalid.
    """
    with _as_loader_errors():
        return schema_beside(files)


@contextmanager
def _as_loader_errors() -> Iterator[None]:
    try:
        yield
    except WorkflowError as error:
        raise LoaderError(str(error)) from error


def read_footers(
    files: Sequence[DataFile], columns: Sequence[str], *, skip_bad: bool = False
) -> ReadableFiles:
    """Read the footers of all files, which form one table as in a workflow.

    Args:
        files: in the order in which they are read.
        columns: names of the wanted columns.
        skip_bad: leave out files that cannot be read, or whose types are incompatible with those of
            files before them, with a warning, instead of raising.

    Raises:
        LoaderError: a file that is not parquet, was truncated or is not the one that was published,
            a column that a file lacks, a type that no tensor can hold, or types without a common
            type that holds all values.
    """
    readable: list[ParquetFile] = []
    groups: list[list[RowGroup]] = []
    schemas = FooterSchemas()
    kinds: dict[object, ParquetFile] = {}
    skipped = Skipped() if skip_bad else None
    remote: dict[str, RemoteFile] = {}
    with _as_loader_errors():
        fetch_ends((file.path for file in files), TAIL)
    for data_file in files:
        try:
            file, file_groups = _read_footer(data_file, columns, schemas, remote)
            kind = (*file.schema.items(), *file.unread, *(name for name, _ in file.keys))
            if kind not in kinds:
                _expect_table(ParquetTable([*kinds.values(), file]), columns)
                kinds[kind] = file
        except LoaderError as error:
            if skipped is None:
                raise
            skipped.add_file(str(data_file.path), error)
        else:
            readable.append(file)
            groups.append(file_groups)
    if not readable:
        raise LoaderError(
            f"Expected at least one file that can be read. Received: {len(files)} that cannot, "
            f"such as {files[0].path}. Their warnings give the reasons."
        )
    table = ParquetTable(readable)
    _expect_table(table, columns)
    types = {name: column_type(name, table.schema[name], readable[0].path) for name in columns}
    table = table.cast({name: target.polars for name, target in types.items()})
    row_groups = [
        group
        for file, file_groups in zip(readable, groups, strict=True)
        for group in _as_types(file_groups, _own_types(file, columns), types)
    ]
    return ReadableFiles(types, row_groups, skipped, table, Fetcher(remote) if remote else None)


def _read_footer(
    data_file: DataFile,
    columns: Sequence[str],
    schemas: FooterSchemas,
    remote: dict[str, RemoteFile],
) -> tuple[ParquetFile, list[RowGroup]]:
    """A file reduced to the wanted columns, and its row groups with their own sizes.

    Args:
        data_file: the file.
        columns: the wanted columns.
        schemas: known schemas.
        remote: takes the file if it is an object.
    """
    try:
        data_file.expect_size()
        file, footer = ParquetFile.read_with_footer(data_file.path, data_file.keys, schemas)
        data_file.expect_rows(file.rows)
        file = _with_columns(file, columns)
        if isinstance(file.path, ObjectPath):
            names = frozenset(columns)
            chunks = [[c for c in g if c.is_of(names)] for g in column_chunks(footer)]
            remote[str(file.path)] = RemoteFile(file.path, chunks)
        return file, _row_groups(str(file.path), footer, _own_types(file, columns))
    except LoaderError:
        raise
    except WorkflowError as error:
        raise LoaderError(f'{error} Or leave it out with on_bad_files="skip".') from error
    except UNREADABLE as error:  # pyarrow decodes column names only when they are accessed
        raise LoaderError(
            f"{data_file.path} cannot be read as parquet: its footer is damaged. Write the file "
            'again, or leave it out with on_bad_files="skip".'
        ) from error


def _with_columns(file: ParquetFile, columns: Sequence[str]) -> ParquetFile:
    have = [*file.schema, *(name for name, _ in file.keys)]
    available, selection = set(have), set(columns)
    missing = [name for name in columns if name not in available]
    if missing:
        raise LoaderError(
            f"Expected the column {missing[0]!r} in {file.path}. "
            f"Received: the columns {listed(have)}." + did_you_mean(missing, have)
        )
    return file._replace(
        schema={name: dtype for name, dtype in file.schema.items() if name in selection},
        unread={name: text for name, text in file.unread.items() if name in selection},
        keys=tuple(key for key in file.keys if key[0] in selection),
    )


def _expect_table(table: ParquetTable, columns: Sequence[str]) -> None:
    for name in columns:
        if name in table.conflicts:
            raise LoaderError(table.conflicts[name])
        if not _is_null(table.schema[name]):  # null in some files: the others have the type
            column_type(name, table.schema[name], table.files[-1].path)


def column_type(name: str, dtype: pl.DataType, where: object) -> ColumnType:
    """The type of a column in a batch.

    Raises:
        LoaderError: no tensor can hold it.
    """
    outcome = _type_or_advice(dtype)
    if isinstance(outcome, ColumnType):
        return outcome
    raise LoaderError(
        f"Expected column {name!r} of {where} as numbers, booleans, strings or lists of those. "
        f"Received: {dtype}. {outcome}"
    )


@lru_cache(1024)  # many files of many columns have few types
def _type_or_advice(dtype: pl.DataType) -> ColumnType | str:
    """The type of a column in a batch, or the remedy if no tensor can hold it."""
    try:
        column = column_schema("any", dtype)
    except SchemaError:
        return "Cast it before it is written, or leave it out."
    if column.time:
        return "Convert it to numbers in a workflow, as with DatePart, cast it, or leave it out."
    return ColumnType(column.dtype, column.is_list)


def _is_null(dtype: pl.DataType) -> bool:
    return (inner_type(dtype) if isinstance(dtype, pl.List | pl.Array) else dtype) == pl.Null


def _own_types(file: ParquetFile, columns: Iterable[str]) -> dict[str, ColumnType]:
    """Types of the columns that are in a file itself and not all null."""
    have = file.schema
    return {
        name: column_type(name, have[name], file.path)
        for name in columns
        if name in have and name not in file.unread and not _is_null(have[name])
    }


def _as_types(
    groups: Sequence[RowGroup], own: Mapping[str, ColumnType], types: Mapping[str, ColumnType]
) -> list[RowGroup]:
    """Row groups with an upper bound of their size once columns have the table's types."""
    if own == types:
        return list(groups)
    widths = {name: DTYPES[target.dtype].numpy.itemsize for name, target in types.items()}
    growth = max((widths[n] / DTYPES[t.dtype].numpy.itemsize for n, t in own.items()), default=1)
    added_width = sum(width for name, width in widths.items() if name not in own)
    return [replace(g, nbytes=int(g.nbytes * growth) + g.rows * added_width) for g in groups]


def _row_groups(file: str, footer: Any, types: dict[str, ColumnType]) -> list[RowGroup]:
    groups = []
    start = 0
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        if group.num_rows:
            nbytes = _decoded_bytes(group, types)
            groups.append(RowGroup(file, index, start, group.num_rows, nbytes))
        start += group.num_rows
    return groups


def _decoded_bytes(group: Any, types: dict[str, ColumnType]) -> int:
    total = 0
    for number in range(group.num_columns):
        chunk = group.column(number)
        path = chunk.path_in_schema
        column = types.get(path) or types.get(path.rsplit(".", 2)[0])  # name.list.element
        if column is None:
            continue
        kind = DTYPES[column.dtype]
        if kind.kind == "string":  # each has a pointer and a header, in Polars as in numpy
            total += chunk.total_uncompressed_size + 16 * chunk.num_values
        else:
            total += kind.numpy.itemsize * chunk.num_values
        total += 8 * group.num_rows if column.is_list else 0
    return total
