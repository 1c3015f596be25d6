"""One row, which most online services ask for, read as Python's own values.

A step of numpy's or Polars' for a column takes longer than one of Python's for a value, most of
all between two answers: what a request touches has left the processor's caches, and comes from
memory anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from serving.connection.tensors import Row, RowLayout, encode_tensors
from serving.errors import ClientError
from serving.inputs.arrays import from_list
from serving.inputs.few import BYTES, class_of, classes_of
from serving.inputs.fitting import fitting
from serving.inputs.table import is_pandas
from workflow.schema.column import Array
from workflow.schema.dtypes import DTYPES, SchemaError
from workflow.wire.format import WireColumn, encode

Pick = Callable[[Sequence[Any]], Sequence[Any]]
_LISTS, _ARRAYS, _SHAPES = {list, tuple}, {np.ndarray}, {(1,), (1, 1)}
# Numpy's kinds of dtypes, by the kind that values are to be of.
_KINDS = {"bool": "b", "int": "iu", "uint": "iu", "float": "iuf", "string": "OU"}
_kind, _shape = attrgetter("dtype.kind"), attrgetter("shape")


class _Part(NamedTuple):
    """Columns that are alike.

    Attributes:
        columns: those.
        place: which of the row's values are theirs.
        class_of: what the class of a dtype of Polars is.
        classes: the classes whose values Python's own stand for.
        kinds: numpy's kinds of dtypes that do; none of lists.
    """

    columns: Sequence[WireColumn]
    place: slice
    class_of: Callable[[pl.DataType], Any]
    classes: frozenset[Any]
    kinds: frozenset[str]


class RowReader:
    """Reads tables of one row.

    Args:
        columns: what a model takes.

    Example:
        >>> reader = RowReader([WireColumn("userId", "int64"), WireColumn("age", "int64")])
        >>> reader.of({"userId": [7], "age": [30], "rating": [5]}).values
        [7, 30]
        >>> reader.of({"userId": [7, 8], "age": [30, 40]}) is None
        True
    """

    def __init__(self, columns: Iterable[WireColumn]) -> None:
        # Strings come last of the scalars, as in a `Row`, and then lists.
        columns = sorted(columns, key=_alike)
        scalars = [column for column in columns if not column.is_list]
        self._names = [column.name for column in columns]
        self._parts = _parts(columns)
        self._layout = RowLayout({column.name: DTYPES[column.dtype] for column in scalars})
        self._seen: tuple[Sequence[Any], Pick | None] = (), None

    def of(self, data: Any) -> Row | None:
        """The row of a table.

        Args:
            data: a table of any kind.

        Returns:
            None where the table has not one row, or holds what takes a closer look: a dtype of
            another kind, a value that does not fit.
        """
        if not self._parts:
            return None
        if isinstance(data, pl.DataFrame):
            values = self._of_polars(data)
        elif isinstance(data, Mapping):
            values = self._of_mapping(data)
        else:
            values = self._of_pandas(data) if is_pandas(data) else None
        return None if values is None else self._fitted(values)

    def _fitted(self, values: Sequence[Any]) -> Row | None:
        scalars: list[Any] = []
        lists: dict[str, Array] = {}
        for part in self._parts:
            column, taken = part.columns[0], values[part.place]
            if column.is_list:
                made = _lists(part.columns, taken)
                if made is None:
                    return None
                lists |= made
            else:
                fit = fitting(column, taken)
                if fit is None:
                    return None
                scalars += fit
        return Row(self._layout, scalars, encode_tensors(lists))

    def _of_polars(self, data: pl.DataFrame) -> Sequence[Any] | None:
        # A column that the model does not take may be a long text or list.
        if data.height != 1 or data.estimated_size() > BYTES:
            return None
        pick = self._pick(data.columns)
        if pick is None:
            return None
        dtypes = pick(data.dtypes)
        for part in self._parts:
            if not part.classes.issuperset(map(part.class_of, dtypes[part.place])):
                return None
        return pick(data.row(0))

    def _of_mapping(self, data: Mapping[Any, Any]) -> Sequence[Any] | None:
        columns: list[Any] = list(map(data.get, self._names))
        values: list[Any] = []
        for part in self._parts:
            row = _row(columns[part.place], part.kinds)
            if row is None:
                return None
            values += row
        return values

    def _of_pandas(self, data: Any) -> Sequence[Any] | None:
        if len(data) != 1:
            return None
        pick = self._pick(data.columns.tolist())
        return None if pick is None else pick(data.to_numpy(dtype=object)[0].tolist())

    def _pick(self, names: Sequence[Any]) -> Pick | None:
        """Function that takes the model's columns out of a row of so named ones; None where some are missing."""
        seen, pick = self._seen
        # The rows of one service come one after another, and have the same columns.
        if names != seen:
            pick = _picker(names, self._names)
            self._seen = names, pick
        return pick


def _alike(column: WireColumn) -> tuple[bool, bool, str, bool, bool]:
    return (
        column.is_list,
        column.dtype == "string",
        column.dtype,
        column.nullable,
        bool(column.time),
    )


def _parts(columns: Iterable[WireColumn]) -> list[_Part]:
    parts, end = [], 0
    for (is_list, *_), group in groupby(columns, _alike):
        alike = list(group)
        place = slice(end, end := end + len(alike))
        kinds = "" if is_list else _KINDS[DTYPES[alike[0].dtype].kind]
        part = _Part(
            columns=alike,
            place=place,
            class_of=class_of if is_list else type,  # Which is faster.
            classes=classes_of(alike[0]),
            kinds=frozenset(kinds),
        )
        parts.append(part)
    return parts


def _picker(names: Sequence[Any], wanted: Sequence[str]) -> Pick | None:
    """Function that takes the wanted columns out of a row; None where one is missing, or pandas has it twice."""
    places = {name: place for place, name in enumerate(names)}
    if len(places) < len(names) or not places.keys() >= set(wanted):
        return None
    taken = [places[name] for name in wanted]
    # Of one place `itemgetter` would give the value itself.
    return itemgetter(*taken) if len(taken) > 1 else itemgetter(slice(taken[0], taken[0] + 1))


def _row(columns: Sequence[Any], kinds: frozenset[str]) -> Sequence[Any] | None:
    """The values of columns of one row, all lists or all arrays of these kinds; else None."""
    types = set(map(type, columns))
    if types <= _LISTS:
        return [column[0] for column in columns] if set(map(len, columns)) == {1} else None
    if types != _ARRAYS or not set(map(_shape, columns)) <= _SHAPES:
        return None
    return [column.item() for column in columns] if kinds.issuperset(map(_kind, columns)) else None


def _lists(columns: Sequence[WireColumn], rows: Sequence[Any]) -> dict[str, Array] | None:
    """The tensors of list columns of one row; None where one does not fit."""
    tensors: dict[str, Array] = {}
    try:
        for column, row in zip(columns, rows, strict=True):
            tensors |= encode(column, from_list(column, [row]))
    except (ClientError, SchemaError):
        return None
    return tensors
