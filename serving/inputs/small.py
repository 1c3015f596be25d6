"""Small frames, read as Python objects.

Reading a frame costs time for each column, most in pandas, while Python costs time for each value:
below some hundreds of values Python is faster.
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

# Limits of a small frame, in values and in bytes: a value may be a list or a long text.
_FEW_OF_POLARS, _FEW_OF_PANDAS, _BYTES = 512, 8_192, 65_536
# Types of pandas' values with the same meaning in a list.
_PYTHONS = frozenset({int, float, str, list, np.ndarray})
_NUMBERS = {getattr(pl, info.polars) for info in DTYPES.values() if info.kind != "string"}
# The kinds of dtypes that can be converted to each kind.
_ALIKE = {"float": ("float", "int", "uint"), "int": ("int", "uint"), "uint": ("int", "uint")}


class SmallFrames:
    """A reader of tables' columns; those of small frames become lists of Python objects.

    Args:
        columns: the columns that a model takes.
    """

    def __init__(self, columns: Iterable[WireColumn]) -> None:
        self._classes = {column.name: _classes_of(column) for column in columns}
        self._index: tuple[Any, Sequence[Any]] = None, ()
        self._seen: tuple[Any, list[str], bool] = None, [], False

    def columns_of(self, data: Any) -> Mapping[str, Any]:
        """The columns of a table: lists, arrays or series; null is None in lists.

        A column stays a series if a list of Python objects could have another meaning.

        Args:
            data: a table of any kind.
        """
        if isinstance(data, Mapping):
            return data
        rows, width = data.shape
        count = rows * width
        if isinstance(data, pl.DataFrame):
            small = 0 < count <= _FEW_OF_POLARS and data.estimated_size() <= _BYTES
            return self._of_polars(data) if small else dict(zip(data.columns, data, strict=True))
        columns = self._of_pandas(data) if 0 < count <= _FEW_OF_PANDAS else {}
        return columns | {name: data[name] for name in self._classes if name not in columns}

    def _of_polars(self, data: pl.DataFrame) -> dict[str, Any]:
        names = data.columns
        lists, others_are_numbers = self._taken(names, _classes(data.dtypes))
        columns: dict[str, Any]
        if others_are_numbers:
            columns = dict(zip(names, zip(*data.rows(), strict=True), strict=True))
        else:  # Other columns may take long, or have no Python equivalent.
            columns = {name: tuple(data[name].to_list()) for name in lists}
        if len(lists) < len(self._classes):
            series_names = self._classes.keys() - set(lists)
            columns |= {name: data[name] for name in names if name in series_names}
        return columns

    def _taken(self, names: list[str], kinds: list[Any]) -> tuple[list[str], bool]:
        """The columns that become lists, and whether all others are numbers."""
        key, lists, others_are_numbers = self._seen
        # Consecutive requests of a service usually have the same columns.
        if key != (names, kinds):
            of_name = dict(zip(names, kinds, strict=True))
            lists = [name for name, kind in of_name.items() if kind in self._classes.get(name, ())]
            others_are_numbers = _NUMBERS.issuperset(of_name[n] for n in names if n not in lists)
            self._seen = (names, kinds), lists, others_are_numbers
        return lists, others_are_numbers

    def _of_pandas(self, data: Any) -> dict[str, Any]:
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
        """The names of the columns; without expected names that occur twice."""
        last_index, names = self._index
        # Rows that are taken from one frame share an index.
        if index is not last_index:
            names = index.tolist()
            if len(set(names)) < len(names):
                names = [None] * len(names)
            self._index = index, names
        return names


def _with_none(values: list[Any]) -> list[Any] | None:
    kinds, missing = set(map(type, values)), _missing()
    if kinds <= missing or not kinds <= _PYTHONS | missing:
        return None  # Only the dtype says what nulls alone are.
    result = [
        None if type(value) in missing or (type(value) is float and value != value) else value  # noqa: PLR0124
        for value in values
    ]
    return None if all(value is None for value in result) else result


@cache
def _missing() -> frozenset[type]:
    """The types that pandas uses for null, besides NaN."""
    pandas = sys.modules["pandas"]
    return frozenset({type(None), type(pandas.NA), type(pandas.NaT)})


def _classes_of(column: WireColumn) -> frozenset[Any]:
    """The classes of `_classes` whose values become Python objects without loss."""
    if column.time:
        return frozenset()
    kind = DTYPES[column.dtype].kind
    same = _ALIKE.get(kind, (kind,))
    classes = (getattr(pl, info.polars) for info in DTYPES.values() if info.kind in same)
    return frozenset((pl.List, c) if column.is_list else c for c in classes)


def _classes(dtypes: Sequence[pl.DataType]) -> list[Any]:
    """The classes of Polars dtypes; for a list together with the class of its elements."""
    classes: list[Any] = list(map(type, dtypes))
    if pl.List in classes:
        pairs = zip(classes, dtypes, strict=True)
        return [(c, type(dtype.inner)) if isinstance(dtype, pl.List) else c for c, dtype in pairs]
    return classes
