"""Frames of few values, read as Python's own.

A frame takes long for each of its columns, pandas longest, and Python for each value: below some
hundreds of values Python is faster.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from operator import eq
from typing import Any

import numpy as np
import polars as pl

from workflow.schema.dtypes import DTYPES
from workflow.wire.format import WireColumn

Values = Mapping[str, Sequence[Any]]

# How many values a frame has at most, and how many bytes: a value may be a list or a long text.
_FEW_OF_POLARS, _FEW_OF_PANDAS, BYTES = 512, 8_192, 65_536
# What one of pandas' may be, to mean what it means in a list.
_PYTHONS = frozenset({int, float, str, list, np.ndarray})
_NUMBERS = {getattr(pl, info.polars) for info in DTYPES.values() if info.kind != "string"}
# The kinds of dtypes that one kind can be made of.
_ALIKE = {"float": ("float", "int", "uint"), "int": ("int", "uint"), "uint": ("int", "uint")}


class FewValues:
    """Reads the columns of small frames.

    Args:
        columns: what a model takes.
    """

    def __init__(self, columns: Iterable[WireColumn]) -> None:
        self._classes = {column.name: classes_of(column) for column in columns}
        self._index: tuple[Any, Sequence[Any]] = None, ()

    def of(self, data: Any) -> Values:
        """The expected columns of a small frame, None for null; none for any other table.

        Columns are left out that a list of Python's own might not stand for.

        Args:
            data: a table of any kind.
        """
        if isinstance(data, Mapping):
            return {}
        count = data.shape[0] * data.shape[1]
        if isinstance(data, pl.DataFrame):
            return self._of_polars(data) if 0 < count <= _FEW_OF_POLARS else {}
        return self._of_pandas(data) if 0 < count <= _FEW_OF_PANDAS else {}

    def _of_polars(self, data: pl.DataFrame) -> Values:
        if data.estimated_size() > BYTES:
            return {}
        taken, are_numbers = [], True
        for name, dtype in zip(data.columns, data.dtypes, strict=True):
            kind = class_of(dtype)
            if kind in self._classes.get(name, ()):
                taken.append(name)
            else:
                are_numbers &= kind in _NUMBERS
        if not are_numbers:  # Others may take long, or not fit into Python's own.
            return {name: data[name].to_list() for name in taken}
        columns = dict(zip(data.columns, zip(*data.rows(), strict=True), strict=True))
        return {name: columns[name] for name in taken}

    def _of_pandas(self, data: Any) -> Values:
        names = self._names(data.columns)
        columns = data.to_numpy(dtype=object).T.tolist()
        values = list(chain.from_iterable(columns))
        if not (set(map(type, values)) <= {int, float} and all(map(eq, values, values))):
            columns = [_with_none(column) for column in columns]
        return {
            name: column
            for name, column in zip(names, columns, strict=True)
            if name in self._classes and column is not None
        }

    def _names(self, index: Any) -> Sequence[Any]:
        """The names of the columns; where one is there twice, none that is expected."""
        known, names = self._index
        # The rows of one frame come one after another, and share an index.
        if index is not known:
            names = index.tolist()
            if len(set(names)) < len(names):
                names = [None] * len(names)
            self._index = index, names
        return names


def _with_none(values: list[Any]) -> list[Any] | None:
    """A column of pandas' with None for null; None where its values might mean something else."""
    kinds, missing = set(map(type, values)), _missing()
    if kinds <= missing or not kinds <= _PYTHONS | missing:
        return None  # Of nulls alone only the dtype could tell what they are.
    made = [
        None if type(value) in missing or (type(value) is float and value != value) else value  # noqa: PLR0124
        for value in values
    ]
    return None if all(value is None for value in made) else made


@cache
def _missing() -> frozenset[type]:
    """The types of what pandas writes for null, besides NaN."""
    pandas = sys.modules["pandas"]
    return frozenset({type(None), type(pandas.NA), type(pandas.NaT)})


def classes_of(column: WireColumn) -> frozenset[Any]:
    """The classes, as `class_of` gives them, whose values Python's own stand for."""
    if column.time:
        return frozenset()
    kind = DTYPES[column.dtype].kind
    same = _ALIKE.get(kind, (kind,))
    classes = (getattr(pl, info.polars) for info in DTYPES.values() if info.kind in same)
    return frozenset((pl.List, c) if column.is_list else c for c in classes)


def class_of(dtype: pl.DataType) -> Any:
    """The class of a dtype of Polars; of a list with `pl.List`."""
    return (pl.List, type(dtype.inner)) if isinstance(dtype, pl.List) else type(dtype)
