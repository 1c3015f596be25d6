"""The inspection of a data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from workflow.data.sources import Source
from workflow.errors import WorkflowError
from workflow.expressions.polars.series import column_schema
from workflow.schema.dtypes import SchemaError
from workflow.schema.names import did_you_mean, listed
from workflow.schema.python_number import whole_number
from workflow.schema.schema import ColumnSchema

from .inspection import Inspection
from .measure import MOST_VALUES, measure
from .text import NO_VALUES

# Columns of few rows are read together, as each query reads the footer, which describes all columns.
_HELD_VALUES = 2**18


def inspect_dataset(
    data: Any,
    columns: Sequence[str] | None = None,
    *,
    top: int = 20,
    most_values: int = MOST_VALUES,
    storage_options: Mapping[str, Any] | None = None,
) -> Inspection:
    """Count and measure the columns of raw data: types, values, skew, nulls and lists.

    The data is read a few times for each column, in a stream; in memory are the different values
    of one column at a time. Where two or more columns have at most 262,144 values together, they
    are read at once, into memory.

    Args:
        data: as for `Workflow.fit`: paths, a folder or a glob of parquet, CSV or TSV, or a frame.
        columns: names of some columns; all by default.
        top: how many of the most frequent values of a column are kept. With 0 the result contains
            no texts of the data.
        most_values: the number of different values of a column that are counted one by one, about;
            of more, the facts are estimated from a part of the values.
        storage_options: how to connect to an object store.

    Returns:
        Facts about each column, to print, to show in a notebook, to save, or to generate data from.

    Raises:
        WorkflowError: the data cannot be read, or none of its columns can; it has no such column,
            or an argument is wrong.

    Example:
        >>> inspection = inspect_dataset({"userId": [7, 9, 7, None], "tags": [["a"], [], ["b", "a"], ["a"]]})
        >>> print(inspection)  # doctest: +SKIP
        4 rows, 2 columns
        ...
        >>> inspection["tags"].common
        [['a', 3], ['b', 1]]
    """
    top = whole_number("top", top, 0, WorkflowError)
    most_values = whole_number("most_values", most_values, 1, WorkflowError)
    source = Source.of(data, storage_options=storage_options)
    names = _wanted(source, columns)
    _expect_readable(source)
    schemas, unreadable = _schemas(source, names)
    with source.errors("The data cannot be inspected"):
        rows = int(source.frame.select(pl.len()).collect(engine="streaming").item())
        facts = tuple(
            measure(frame, column, top, most_values)
            for column, frame in _with_frames(source, schemas, rows)
        )
    return Inspection(rows, facts, unreadable)


def _wanted(source: Source, columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        return source.names
    names = [columns] if isinstance(columns, str) else list(columns)
    if unknown := [name for name in names if name not in source.names]:
        raise WorkflowError(
            f"Expected columns among {listed(source.names)}. Received: {listed(map(repr, unknown))}."
            + did_you_mean(unknown, source.names)
        )
    return list(dict.fromkeys(names))


def _expect_readable(source: Source) -> None:
    """Refuse data whose number of rows is unknown, since no column can be read."""
    if source.conflicts and len(source.conflicts) == len(source.names):
        reasons = " ".join(source.conflicts.values())
        raise WorkflowError(f"Expected a column that can be read. Received: none. {reasons:.1000}")


def _schemas(source: Source, names: Sequence[str]) -> tuple[list[ColumnSchema], dict[str, str]]:
    """The columns that can be inspected, and the reasons why others cannot."""
    have, columns = source.frame.collect_schema(), []
    unreadable: dict[str, str] = {}
    for name in names:
        if name in source.conflicts:
            unreadable[name] = source.conflicts[name]
            continue
        if _is_null(have[name]):
            unreadable[name] = NO_VALUES
            continue
        try:
            column = column_schema(name, have[name])
            if column.time:  # of INT96 some may be beyond those of Polars
                source.select([name])
        except (SchemaError, WorkflowError) as error:
            unreadable[name] = str(error)
        else:
            columns.append(column)
    return columns, unreadable


def _with_frames(
    source: Source, columns: Sequence[ColumnSchema], rows: int
) -> Iterator[tuple[ColumnSchema, pl.LazyFrame]]:
    """Each column with a frame that has it alone."""
    together = max(_HELD_VALUES // max(rows, 1), 1)
    for start in range(0, len(columns), together):
        group = columns[start : start + together]
        frame = source.select(column.name for column in group).sound().frame
        if len(group) == 1:
            yield group[0], frame
            continue
        table = frame.collect(engine="streaming")
        for column in group:
            yield column, table.select(column.name).lazy()


def _is_null(dtype: pl.DataType) -> bool:
    """Whether a type, or that of the elements, has no value but null."""
    return (dtype.inner if isinstance(dtype, pl.List | pl.Array) else dtype) == pl.Null
