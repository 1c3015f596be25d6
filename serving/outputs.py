"""From a model's output tensors to the kind of table that the caller sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from workflow.expressions.column import Array, Column
from workflow.schema import DTYPES
from workflow.wire import WireColumn, decode


def to_arrays(columns: Iterable[WireColumn], tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The tensors of the columns, as they came; bytes become `str`.

    Returns:
        Arrays of the shape (N, k); a list column is its two halves.
    """
    arrays = {}
    for column in columns:
        for name in column.tensors:
            tensor = tensors[name]
            if tensor.dtype == object:
                texts = [
                    value.decode() if isinstance(value, bytes) else value
                    for value in tensor.reshape(-1)
                ]
                tensor = np.array(texts, object).reshape(tensor.shape)
            arrays[name] = tensor
    return arrays


def to_polars(columns: Iterable[WireColumn], tensors: Mapping[str, Array]) -> pl.DataFrame:
    """A frame with one column for each output; an output (N, k) with k > 1 is an Array column."""
    return pl.DataFrame([_series(column, tensors) for column in columns])


def to_pandas(columns: Iterable[WireColumn], tensors: Mapping[str, Array], index: Any) -> Any:
    """A pandas frame with the given index; lists and outputs (N, k) with k > 1 are lists."""
    import pandas as pd  # noqa: PLC0415 - the caller has passed pandas

    data: dict[str, Any] = {}
    for column in columns:
        series = _series(column, tensors)
        if not (series.dtype.is_numeric() or series.dtype == pl.Boolean):
            data[column.name] = pd.Series(series.to_list(), index, dtype=object)
        elif series.null_count():
            # pandas' nullable dtypes have Polars' names; without them integers became floats.
            data[column.name] = pd.Series(series.to_list(), index, dtype=str(series.dtype))
        else:
            data[column.name] = pd.Series(series.to_numpy(), index)
    return pd.DataFrame(data, index)


def _series(column: WireColumn, tensors: Mapping[str, Array]) -> pl.Series:
    dtype = getattr(pl, DTYPES[column.dtype].polars)
    if column.layout == "scalar" and tensors[column.name].ndim > 1:
        width = tensors[column.name].shape[1]
        if width != 1:
            flat = _flat(column, tensors[column.name].reshape(-1), None, dtype)
            return flat.reshape((-1, width))
    decoded = decode(column, dict(tensors))
    flat = _flat(column, decoded.array, decoded.valid, dtype)
    return flat if decoded.lengths is None else _nest(flat, decoded)


def _flat(column: WireColumn, values: Array, valid: Array | None, dtype: Any) -> pl.Series:
    texts = column.dtype == "string"
    series = pl.Series(column.name, values.tolist() if texts else values, dtype)
    return series if valid is None else series.set(pl.Series(~valid), None)


def _nest(flat: pl.Series, column: Column) -> pl.Series:
    """Cut a series into the rows of a list column, by Arrow rather than row by row."""
    lists = pa.LargeListArray.from_arrays(pa.array(column.offsets()), flat.to_arrow())
    return pl.Series(flat.name, lists, pl.List(flat.dtype))
