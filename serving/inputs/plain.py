"""Number columns that can be sent as they are, many at once: most columns of most requests.

What takes time in a small request is each step for each column, so columns of one dtype take
their steps together. Whatever is not plain, such as a null, a text, a list or another dtype, is
left to `to_columns`, with its checks and its errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from workflow.expressions.column import Array
from workflow.schema import DTYPES
from workflow.wire import WireColumn

Group = tuple[WireColumn, tuple[str, ...]]


def groups_of(columns: Iterable[WireColumn]) -> tuple[Group, ...]:
    """The scalar columns of numbers that are alike: one of them, and the names of all.

    Example:
        >>> groups_of([WireColumn("a", "int64"), WireColumn("b", "int64")])[0][1]
        ('a', 'b')
    """
    alike: dict[tuple[str, bool], list[WireColumn]] = {}
    for column in columns:
        is_number = DTYPES[column.dtype].kind in ("int", "uint", "float")
        if column.layout == "scalar" and is_number:
            alike.setdefault((column.dtype, column.nullable), []).append(column)
    return tuple((same[0], tuple(c.name for c in same)) for same in alike.values())


def plain_tensors(groups: Sequence[Group], data: Any) -> dict[str, Array]:
    """The tensors (N, 1) of the groups that hold plain numbers in the dtype that the model takes.

    Args:
        groups: what is looked for.
        data: a table of any kind.
    """
    tensors: dict[str, Array] = {}
    for column, names in groups:
        columns = _columns(column, data, names)
        if columns and _are_plain(column, columns):
            tensors.update(zip(names, columns, strict=True))
    if len({len(tensor) for tensor in tensors.values()}) > 1:
        return {}
    return tensors


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
    if all(type(column) is list for column in columns):
        kinds = set(map(type, chain.from_iterable(columns)))
        if len(set(map(len, columns))) > 1 or kinds != {float if dtype.kind == "f" else int}:
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
