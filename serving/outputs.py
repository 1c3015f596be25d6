"""Conversion of a model's output tensors to the caller's kind of table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from workflow.expressions.polars.series import to_series
from workflow.schema.column import Array
from workflow.wire.format import WireColumn, decode


def to_arrays(columns: Iterable[WireColumn], tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The columns' tensors, unchanged except that UTF-8 bytes become `str`.

    Returns:
        Arrays of shape (N, k); a list column has two.
    """
    arrays = {}
    for column in columns:
        for name in column.tensors:
            tensor = tensors[name]
            if tensor.dtype == object:
                texts = [_text(value) for value in tensor.reshape(-1)]
                tensor = np.array(texts, object).reshape(tensor.shape)
            arrays[name] = tensor
    return arrays


def _text(value: Any) -> Any:
    """A string as `str`; bytes that are not UTF-8, such as the null code, are unchanged."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def to_polars(columns: Iterable[WireColumn], tensors: Mapping[str, Array]) -> pl.DataFrame:
    """A frame with one column for each output; one of several values a row is an Array column."""
    first, *rest = (_series(column, tensors) for column in columns)
    frame = first.to_frame()
    return frame.hstack(rest) if rest else frame


def to_pandas(columns: Iterable[WireColumn], tensors: Mapping[str, Array], index: Any) -> Any:
    """A pandas frame with the given index; lists and outputs of several values a row are lists."""
    import pandas as pd  # noqa: PLC0415 - the caller has passed pandas

    columns = tuple(columns)
    plain = {c.name: m for c in columns if (m := _plain_tensor(c, tensors)) is not None}
    if len(columns) == len(plain) == 1 and _is_column(matrix := plain[columns[0].name]):
        # A copy, since the memory of the answer is read-only.
        return pd.DataFrame(matrix, index, _labels(columns[0].name), copy=True)
    data: dict[str, Any] = {}
    for column in columns:
        if column.name in plain and _is_column(plain[column.name]):
            data[column.name] = plain[column.name][:, 0]
            continue
        series = _series(column, tensors)
        if not (series.dtype.is_numeric() or series.dtype == pl.Boolean):
            data[column.name] = pd.Series(series.to_list(), index, dtype=object)
        elif series.null_count():
            # pandas' nullable dtypes have Polars' names; without them integers would become floats.
            data[column.name] = pd.Series(series.to_list(), index, dtype=str(series.dtype))
        else:
            data[column.name] = pd.Series(series.to_numpy(), index)
    return pd.DataFrame(data, index)


@cache
def _labels(name: str) -> Any:
    """A pandas index of one name, cached because making it takes longer than making the frame."""
    import pandas as pd  # noqa: PLC0415 - as above

    return pd.Index([name])


def _plain_tensor(column: WireColumn, tensors: Mapping[str, Array]) -> Array | None:
    """The tensor (N, ...) of numbers without nulls, as most models answer; or None."""
    tensor = tensors[column.values_name]
    plain = column.layout == "scalar" and not column.nullable and tensor.dtype != object
    return tensor if plain and tensor.ndim > 1 and 0 not in tensor.shape[1:] else None


def _is_column(tensor: Array) -> bool:
    return tensor.shape[1:] == (1,)


def _series(column: WireColumn, tensors: Mapping[str, Array]) -> pl.Series:
    tensor = _plain_tensor(column, tensors)
    if tensor is not None:
        return pl.Series(column.name, tensor[:, 0] if _is_column(tensor) else tensor)
    if column.layout == "scalar" and tensors[column.name].shape[1:] not in ((), (1,)):
        shape = tensors[column.name].shape
        flat = decode(column, {column.name: tensors[column.name].reshape(-1)})
        return to_series(flat, column.name).reshape(shape)
    return to_series(decode(column, dict(tensors)), column.name)
