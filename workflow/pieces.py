"""Data cut into pieces that fit into memory, whatever its size."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from .data import as_lazy_frame, parquet_files
from .errors import WorkflowError
from .parquet import ParquetTable


class RowGroup(NamedTuple):
    """A row group of a parquet file.

    Attributes:
        file: the number of the file.
        start: the place of its first row in the file.
        rows: how many it has.
    """

    file: int
    start: int
    rows: int


def pieces(data: Any, rows: int) -> Iterator[pl.LazyFrame]:
    """Lazy frames that are the data one after the other.

    Parquet is cut between its row groups, so that each is decoded once; a piece is `rows` long,
    or one row group where that is longer. A lazy frame is collected first, since each part of it
    would be a run of the whole.

    Args:
        data: what `Workflow.fit` takes.
        rows: how long a piece is to be.

    Raises:
        WorkflowError: a file is missing or is no parquet.

    Example:
        >>> [piece.collect().height for piece in pieces({"userId": [7, 7, 9]}, rows=2)]
        [2, 1]
    """
    if isinstance(data, str | Path | list | tuple):
        yield from _of_files(parquet_files(data), rows)
    else:
        frame = as_lazy_frame(data).collect()
        for start in range(0, max(frame.height, 1), rows):
            yield frame[start : start + rows].lazy()


def slices(files: list[Path], rows: int) -> Iterator[pl.LazyFrame]:
    """Lazy frames of exactly so many rows, the last one of what is left.

    Args:
        files: of parquet.
        rows: of a slice. A row group on the way from one to the next is decoded for both.

    Raises:
        WorkflowError: a file is no parquet.
    """
    table = ParquetTable(files)
    ends = list(accumulate(sum(g.rows for g in _row_groups(n, f)) for n, f in enumerate(files)))
    starts = [0, *ends]
    for start in range(0, max(ends[-1], 1), rows):
        first = bisect_right(ends, start, hi=len(ends) - 1)
        last = max(first, bisect_left(ends, min(start + rows, ends[-1])))
        yield table.scan(first, last + 1).slice(start - starts[first], rows)


def _of_files(files: list[Path], rows: int) -> Iterator[pl.LazyFrame]:
    table = ParquetTable(files)
    for groups in _runs([g for n, file in enumerate(files) for g in _row_groups(n, file)], rows):
        first, last = groups[0], groups[-1]
        scan = table.scan(first.file, last.file + 1)
        yield scan.slice(first.start, sum(group.rows for group in groups))


def _runs(groups: list[RowGroup], rows: int) -> Iterator[list[RowGroup]]:
    """Neighbouring row groups put together while they have no more than so many rows."""
    run, count = [groups[0]], groups[0].rows
    for group in groups[1:]:
        if count + group.rows > rows:
            yield run
            run, count = [], 0
        run.append(group)
        count += group.rows
    yield run


def _row_groups(number: int, file: Path) -> list[RowGroup]:
    try:
        footer = pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        raise WorkflowError(f"{file} cannot be read as parquet: {error}") from error
    sizes = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)] or [0]
    starts = accumulate(sizes, initial=0)
    return [RowGroup(number, start, size) for start, size in zip(starts, sizes, strict=False)]
