"""Number columns that can be sent as they are, many at once: most columns of most requests.

What takes time in a small request is each step for each column, so columns of one dtype take
their steps together. Whatever is not plain, such as a null, a text, a list or another dtype, is
left to `to_columns`, with its checks and its errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from workflow.alike import Group
from workflow.dtypes import DTYPES
from workflow.expressions.column import Array
from workflow.wire import WireColumn

# Frames of so many values at most are read as Python's own: a frame takes long for each of its
# columns, pandas longest, and Python for each of its values.
_FEW_OF_POLARS, _FEW_OF_PANDAS = 512, 8_192


def plain_tensors(groups: Sequence[Group], data: Any) -> dict[str, Array]:
    """The tensors (N, 1) of the groups that hold plain numbers in the dtype that the model takes.

    Args:
        groups: what is looked for.
        data: a table of any kind.
    """
    tensors: dict[str, Array] = {}
    table = _small(data)
    for column, names in groups:
        columns = _columns(column, table, names)
        if columns and _are_plain(column, columns):
            tensors.update(zip(names, columns, strict=True))
    if len({len(tensor) for tensor in tensors.values()}) > 1:
        return {}
    return tensors


def _small(data: Any) -> Any:
    """A frame of few values as Python's own in a mapping; any other table as it is."""
    if isinstance(data, Mapping):
        return data
    is_polars, values = isinstance(data, pl.DataFrame), data.shape[0] * data.shape[1]
    if not 0 < values <= (_FEW_OF_POLARS if is_polars else _FEW_OF_PANDAS):
        return data
    if is_polars:
        names = [n for n, dtype in zip(data.columns, data.dtypes, strict=True) if _is_flat(dtype)]
        part = data if len(names) == data.width else data[names]
        return dict(zip(names, zip(*part.rows(), strict=True), strict=True))
    names = data.columns.tolist()
    if len(set(names)) < len(names):
        return {}
    return dict(zip(names, data.to_numpy(dtype=object).T.tolist(), strict=True))


def _is_flat(dtype: pl.DataType) -> bool:
    """Whether a row of a column is one value; to make Python's own of long lists takes long."""
    return not dtype.is_nested()


def _columns(column: WireColumn, data: Any, names: Sequence[str]) -> Sequence[Array]:
    """The columns (N, 1), or none where they are not all there in the dtype, without a null."""
    dtype = DTYPES[column.dtype]
    if isinstance(data, Mapping):
        return _of_mapping([data.get(name) for name in names], dtype.numpy)
    if not set(names) <= set(data.columns):
        return ()
    part, wanted = data[list(names)], dtype.numpy
    if isinstance(data, pl.DataFrame):
        wanted = getattr(pl, dtype.polars)
    # Columns of several dtypes would become one matrix as well, and some values others by it.
    if set(part.dtypes) != {wanted}:
        return ()
    matrix = part.to_numpy()
    # A null among whole numbers, or a name that pandas has twice.
    if matrix.dtype != dtype.numpy or matrix.shape[1] != len(names):
        return ()
    return list(matrix.T[:, :, np.newaxis])


def _of_mapping(columns: Sequence[Any], dtype: np.dtype[Any]) -> Sequence[Array]:
    """Arrays of the dtype, or lists of Python's own kind of it."""
    if all(type(column) in (list, tuple) for column in columns):
        kinds = set(map(type, chain.from_iterable(columns)))
        # None becomes NaN, which is null where a column of floats may have one.
        known = {float, type(None)} if dtype.kind == "f" else {int}
        if len(set(map(len, columns))) > 1 or not kinds or not kinds <= known:
            return ()
        try:
            matrix = np.array(columns, np.float64 if dtype.kind == "f" else np.int64)
        except OverflowError:
            return ()
        return _cast(matrix, dtype)
    if all(
        type(column) is np.ndarray
        and column.dtype == dtype
        and (column.ndim == 1 or column.shape[1:] == (1,))
        for column in columns
    ):
        return [column.reshape(-1, 1) for column in columns]
    return ()


def _cast(matrix: Array, dtype: np.dtype[Any]) -> Sequence[Array]:
    """The rows in the dtype, or none where more than the digits of a float is lost."""
    if matrix.dtype == dtype:
        return list(matrix[:, :, np.newaxis])
    with np.errstate(over="ignore"):
        made = matrix.astype(dtype)
    lost = np.isinf(made) & np.isfinite(matrix) if dtype.kind == "f" else made != matrix
    return () if lost.any() else list(made[:, :, np.newaxis])


def _are_plain(column: WireColumn, columns: Sequence[Array]) -> bool:
    """Whether no value is the code for null, and none is NaN that must not be."""
    is_float = DTYPES[column.dtype].kind == "float"
    if column.nullable and is_float:
        return True  # NaN is null, and its code.
    if not column.nullable and not is_float:
        return True
    values = np.concatenate(columns) if len(columns) > 1 else columns[0]
    return not (np.isnan(values) if is_float else values == column.null_code).any()
