"""The data of one call: listed once at the start, read as often as needed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from workflow.engine.engine import is_gpu
from workflow.engine.forks import why_polars_hangs
from workflow.errors import WorkflowError
from workflow.schema.schema import Schema

from .checksums import TAIL
from .dataset import DataFile, data_files, schema_beside
from .delimited import DelimitedTable, TextFiles, text_paths
from .frames import read_frame
from .object_stores import Objects, expect_local, is_url
from .objects import AnyPath, ObjectPath, fetch_ends
from .parquet import ParquetTable, data_errors
from .parquet_file import FooterSchemas, ParquetFile

T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """A user's data as one table: parquet files with their footers, text files, or a frame.

    Attributes:
        frame: the columns, lazily.
        conflicts: the columns that cannot be read, by name, each with an error's text.
        files: the files of parquet, or None.
        text: the files of CSV or TSV, or None.
        is_query: whether each read runs a query again, the user's or one over text.
        schema: the columns according to the `_schema.json` beside the first file, if there is one.
    """

    frame: pl.LazyFrame
    conflicts: dict[str, str]
    files: ParquetTable | None = None
    text: DelimitedTable | None = None
    is_query: bool = False
    schema: Schema | None = None

    @classmethod
    def of(
        cls,
        data: Any,
        engine: str = "auto",
        storage_options: Mapping[str, Any] | None = None,
        known: Schema | None = None,
    ) -> Source:
        """Open a user's data: list files and read their footers, or convert frames.

        Args:
            data: paths, a folder or a glob of parquet, or of CSV or TSV, or a frame as
                `read_frame` takes it.
            engine: the engine that reads the frame.
            storage_options: how to connect to the object stores of paths with a scheme.
            known: columns whose types are known, for text and names of folders, which have no types.

        Raises:
            WorkflowError: no file matches, a file is not parquet or proper text, the data is of
                another kind, the engine is unknown or cannot read it, or a store cannot be read; or
                this process is a fork in which Polars would hang.

        Example:
            >>> Source.of({"userId": [1, 2]}).frame.collect().shape
            (2, 1)
        """
        if reason := why_polars_hangs():
            raise WorkflowError(f"{reason}, or fork before the first fit, transform or loader.")
        objects = Objects(storage_options)
        if isinstance(data, TextFiles):
            objects.expect_used()
            return cls._of_text(data, engine, known)
        paths = paths_of(data)
        if paths is None:
            objects.expect_used()
            frame, conflicts = read_frame(data)
            return cls(frame, conflicts, is_query=isinstance(data, pl.LazyFrame))
        if (texts := text_paths(paths)) is not None:
            objects.expect_used()
            return cls._of_text(TextFiles(texts, ()), engine, known)
        named = parquet_files(paths, objects)
        objects.expect_used()
        _expect_readable(named, engine)
        fetch_ends((file.path for file in named), TAIL)
        schemas = FooterSchemas()
        parquet = [_read(file, schemas) for file in named]
        table = ParquetTable(parquet, one_scan=not is_gpu(engine), known=known)
        files = table.with_whole_numbers()
        return cls(files.scan(), files.conflicts, files, schema=schema_beside(named))

    @classmethod
    def _of_text(cls, data: TextFiles, engine: str, schema: Schema | None) -> Source:
        if is_gpu(engine):
            raise WorkflowError(
                f'Expected parquet or a frame for engine="gpu". Received: {data.paths[0]}. Write it as '
                'parquet, or pass engine="cpu".'
            )
        text = DelimitedTable(data.paths, schema, data.null_values)
        return cls(text.scan(), text.conflicts, text=text, is_query=True)

    @property
    def names(self) -> list[str]:
        """All columns, including those that cannot be read."""
        return [*self.frame.collect_schema(), *self.conflicts]

    def select(self, names: Iterable[str] | None = None) -> Source:
        """Some of the columns; all of them by default.

        Raises:
            WorkflowError: one of them cannot be read, its types in the files do not match, or it has times
                of INT96 that Polars does not hold.
        """
        names = None if names is None else list(names)
        for name in self.conflicts if names is None else names:
            if name in self.conflicts:
                raise WorkflowError(self.conflicts[name])
        files = self.files if self.files is None or names is None else self.files.select(names)
        if files is not None:
            files.expect_times()
        if names is None:
            return self
        frame = self.frame.select(names) if files is None else files.scan()
        return replace(self, frame=frame, conflicts={}, files=files)

    @property
    def paths(self) -> list[AnyPath]:
        """The files of the data; none of a frame."""
        table = self.text if self.files is None else self.files
        return [] if table is None else [file.path for file in table.files]

    def sound(self) -> Source:
        """The same data, after a check of the pages that have checksums.

        Raises:
            WorkflowError: a file is damaged; names it.
        """
        if self.files is not None:
            self.files.expect_sound()
        return self

    def is_empty(self) -> bool:
        """Whether there are no rows.

        Raises:
            WorkflowError: a query has to tell, and cannot read the data.
        """
        rows = self.row_count()
        if rows is None:
            with self.errors("The data cannot be read"):
                rows = self.frame.select(pl.len()).collect().item()
        return not rows

    def row_count(self) -> int | None:
        """The number of rows; None if only a query's evaluation could tell."""
        if self.files is not None:
            return self.files.rows
        return None if self.is_query else int(self.frame.select(pl.len()).collect().item())

    def pieces(self, rows: int) -> Iterator[pl.LazyFrame]:
        """Lazy frames that together are the data, in order.

        Parquet is cut between its row groups, so that each is decoded once; a piece has `rows`
        rows, or one row group if that has more. A frame is collected first.

        Example:
            >>> [piece.collect().height for piece in Source.of({"userId": [7, 7, 9]}).pieces(2)]
            [2, 1]
        """
        return frame_pieces(self.frame, rows) if self.files is None else self.files.pieces(rows)

    def checked(self, what: str, rows: Iterable[T]) -> Iterator[T]:
        """The same rows, read with `errors`, whose check comes after the last one.

        So a writer that takes them all before it publishes does not publish changed data.
        """
        with self.errors(what):
            yield from rows

    def errors(self, what: str) -> AbstractContextManager[None]:
        """Turn errors of reading the data into ours, as `data_errors` does."""
        return data_errors(what, self.text if self.files is None else self.files)


