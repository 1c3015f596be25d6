"""Synthetic data with the facts of an inspection."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from workflow.data.sources import as_path
from workflow.errors import WorkflowError
from workflow.files.durable import replacing
from workflow.files.write_errors import write_errors
from workflow.schema.python_number import takes_numpy_numbers, whole_number

from .inspection import Inspection
from .random_column import RandomColumn


@takes_numpy_numbers
def generate_dataset(
    inspection: Inspection,
    rows: int,
    path: str | os.PathLike[str],
    seed: int = 0,
    *,
    row_group_size: int = 131_072,
) -> Path:
    """Write a parquet file of random rows that resemble inspected data column by column.

    Types, shares of null and NaN, numbers of different values, their skew, lengths of lists and
    ranges are those of the inspection. With as many rows as it has, nulls are exact, and so are the
    frequencies of ids and strings at the ranks that it knows. Quantities follow its percentiles;
    between two of them, also beyond the 99th, different values are equally frequent. Ids are made up
    within their range, so that their mean is another one; strings are made up except for the most
    frequent ones. Columns are independent of one another: nothing can be learnt
    from such data. A column without equal values keeps none, however many rows are made. Columns
    that could not be read and infinite values are left out.

    Args:
        inspection: facts about columns, from `inspect_dataset` or `Inspection.load`.
        rows: the number of rows.
        path: the file, replaced by one rename.
        seed: the same seed gives the same rows, whatever the size of row groups.
        row_group_size: rows in memory at a time.

    Returns:
        The path.

    Raises:
        WorkflowError: an argument is wrong, the path has another suffix than .parquet, or the file
            cannot be written.

    Example:
        >>> from workflow import inspect_dataset
        >>> inspection = inspect_dataset({"userId": [7, 9, 7, None]})
        >>> path = generate_dataset(inspection, 1_000, "synthetic.parquet", seed=1)
        >>> pl.read_parquet(path)["userId"].null_count()
        250
    """
    _expect(inspection, rows, seed, row_group_size)
    target = as_path(path)
    if target.suffix != ".parquet" or not target.absolute().parent.is_dir() or target.is_dir():
        raise WorkflowError(
            f"Expected the path of a .parquet file in a folder that exists. Received: {target}."
        )
    columns = {
        # A column's values do not depend on the columns beside it.
        column.name: RandomColumn(column, inspection.rows, rows, _seed(seed, column.name))
        for column in inspection.columns
    }
    with write_errors(target), replacing(target) as partial:
        _write(columns, rows, partial, row_group_size)
    return target


def _seed(seed: int, name: str) -> int:
    # Seven bytes leave room for the terms that a column adds, within 64 bits.
    return int.from_bytes(hashlib.blake2b(f"{seed} {name}".encode(), digest_size=7).digest())


def _write(columns: dict[str, RandomColumn], rows: int, path: Path, size: int) -> None:
    writer = None
    try:
        for start in range(0, max(rows, 1), size):
            end = min(start + size, rows)
            frame = pl.DataFrame({n: column.make(start, end) for n, column in columns.items()})
            table = frame.to_arrow()
            writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table, row_group_size=size)
    finally:
        if writer is not None:
            writer.close()


def _expect(inspection: object, rows: object, seed: object, size: object) -> None:
    if not isinstance(inspection, Inspection):
        raise WorkflowError(
            "Expected an inspection, from inspect_dataset(data) or Inspection.load(path). "
            f"Received: {inspection!r:.100}."
        )
    if not inspection.columns:
        raise WorkflowError("Expected an inspection with columns. Received: none.")
    for name, number, least in (("rows", rows, 0), ("seed", seed, 0), ("row_group_size", size, 1)):
        whole_number(name, number, least, WorkflowError)
