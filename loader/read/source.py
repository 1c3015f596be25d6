"""The data of a loader, parquet files or a frame in memory, behind one interface."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from loader.errors import LoaderError
from loader.files.layout import BatchLayout, Names
from loader.files.parquet_files import (
    ReadableFiles,
    RowGroup,
    column_type,
    read_footers,
    read_schema,
)
from loader.files.skipped import Skipped
from loader.read.chunks import ChunkReader, FrameReader, ParquetReader
from loader.read.damaged import SkippingReader, UnchangedReader, one_frame_each
from workflow.data.dataset import DataFile
from workflow.data.delimited import text_paths
from workflow.data.frames import polars_errors, read_frame
from workflow.data.object_stores import Objects
from workflow.data.sources import parquet_files, paths_of
from workflow.errors import WorkflowError
from workflow.schema.names import listed
from workflow.schema.schema import Schema

# A data frame has no row groups; this many rows at a time are shuffled and cut.
FRAME_PART_ROWS = 1_000_000


@dataclass(frozen=True)
class ParquetData:
    """Files, and the schema that goes with them, if any."""

    files: Sequence[DataFile]
    schema: Schema | None

    def describe(self, names: Names, *, skip_bad: bool) -> ReadableFiles:
        """Read types and row groups from the footers; raises as `read_footers` does."""
        return read_footers(self.files, names.columns, skip_bad=skip_bad)

    def digest(self, source: ReadableFiles) -> str:
        """A text in which other data differ, by the footers: sizes, ranges, checksums."""
        sums = [file.footer_sum for file in source.table.files]
        return _digest(sum(group.rows for group in source.row_groups), repr(sums).encode())

    def reader(
        self, layout: BatchLayout, options: Mapping[str, Any] | None, source: ReadableFiles
    ) -> ChunkReader:
        """Reader of the files; raises `LoaderError` for options that it does not accept."""
        reader = ParquetReader(layout, check_reader_options(options), source)
        return _skipping(UnchangedReader(reader, source), source)


@dataclass(frozen=True)
class FrameData:
    """A frame in memory."""

    frame: pl.DataFrame
    conflicts: Mapping[str, str]
    schema: Schema | None

    def describe(self, names: Names, *, skip_bad: bool) -> ReadableFiles:
        """Types, and row groups of a chosen size; raises as `frame_source` does."""
        for name in names.columns:
            if name in self.conflicts:
                raise LoaderError(self.conflicts[name])
        source = frame_source(self.frame, names.columns)
        return replace(source, skipped=Skipped()) if skip_bad else source

    def digest(self, source: ReadableFiles) -> str:
        """A text in which other data differ, by all values of the wanted columns."""
        columns = [pl.col(name).cast(target.polars) for name, target in source.types.items()]
        hashes = self.frame.select(columns).hash_rows()
        return _digest(len(hashes), hashes.to_numpy().tobytes())

    def reader(
        self, layout: BatchLayout, options: Mapping[str, Any] | None, source: ReadableFiles
    ) -> ChunkReader:
        """Reader of the frame; raises `LoaderError` for any option."""
        if options:
            raise LoaderError(
                f"Expected reader_kwargs with files only. Received: {options!r:.200} with a frame."
            )
        return _skipping(FrameReader(layout, self.frame), source)


def _digest(rows: int, content: bytes) -> str:
    return f"{rows:,} rows, {zlib.crc32(content):08x}"


def _skipping(reader: ChunkReader, source: ReadableFiles) -> ChunkReader:
    if source.skipped is None:
        return reader
    return SkippingReader(reader, source.row_groups, source.skipped, one_frame_each)


def open_data(
    data: Any, schema: Schema | None, storage_options: Mapping[str, Any] | None = None
) -> ParquetData | FrameData:
    """Open the first argument of the constructor, as a workflow does.

    Args:
        data: a path, folder, glob pattern, a list of those, or a frame as `read_frame` takes it.
        schema: given by the user; None for the schema file beside the data.
        storage_options: how to connect to the object stores of paths with a scheme.

    Raises:
        LoaderError: no such files, data of an unknown kind, or an invalid schema file.
    """
    try:
        paths = paths_of(data)
        objects = Objects(storage_options)
        if paths is None:
            objects.expect_used()
            frame, conflicts = read_frame(data)
            if not isinstance(data, pl.DataFrame | pl.LazyFrame):
                # Copied: Polars borrows arrays, which their owner may write to.
                frame = frame.select(pl.all().gather(pl.int_range(pl.len())))
            with polars_errors("The frame cannot be read"):
                return FrameData(frame.collect(), conflicts, schema)
        _expect_no_text(paths)
        files = parquet_files(paths, objects)
        objects.expect_used()
    except WorkflowError as error:
        raise LoaderError(str(error)) from error
    return ParquetData(files, schema if schema is not None else read_schema(files))


def _expect_no_text(paths: Sequence[Any]) -> None:
    """Refuse CSV, which has no row groups to shuffle and no types."""
    if (text := text_paths(paths)) is not None:
        raise LoaderError(
            f"Expected parquet, or a frame. Received: {text[0]}. Transform it, which writes parquet: "
            f'workflow.transform_to_parquet("{paths[0]}", "train"); or, if it needs no transform and fits '
            f'into memory, pass polars.read_csv("{text[0]}").'
        )


def frame_source(frame: pl.DataFrame, columns: Sequence[str]) -> ReadableFiles:
    """Describe a data frame in the form of files.

    Raises:
        LoaderError: a missing column, or a type that no tensor can hold.
    """
    path = "the data frame"
    have = frozenset(frame.columns)
    missing = [name for name in columns if name not in have]
    if missing:
        raise LoaderError(
            f"Expected the column {missing[0]!r} in {path}. "
            f"Received: the columns {listed(frame.columns)}."
        )
    frame = frame.select(columns)
    types = {name: column_type(name, dtype, path) for name, dtype in frame.schema.items()}
    row_bytes = frame.estimated_size() / max(len(frame), 1)
    starts = range(0, len(frame), FRAME_PART_ROWS)
    sizes = [min(FRAME_PART_ROWS, len(frame) - start) for start in starts]
    groups = [
        RowGroup(path, index, start, rows, int(row_bytes * rows))
        for index, (start, rows) in enumerate(zip(starts, sizes, strict=True))
    ]
    return ReadableFiles(types, groups)


def check_reader_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Refuse options that would change which rows are read.

    Raises:
        LoaderError: an option that the loader sets itself, or that Polars does not have.
    """
    allowed = ("memory_map", "low_memory", "parallel", "use_statistics", "cache")
    if not isinstance(options, Mapping | None):
        raise LoaderError(
            f"Expected reader_kwargs as a dict of {', '.join(allowed)}. Received: {options!r:.200}."
        )
    for name in options or ():
        if name not in allowed:
            raise LoaderError(
                f"Expected reader_kwargs among {', '.join(allowed)} (of polars.scan_parquet). "
                f"Received: {name!r}."
            )
    return dict(options or {})