def as_lazy_frame(data: Any, storage_options: Mapping[str, Any] | None = None) -> pl.LazyFrame:
    """A lazy frame of any data that `Source.of` takes, with all of its columns.

    Raises:
        WorkflowError: as `Source.of`; also if a column cannot be read, or its types do not match.

    Example:
        >>> as_lazy_frame({"userId": [1, 2]}).collect().shape
        (2, 1)
    """
    return Source.of(data, storage_options=storage_options).select().sound().frame


def copied_series(name: str, values: Any) -> pl.Series:
    """The values of one column, read as those of a dict are.

    They are copied: Polars borrows the memory of arrays, to which their owner may write.

    Raises:
        WorkflowError: as `as_lazy_frame`.

    Example:
        >>> copied_series("userId", [1, 2]).to_list()
        [1, 2]
    """
    rows = as_lazy_frame({name: values}).select(pl.all().gather(pl.int_range(pl.len())))
    return rows.collect().to_series()


def frame_pieces(frame: pl.LazyFrame, rows: int) -> Iterator[pl.LazyFrame]:
    """The rows of a frame, which is collected, `rows` at a time."""
    table = frame.collect()
    return (table[start : start + rows].lazy() for start in range(0, max(table.height, 1), rows))


def as_path(path: Any) -> Path:
    """A valid path of the file system.

    Raises:
        WorkflowError: the value is not a path.

    Example:
        >>> as_path("models").name
        'models'
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or "\0" in str(path):
        raise WorkflowError(f"Expected the path of a folder. Received: {path!r:.200}.")
    expect_local(path)
    return Path(path)


def expect_kept(path: Path, data: Iterable[AnyPath]) -> None:
    """Refuse a place for results that is a file of the data, which they would replace.

    Args:
        path: the place.
        data: the files of the data.

    Raises:
        WorkflowError: names the place.
    """
    files = [file for file in data if isinstance(file, Path)] if path.exists() else []
    if any(file.samefile(path) for file in files):
        raise WorkflowError(
            f"Expected another file than those of the data. Received: {path}, which the results "
            "would replace. Name a new one."
        )


def options_of(data: Any, storage_options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The storage options of a call that reads data and writes results, for the data alone.

    Example:
        >>> options_of("ratings", {"aws_region": "eu-west-1"}) is None
        True
    """
    paths = [data] if isinstance(data, str | os.PathLike) else data
    reads = isinstance(paths, list | tuple) and any(is_url(path) for path in paths)
    return storage_options if reads else None


