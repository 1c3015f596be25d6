"""Which parquet files to read, and what their footers promise."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from loader.errors import LoaderError
from workflow.checksums import Checksums, read_footer
from workflow.dataset import DataFile, data_files, published
from workflow.dtypes import DTYPES
from workflow.errors import WorkflowError
from workflow.frames import UNREADABLE, first_line
from workflow.schema import Schema

_ARROW_NAMES = {"double": "float64", "float": "float32", "large_string": "string"}


@dataclass(frozen=True)
class ColumnType:
    """The element dtype of a column (a name of the dtype table), and whether it holds lists."""

    dtype: str
    is_list: bool = False

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


@dataclass
class Skipped:
    """What could not be read and was passed over.

    Attributes:
        files: those of which nothing, or not everything, was read.
        reasons: for each row group that was replaced since the last report; by file and number.
    """

    files: list[str] = field(default_factory=list)
    reasons: dict[tuple[str, int], Exception] = field(default_factory=dict)

    def add_file(self, path: str, reason: Exception) -> None:
        """A file that is left out as a whole, with a warning."""
        warnings.warn(f"Skipping a file: {reason}", stacklevel=2)
        self.files.append(path)

    def add_row_group(self, path: str, number: int, reason: Exception) -> None:
        """A row group that is replaced, to be reported at the end of the epoch."""
        self.reasons[path, number] = reason
        if path not in self.files:
            self.files.append(path)

    def report(self) -> None:
        """Warn of the row groups that were replaced since the last report, if any."""
        reasons, self.reasons = list(self.reasons.values()), {}
        if reasons:
            warnings.warn(
                f"{len(reasons)} row groups could not be read in this epoch, and rows that follow "
                f"them came twice instead. The first: {reasons[0]}",
                stacklevel=2,
            )


@dataclass(frozen=True)
class Source:
    """What can be read.

    Attributes:
        types: of the wanted columns.
        row_groups: in order.
        skipped: where to write down what cannot be read; None when that is an error.
        checksums: of the pages of files that have them, by path.
    """

    types: dict[str, ColumnType]
    row_groups: list[RowGroup]
    skipped: Skipped | None = None
    checksums: Mapping[str, Checksums] = field(default_factory=dict)


def find_files(paths: Any) -> list[DataFile]:
    """The parquet files that a path, folder, glob pattern or a list of those names.

    Files of a pattern or folder are sorted by name; a list keeps its order.
    See `workflow.dataset.data_files` for data sets and names that are passed over.

    Args:
        paths: str or `os.PathLike`, or an iterable of them.

    Raises:
        LoaderError: a path names no file, or a transform into a folder has not ended.

    Example:
        >>> [str(file.path) for file in find_files("train/*.parquet")]  # doctest: +SKIP
        ['train/part_0.parquet', 'train/part_1.parquet']
    """
    if isinstance(paths, (str, os.PathLike)):
        return _files_of(paths)
    found = list(paths) if isinstance(paths, (list, tuple, set, Iterator)) else None
    if found is None or not all(isinstance(path, (str, os.PathLike)) for path in found):
        raise LoaderError(
            "Expected a path, a folder, a glob pattern, a list of those or a Polars frame. "
            f"Received: {type(paths).__name__}. Other frames go through polars.DataFrame(...)."
        )
    files = [file for path in found for file in _files_of(path)]
    if not files:
        raise LoaderError("Expected at least one parquet file. Received: an empty list of paths.")
    return files


def _files_of(path: str | os.PathLike[str]) -> list[DataFile]:
    try:
        return data_files(path)
    except WorkflowError as error:
        raise LoaderError(str(error)) from error


def read_schema(files: Sequence[DataFile]) -> Schema | None:
    """The schema that a workflow wrote beside the first file, or None.

    Raises:
        LoaderError: when `_schema.json` is there and cannot be understood.
    """
    try:
        manifest = published(files[0].path.parent)
    except WorkflowError as error:
        raise LoaderError(str(error)) from error
    return None if manifest is None else manifest.schema


def read_footers(
    files: Sequence[DataFile], columns: Sequence[str], *, skip_bad: bool = False
) -> Source:
    """Read the footers of all files and hold every file to the first one's column types.

    Args:
        files: in the order in which they are read.
        columns: names of the wanted columns.
        skip_bad: leave files out that cannot be read or differ from the first one that can, with a
            warning, instead of raising.

    Raises:
        LoaderError: a file that is not parquet, was cut off or is not the one that was published,
            a column that a file lacks, a type that no tensor can hold, or a type that differs
            between files.
    """
    types: dict[str, ColumnType] = {}
    groups: list[RowGroup] = []
    skipped = Skipped() if skip_bad else None
    checksums: dict[str, Checksums] = {}
    for listed in files:
        file = str(listed.path)
        try:
            with _footer_errors(listed):
                footer, sums = _read_footer(listed)
                found = _types_of(file, footer.schema.to_arrow_schema(), columns)
                _check_drift(file, found, str(files[0].path), types)
                own = _row_groups(file, footer, found)
        except LoaderError as error:
            if skipped is None:
                raise
            skipped.add_file(file, error)
        else:
            types = types or found
            groups += own
            checksums |= {file: sums} if sums else {}
    if not types:
        raise LoaderError(
            f"Expected at least one file that can be read. Received: {len(files)} that cannot, "
            f"such as {files[0].path}. Their warnings tell why."
        )
    return Source(types, groups, skipped, checksums)


def _read_footer(file: DataFile) -> tuple[Any, Checksums | None]:
    file.expect_size()
    raw, checksums = read_footer(file.path)
    footer = pq.read_metadata(io.BytesIO(raw))
    file.expect_rows(footer.num_rows)
    return footer, checksums


@contextmanager
def _footer_errors(file: DataFile) -> Iterator[None]:
    """Turn errors at a footer into one of ours; pyarrow decodes names only where they are asked for."""
    try:
        yield
    except LoaderError:
        raise
    except WorkflowError as error:
        raise LoaderError(f'{error} Or leave it out with on_bad_files="skip".') from error
    except (*UNREADABLE, OSError) as error:
        path = file.path
        size = path.stat().st_size if path.exists() else None
        received = "no such file" if size is None else f"{size} bytes: {first_line(error)}"
        raise LoaderError(
            f"Expected a complete parquet file at {path}. Received: {received}. "
            'Write the file again, or leave it out with on_bad_files="skip".'
        ) from error


def _types_of(file: str, schema: Any, columns: Sequence[str]) -> dict[str, ColumnType]:
    have = dict(zip(schema.names, schema.types, strict=True))
    missing = [name for name in columns if name not in have]
    if missing:
        raise LoaderError(
            f"Expected the column {missing[0]!r} in {file}. "
            f"Received: the columns {', '.join([*have][:50])}."
        )
    return {name: _column_type(file, name, have[name]) for name in columns}


def _column_type(file: str, name: str, arrow_type: Any) -> ColumnType:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    is_list = any(check(arrow_type) for check in lists)
    element = arrow_type.value_type if is_list else arrow_type
    dtype = _ARROW_NAMES.get(str(element), str(element))
    if dtype not in DTYPES:
        raise LoaderError(
            f"Expected column {name!r} of {file} as numbers, booleans, strings or lists of those. "
            f"Received: {arrow_type}. Cast it before it is written, or leave it out."
        )
    return ColumnType(dtype, is_list)


def _check_drift(
    file: str, found: dict[str, ColumnType], first: str, types: dict[str, ColumnType]
) -> None:
    for name, expected in types.items():
        if found[name] != expected:
            raise LoaderError(
                f"Expected column {name!r} as {expected} in {file}, as in {first}. "
                f"Received: {found[name]}. Write all files with one schema."
            )


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
        found = types.get(path) or types.get(path.rsplit(".", 2)[0])  # name.list.element
        if found is None:
            continue
        kind = DTYPES[found.dtype]
        if kind.kind == "string":  # a pointer and a header for each, in Polars as in numpy
            total += chunk.total_uncompressed_size + 16 * chunk.num_values
        else:
            total += kind.numpy.itemsize * chunk.num_values
        total += 8 * group.num_rows if found.is_list else 0
    return total
