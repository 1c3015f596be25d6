"""Conversion of a table of any kind to the columns that a model expects."""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
import polars as pl

from serving.errors import ColumnError, DtypeError
from serving.inputs.arrays import from_array, from_list
from serving.inputs.polars import from_polars
from workflow.errors import SERIES_ADVICE
from workflow.schema.column import Column
from workflow.schema.names import listed, rename_advice
from workflow.wire.format import WireColumn
from workflow.wire.request_rules import NNZS, VALUES, lengths_fit

# Kinds of data that `workflow.transform` or a script has at hand, and how they become a table.
_ADVICE: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (pl.LazyFrame, " Call .collect() first."),
    (pl.Series, " Pass series.to_frame()."),
    ((list, tuple), " Make a frame of rows: polars.DataFrame(rows)."),
    (
        (str, os.PathLike),
        " Read the file: polars.read_parquet(path); or write the answers with predict_to_parquet.",
    ),
)


def is_pandas(data: Any, kind: str = "DataFrame") -> bool:
    """Whether data is a pandas frame, or another kind of pandas; does not import pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(data, getattr(pandas, kind))


def to_columns(expected: Iterable[WireColumn], data: Any) -> dict[str, Column]:
    """The expected columns of a table; other columns are ignored.

    Args:
        expected: the columns that the model takes.
        data: a Polars or pandas frame, or a mapping of names to arrays, lists or series. In a
            mapping a list column may also be its two halves, `x__values` and `x__nnzs`.

    Returns:
        Columns of equal numbers of rows, by name, in the expected order.

    Raises:
        ColumnError: columns are missing, or differ in their number of rows.
        DtypeError: a column has values that the model does not take.

    Example:
        >>> to_columns([WireColumn("userId", "int64")], {"userId": [1, 2]})["userId"].rows
        2
    """
    expected = list(expected)
    expect_table(data)
    expect_columns(expected, data)
    names = list(data.columns if not isinstance(data, Mapping) else data)
    columns = {column.name: _column(column, data, names) for column in expected}
    counts = {name: column.rows for name, column in columns.items()}
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise ColumnError(
            "INVALID_INPUT", f"Expected columns of equal numbers of rows. Received: {text}."
        )
    return columns


def expect_table(data: Any) -> None:
    """Check that data is a table.

    Raises:
        ColumnError: it is not.
    """
    if not (isinstance(data, (pl.DataFrame, Mapping)) or is_pandas(data)):
        advice = next((text for kind, text in _ADVICE if isinstance(data, kind)), "")
        if is_pandas(data, "Series"):
            advice = SERIES_ADVICE
        if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
            advice = advice or " Pass polars.DataFrame(data)."
        raise ColumnError(
            "INVALID_INPUT",
            "Expected a Polars or pandas frame, or a dict of columns. "
            f"Received: {type(data).__name__}.{advice}",
        )


def expect_columns(expected: Sequence[WireColumn], data: Any) -> None:
    """Check that a table has the columns.

    Raises:
        ColumnError: columns are missing.
    """
    names = list(data.columns if not isinstance(data, Mapping) else data)
    have = frozenset(names)
    missing = [column.name for column in expected if not _has(have, column)]
    if missing:
        is_indexed = is_pandas(data) and any(name in data.index.names for name in missing)
        raise ColumnError(
            "INVALID_INPUT",
            f"Expected the columns {listed(column.name for column in expected)}. "
            f"Received: {listed(map(str, names)) or 'none'}. "
            f"Missing: {listed(missing)}.{rename_advice(missing, names)}"
            f"{' The frame has it as its index: pass frame.reset_index().' if is_indexed else ''}",
        )


def _has(names: Container[Any], column: WireColumn) -> bool:
    return column.name in names or all(name in names for name in _halves(column))


def _halves(column: WireColumn) -> tuple[str, str]:
    return column.name + VALUES, column.name + NNZS


def _column(column: WireColumn, data: Any, names: Sequence[Any]) -> Column:
    if column.name in names:
        return read(column, data[column.name])
    values_name, nnzs_name = _halves(column)
    elements = read(WireColumn(values_name, column.dtype, time=column.time), data[values_name])
    lengths = read(WireColumn(nnzs_name, "int64"), data[nnzs_name])
    counts = lengths.array
    if lengths.valid is not None or np.any(counts < 0):
        raise ColumnError(
            "INVALID_INPUT",
            f"Expected row lengths in {nnzs_name!r}. Received: one below 0 or null.",
        )
    if not lengths_fit(counts, elements.rows):
        raise ColumnError(
            "INVALID_INPUT",
            f"Expected {nnzs_name!r} to add up to the {elements.rows} rows of {values_name!r}. "
            f"Received: {sum(counts.tolist())}.",
        )
    return Column(elements.values, elements.valid, counts)


def read(column: WireColumn, data: Any) -> Column:
    """Read a column from any kind of data.

    Raises:
        ClientError: it does not fit, or is not a column.
    """
    if isinstance(data, pl.Series):
        return from_polars(column, data)
    if isinstance(data, np.ndarray):
        return from_array(column, data)
    if isinstance(data, (list, tuple)):
        return from_list(column, data)
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.Series):
        # Imported here, so that callers without pandas do not need it.
        from serving.inputs.pandas import from_pandas  # noqa: PLC0415

        return from_pandas(column, data)
    if is_pandas(data):
        raise ColumnError(
            "INVALID_INPUT",
            f"Expected one column {column.name!r}. Received: {data.shape[1]} of that name. "
            "Rename or drop the others.",
        )
    raise DtypeError(
        "INVALID_INPUT",
        f"Column {column.name!r}: expected an array, a list or a series. "
        f"Received: {type(data).__name__}. {_advice(data)}",
    )


def _advice(data: Any) -> str:
    if data is None or isinstance(data, (str, bytes, bool, int, float, date, np.generic)):
        return "A single row is a list of one value."
    if hasattr(data, "to_pylist"):  # Arrow's; a list of them would have scalars of Arrow
        return "Convert it: column.to_pylist()."
    if type(data).__module__.partition(".")[0] == "pandas":  # a list of them may have pandas' NA
        return "Convert it: pandas.Series(column)."
    return "Convert it: list(column)."
