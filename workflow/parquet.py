"""Parquet files that make one table, though their types may differ."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from .dtypes import SchemaError
from .errors import WorkflowError
from .expressions.series import column_schema, polars_dtype

_MAGIC = b"PAR1"


class ParquetTable:
    """Files that are one table: the columns that all of them have, each of one type.

    A file may have a column as a type that the type of another file holds without loss: int32
    beside int64, or nothing but nulls.

    Args:
        files: in the order of the rows.

    Attributes:
        schema: the columns.
        conflicts: what keeps a column out of the table, by its name: a text for an error.

    Raises:
        WorkflowError: a file cannot be read as parquet; names it.

    Example:
        >>> pl.DataFrame({"a": [1]}, {"a": pl.Int32}).write_parquet("1.parquet")
        >>> pl.DataFrame({"a": [2]}, {"a": pl.Int64}).write_parquet("2.parquet")
        >>> ParquetTable([Path("1.parquet"), Path("2.parquet")]).scan().collect()["a"].to_list()
        [1, 2]
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = list(files)
        self._schemas = [_schema_of(file) for file in files]
        self.schema: dict[str, pl.DataType] = {}
        self.conflicts: dict[str, str] = {}
        # Many files have few schemas, and one of each is enough to compare.
        kinds = {tuple(schema.items()): n for n, schema in reversed([*enumerate(self._schemas)])}
        for name in dict.fromkeys(name for schema in self._schemas for name in schema):
            self._add(name, sorted(kinds.values()))

    def _add(self, name: str, kinds: Sequence[int]) -> None:
        without = [n for n in kinds if name not in self._schemas[n]]
        if without:
            have = next(n for n in kinds if name in self._schemas[n])
            self.conflicts[name] = (
                f"{self._files[without[0]]} has no column {name!r}, which {self._files[have]} has."
            )
            return
        types = [self._schemas[n][name] for n in kinds]
        common = types[0]
        for number, dtype in enumerate(types):
            merged = common_type(common, dtype)
            if merged is None:
                other = next((n for n, t in enumerate(types) if common_type(t, dtype) is None), 0)
                self.conflicts[name] = (
                    f"Column {name!r} is {types[other]} in {self._files[kinds[other]]} and {dtype} in "
                    f"{self._files[kinds[number]]}, which no type holds without loss. Write it as one type."
                )
                return
            common = merged
        self.schema[name] = common

    def scan(self, start: int = 0, end: int | None = None) -> pl.LazyFrame:
        """The rows of the files from a number to another, lazily."""
        own = list(zip(self._files[start:end], self._schemas[start:end], strict=True))
        runs = [(s, [file for file, _ in run]) for s, run in groupby(own, key=lambda pair: pair[1])]
        scans = [self._as_common(s, pl.scan_parquet(run, glob=False, schema=s)) for s, run in runs]
        return scans[0] if len(scans) == 1 else pl.concat(scans)

    def _as_common(self, schema: dict[str, pl.DataType], scan: pl.LazyFrame) -> pl.LazyFrame:
        if list(schema.items()) == list(self.schema.items()):
            return scan
        return scan.select(
            pl.col(n) if schema[n] == dtype else pl.col(n).cast(dtype)
            for n, dtype in self.schema.items()
        )


def common_type(one: pl.DataType, other: pl.DataType) -> pl.DataType | None:
    """The type that holds the values of two others without loss, if there is one.

    Example:
        >>> common_type(pl.UInt32(), pl.Int32())
        Int64
        >>> common_type(pl.Int64(), pl.Float64())  # 2**53 + 1 is no float
    """
    if one == other or pl.Null in (one, other):
        return other if one == pl.Null else one
    if isinstance(one, pl.List | pl.Array) and isinstance(other, pl.List | pl.Array):
        inner = common_type(inner_type(one), inner_type(other))
        return None if inner is None else pl.List(inner)
    return _common_scalar(one, other)


def _common_scalar(one: pl.DataType, other: pl.DataType) -> pl.DataType | None:
    try:
        a, b = column_schema("", one), column_schema("", other)
    except SchemaError:
        return None
    if a.is_list or b.is_list or a.is_time != b.is_time:
        return None
    if a.is_time:
        return pl.Datetime("us")
    return polars_dtype(a.dtype) if a.dtype == b.dtype else _common_number(a.dtype, b.dtype)


def inner_type(dtype: pl.List | pl.Array) -> pl.DataType:
    """The type of a list's elements."""
    inner = dtype.inner
    return inner() if isinstance(inner, type) else inner


def _common_number(one: str, other: str) -> pl.DataType | None:
    if {one, other} & {"string", "bool"}:
        return None
    both = np.promote_types(one, other)
    # A float has room for 53 bits of a whole number.
    lossy = both.kind == "f" and {one, other} & {"int64", "uint64"}
    return None if lossy else polars_dtype(both.name)


def _schema_of(file: Path) -> dict[str, pl.DataType]:
    try:
        with file.open("rb") as opened:  # of a path brackets would be a pattern
            return dict(pl.read_parquet_schema(opened))
    except (pl.exceptions.PolarsError, OSError, pa.ArrowException) as error:
        raise WorkflowError(f"{file} cannot be read as parquet: {_reason(file)}") from error


def _reason(file: Path) -> str:
    """What is wrong with a file whose schema cannot be read."""
    try:
        with file.open("rb") as opened:
            start = opened.read(len(_MAGIC))
            size = opened.seek(0, 2)
            opened.seek(max(0, size - len(_MAGIC)))
            end = opened.read()
    except OSError as error:
        return f"{error.strerror or error}."
    if not size:
        return "it is empty."
    if start != _MAGIC:
        return (
            "it is no parquet file. Give other formats as a frame, such as polars.scan_csv(path)."
        )
    if end != _MAGIC:
        return f"it ends after {size:,} bytes in the middle, as a copy that was cut short does."
    return "its footer is damaged."


def damage(files: Sequence[Path]) -> str | None:
    """Which row group of which file cannot be read, found by reading all; None where all can."""
    for file in files:
        group = -1
        try:
            opened = pq.ParquetFile(file)
            for group in range(opened.num_row_groups):
                opened.read_row_group(group)
        except (pa.ArrowException, OSError):
            return f"{file} is damaged" + (f" in row group {group}." if group >= 0 else ".")
    return None