def comes_once(data: Any) -> bool:
    """Whether data is an iterator of paths; a reader of Arrow is one of rows."""
    return isinstance(data, Iterator) and not hasattr(data, "__arrow_c_stream__")


def held(data: Any) -> Any:
    """The data, with a list in place of an iterator of paths.

    Example:
        >>> held(iter(["a.parquet"]))
        ['a.parquet']
    """
    return [*data] if comes_once(data) else data


def paths_of(data: Any) -> list[Any] | None:
    """The paths in `data`; None if it is a frame.

    Raises:
        WorkflowError: an empty list or text, or a list of rows.
    """
    data = held([data] if isinstance(data, str | os.PathLike) else data)
    if not isinstance(data, list | tuple):
        return None
    paths = list(data)
    if paths and all(isinstance(path, dict) for path in paths):
        raise WorkflowError(
            "Expected columns. Received: a list of rows, each a dict. "
            "Make a frame of them: polars.DataFrame(rows)."
        )
    if not paths:
        raise WorkflowError("Expected one path of parquet or more. Received: [].")
    if "" in (path for path in paths if isinstance(path, str)):
        # A shell has one for a variable that is not set.
        raise WorkflowError(
            'Expected a path. Received: an empty text. Of the files here it is "*.parquet".'
        )
    return paths


def files_of(
    paths: Sequence[Any], storage_options: Mapping[str, Any] | None = None
) -> list[AnyPath]:
    """The files that paths name, as `Source.of` finds them, which are not read.

    Raises:
        WorkflowError: a path names no file, or files of another kind.
    """
    text = text_paths(paths)
    if text is not None:
        return [*text]
    return [file.path for file in parquet_files(paths, Objects(storage_options))]


def parquet_files(paths: Any, objects: Objects | None = None) -> list[DataFile]:
    """The files that a path, a folder, a glob or a list of these names, in order.

    For files in a list, the folders `key=value` below their common folder are columns.

    Args:
        paths: the paths; those with a scheme are of objects.
        objects: the object stores of the call.

    Raises:
        WorkflowError: one of them matches no file, or is not a data set; see `data_files`.
    """
    objects = Objects() if objects is None else objects
    if isinstance(paths, list | tuple) and paths:
        groups = [(path, parquet_files(path, objects)) for path in paths]
        named = [f.path for path, files in groups for f in files if _is_at(f.path, path)]
        shared = _shared_folders(named)
        return [
            file if shared is None or not _is_at(file.path, path) else file.below(shared)
            for path, files in groups
            for file in files
        ]
    if not isinstance(paths, str | os.PathLike):
        is_frame = isinstance(paths, pl.LazyFrame) or hasattr(paths, "__arrow_c_stream__")
        advice = (
            " Make one of several: polars.concat(frames), pandas.concat(frames), "
            "pyarrow.Table.from_batches(batches)."
            if is_frame
            else ""
        )
        raise WorkflowError(
            f"Expected the path of a parquet file. Received: {paths!r:.200}.{advice}"
        )
    return data_files(paths, objects)


def _is_at(path: AnyPath, name: Any) -> bool:
    return str(path) == name if isinstance(path, ObjectPath) else path == Path(name).absolute()


def _shared_folders(paths: Sequence[AnyPath]) -> int | None:
    """The number of folders that all paths begin with; None if they have no common root."""
    names = zip(*(path.parent.parts for path in paths), strict=False)
    shared = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, names))
    return None if not shared and any(path.is_absolute() for path in paths) else shared


def _expect_readable(files: Sequence[DataFile], engine: str) -> None:
    """Refuse objects for a GPU."""
    remote = next((file.path for file in files if isinstance(file.path, ObjectPath)), None)
    if remote is not None and is_gpu(engine):
        raise WorkflowError(
            f'Expected local files for engine="gpu". Received: {remote}. Copy the files to this '
            'machine, or pass engine="cpu".'
        )


def _read(file: DataFile, schemas: FooterSchemas) -> ParquetFile:
    file.expect_size()
    footer = ParquetFile.read(file.path, file.keys, schemas)
    file.expect_rows(sum(footer.groups))
    return footer
