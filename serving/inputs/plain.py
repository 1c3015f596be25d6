"""Number columns that can be sent almost as they are, many at once: most columns of most requests.

What takes time in a small request is each step for each column, so columns of one dtype take
their steps together, as one matrix. Whatever is not plain, such as a text, a list or a value that
does not fit, is left to `to_columns`, with its checks and its errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from serving.inputs.fitting import fitting
from workflow.schema.column import Array
from workflow.schema.dtypes import DTYPES
from workflow.wire.alike import Group
from workflow.wire.format import WireColumn


def plain_tensors(groups: Sequence[Group], data: Any) -> dict[str, Array]:
    """The tensors (N, 1) of the groups that hold plain numbers, nulls as their code.

    Args:
        groups: what is looked for.
        data: a table of any kind.
    """
    tensors: dict[str, Array] = {}
    for column, names in groups:
        tensors.update(zip(names, _tensors(column, data, names), strict=False))
    if len({len(tensor) for tensor in tensors.values()}) > 1:
        return {}
    return tensors


def _tensors(column: WireColumn, data: Any, names: Sequence[str]) -> Sequence[Array]:
    """The tensors of a group, or none where it is not plain.

    Args:
        column: one of the group.
        data: a table of any kind.
        names: the columns of the group.
    """
    dtype = DTYPES[column.dtype].numpy
    if not isinstance(data, Mapping):
        matrix = _of_frame(column, data, names)
        return () if matrix is None else list(matrix[:, :, np.newaxis])
    columns: list[Any] = [data.get(name) for name in names]
    if all(type(values) in (list, tuple) for values in columns):
        matrix = _of_values(column, columns)
        return () if matrix is None else list(matrix[:, :, np.newaxis])
    if not all(
        type(array) is np.ndarray
        and array.dtype == dtype
        and (array.ndim == 1 or array.shape[1:] == (1,))
        for array in columns
    ):
        return ()
    tensors = [array.reshape(-1, 1) for array in columns]
    return tensors if _are_values(column, np.concatenate(tensors)) else ()


def _of_frame(column: WireColumn, data: Any, names: Sequence[str]) -> Array | None:
    """The columns of a frame as rows, where they have the dtype; else None."""
    dtype = DTYPES[column.dtype]
    if not set(names) <= set(data.columns):
        return None
    part = data[list(names)]
    is_polars = isinstance(data, pl.DataFrame)
    # Columns of several dtypes would become one matrix as well, and some values others by it.
    if set(part.dtypes) != {getattr(pl, dtype.polars) if is_polars else dtype.numpy}:
        return None
    matrix = part.to_numpy().T
    if is_polars and dtype.is_integer and column.nullable and matrix.dtype != dtype.numpy:
        return _filled(column, part)
    # A null where there can be none, or a name that pandas has twice.
    if matrix.dtype != dtype.numpy or len(matrix) != len(names):
        return None
    return matrix if _are_values(column, matrix) else None


def _filled(column: WireColumn, part: pl.DataFrame) -> Array | None:
    """Whole numbers with the code for null where they are null; None where one is the code."""
    matrix = part.select(pl.all().fill_null(column.null_code)).to_numpy().T
    nulls = sum(part.null_count().row(0))
    return matrix if np.count_nonzero(matrix == column.null_code) == nulls else None


def _of_values(column: WireColumn, columns: Sequence[Any]) -> Array | None:
    """Lists of Python's own numbers as the rows of a matrix, where all fit the dtype; else None."""
    if len(set(map(len, columns))) > 1:
        return None
    values = fitting(column, list(chain.from_iterable(columns)))
    if values is None:
        return None
    return np.array(values, DTYPES[column.dtype].numpy).reshape(len(columns), -1)


def _are_values(column: WireColumn, matrix: Array) -> bool:
    """Whether no value is the code for null, and none is NaN that must not be."""
    if DTYPES[column.dtype].kind == "float":
        return column.nullable or not np.isnan(matrix).any()
    return not column.nullable or not (matrix == column.null_code).any()
