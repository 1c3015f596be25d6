"""Counts and ranges of a source's columns, from the footers of its files where it has some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from workflow.schema.schema import ColumnSchema, Schema

from .parquet import ParquetTable
from .parquet_file import FooterSchemas, ParquetFile
from .sources import Source

# Reading the footers of more files would take a noticeable part of `fit`.
_MOST_FILES = 256
_COLUMNS_OF_A_QUERY = 100
# NaN and the elements of lists are counted in a part of the row groups.
_GROUPS_OF_A_SAMPLE, _MOST_SAMPLES, ROWS_OF_A_SAMPLE = 32, 16, 65_536


@dataclass(frozen=True)
class ColumnFacts:
    """Facts about a column. For a list column, values are elements.

    Attributes:
        values: the number of values; for a list column of those that are not null.
        nulls: the number of nulls, and of NaN; None for a list column, or if a file does not say.
        minimum: the least value of a column of numbers; None if a file does not say.
        maximum: the greatest value, or None.
    """

    values: int
    nulls: int | None
    minimum: Any = None
    maximum: Any = None


def column_facts(source: Source, columns: Schema) -> tuple[int, dict[str, ColumnFacts]]:
    """The number of rows, and facts about columns.

    Of many files, some are read, evenly distributed, and the result describes these.

    Example:
        >>> ages = Schema([ColumnSchema("age", "int64")])
        >>> column_facts(Source.of({"age": [31, None, 7]}), ages)
        (3, {'age': ColumnFacts(values=3, nulls=1, minimum=7, maximum=31)})
    """
    if source.files is not None:
        return _of_files(source.files, columns)
    if source.is_query:
        return _of_query(source.frame, columns)
    rows = source.frame.collect()
    facts = {c.name: _of_series(c, rows.get_column(c.name)) for c in columns.columns}
    return rows.height, facts


def _of_query(frame: pl.LazyFrame, columns: Schema) -> tuple[int, dict[str, ColumnFacts]]:
    rows, facts = 0, {}
    # A query over all columns would take a time that grows with their square.
    for start in range(0, len(columns), _COLUMNS_OF_A_QUERY):
        part = columns.columns[start : start + _COLUMNS_OF_A_QUERY]
        queries = [
            fact.alias(f"{number}.{key}")
            for number, column in enumerate(part)
            for key, fact in _queries(column, pl.col(column.name)).items()
        ]
        query = frame.select(pl.len().alias("rows"), *queries)
        results = query.collect(engine="streaming").row(0, named=True)
        rows = results["rows"]
        for number, column in enumerate(part):
            keys = ("nulls", "minimum", "maximum")
            least = (results.get(f"{number}.{key}") for key in keys)
            facts[column.name] = ColumnFacts(results.get(f"{number}.values", rows), *least)
    return rows, facts


def _of_series(column: ColumnSchema, values: pl.Series) -> ColumnFacts:
    if column.is_list:
        lists = values.arr.to_list() if isinstance(values.dtype, pl.Array) else values
        return ColumnFacts(lists.drop_nulls().explode(empty_as_null=False).count(), None)
    if column.info.kind == "float":
        values = values.fill_nan(None)
    ends = (values.min(), values.max()) if _is_number(column) else (None, None)
    return ColumnFacts(len(values), values.null_count(), *ends)


def _queries(column: ColumnSchema, values: pl.Expr) -> dict[str, pl.Expr]:
    if column.is_list:
        return {"values": values.drop_nulls().explode(empty_as_null=False).count()}
    if column.info.kind == "float":
        values = values.fill_nan(None)
    facts = {"nulls": values.null_count()}
    if _is_number(column):
        facts |= {"minimum": values.min(), "maximum": values.max()}
    return facts


def _is_number(column: ColumnSchema) -> bool:
    return column.info.kind in ("int", "uint", "float") and not column.is_time


def _of_files(table: ParquetTable, columns: Schema) -> tuple[int, dict[str, ColumnFacts]]:
    files = table.files[:: -(-len(table.files) // _MOST_FILES)]
    rows = sum(file.rows for file in files)
    chunks: dict[str, list[Any]] = {name: [] for name in columns}
    schemas = FooterSchemas()
    for file in files:
        for chunk in _chunks(file, schemas):
            name = chunk.path_in_schema
            # Those without rows or without a type have no statistics.
            if name in columns and chunk.num_values and file.schema.get(name, pl.Null) != pl.Null:
                chunks[name].append(chunk.statistics)
    sample, nulls = _sample(table, columns, rows), _whole_nulls(files)
    return rows, {
        column.name: sample[column.name]
        if column.is_list
        else _of_statistics(
            column, chunks[column.name], rows, sample.get(column.name), nulls[column.name]
        )
        for column in columns.columns
    }


def _whole_nulls(files: Sequence[ParquetFile]) -> Counter[str]:
    """The number of rows of files in which a column is null, by its type or the name of a folder."""
    nulls: Counter[str] = Counter()
    for file in files:
        keys = {name: pl.Null if text is None else pl.String for name, text in file.keys}
        for name, dtype in (keys | file.schema).items():
            if dtype == pl.Null:
                nulls[name] += file.rows
    return nulls


def _chunks(file: ParquetFile, schemas: FooterSchemas) -> Iterator[Any]:
    footer = ParquetFile.read_with_footer(file.path, schemas=schemas)[1]
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        yield from map(group.column, range(group.num_columns))


def _of_statistics(
    column: ColumnSchema,
    chunks: Sequence[Any],
    rows: int,
    sample: ColumnFacts | None,
    whole_nulls: int,
) -> ColumnFacts:
    """Facts from the statistics of column chunks, and nulls of files in which all are null."""
    if not all(chunk is not None and chunk.has_null_count for chunk in chunks):
        return replace(sample, nulls=None) if sample else ColumnFacts(rows, None)
    nulls = sum(chunk.null_count for chunk in chunks) + whole_nulls
    if not _is_number(column):
        return ColumnFacts(rows, nulls)
    # The statistics of floats count no NaN, and some writers leave out the range beside one.
    facts = sample or ColumnFacts(rows, 0)
    if all(chunk.has_min_max or not chunk.num_values for chunk in chunks):
        ends = [chunk for chunk in chunks if chunk.has_min_max]
        least = min((chunk.min for chunk in ends), default=None)
        facts = replace(
            facts, minimum=least, maximum=max((chunk.max for chunk in ends), default=None)
        )
    return replace(facts, nulls=nulls + (facts.nulls or 0))


def _sample(table: ParquetTable, columns: Schema, rows: int) -> dict[str, ColumnFacts]:
    """The facts that footers lack: NaN and the range of floats, and the elements of lists.

    Args:
        table: the files, of which a part of the row groups is read.
        columns: the columns.
        rows: the number of rows that the counts are scaled to.
    """
    sampled_columns = Schema(c for c in columns.columns if c.is_list or c.info.kind == "float")
    if not sampled_columns:
        return {}
    groups = sum(len(file.groups) for file in table.files)
    count, size = 1, table.rows
    if size > ROWS_OF_A_SAMPLE:
        count = min(max(groups // _GROUPS_OF_A_SAMPLE, 1), _MOST_SAMPLES)
        size = min(table.rows // groups, ROWS_OF_A_SAMPLE)
    narrow_table = table.select(sampled_columns)
    starts = (max(table.rows - size, 0) * (2 * n + 1) // (2 * count) for n in range(count))
    sample = pl.concat([narrow_table.slice(start, size).collect() for start in starts])
    return {c.name: _of_sample(c, sample[c.name], rows) for c in sampled_columns.columns}


def _of_sample(column: ColumnSchema, values: pl.Series, rows: int) -> ColumnFacts:
    scale = rows / max(len(values), 1)
    facts = _of_series(column, values)
    if column.is_list:
        return replace(facts, values=round(facts.values * scale))
    nans = (facts.nulls or 0) - values.null_count()
    return replace(facts, values=rows, nulls=round(nans * scale))
