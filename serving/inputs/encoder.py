"""The conversion of a table to the content of its requests, prepared for a model's inputs.

In a small request each step for each column costs time, so columns with equal expected and actual
types are processed together, as one long column. If that fails, the columns are processed one by
one, to find the faulty one: `to_columns` has the errors, and is the definition of the result.

Both ways are needed. Microseconds of processor time for a table of 39 columns, together and one by one
(the least of 15 runs of `Encoder.encode` and `Encoder.one_by_one`; two shared cores of an AMD EPYC at a
load of 15, 2026-11-25):

| rows | lists | arrays | Polars | pandas |
|---|---|---|---|---|
| 1 | 22, 366 | 40, 230 | 35, 425 | 41, 2,481 |
| 64 | 222, 614 | 49, 246 | 111, 447 | 438, 2,423 |
| 1,024 | 3,108, 3,793 | 66, 242 | 141, 433 | 2,164, 2,355 |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from serving.errors import ClientError, DtypeError
from serving.inputs.cast import cast
from serving.inputs.fitting import fitting
from serving.inputs.small import SmallFrames
from serving.inputs.table import expect_table, read, to_columns
from workflow.schema.column import Array, Column
from workflow.schema.dtypes import DTYPES, SchemaError
from workflow.wire.format import WireColumn, encode_request, expect_no_nan

# Up to this many values Python's own comparisons are faster than numpy's.
_FEW = 256
_DTYPE = attrgetter("dtype")
_PLAIN = {getattr(pl, dtype.polars) for dtype in DTYPES.values()}


class Encoded(NamedTuple):
    """The content of a table's requests.

    Attributes:
        scalars: the tensors (N, 1) of the scalar columns, by column.
        lists: the list columns, which are laid out for each request.
    """

    scalars: Mapping[str, Array]
    lists: Mapping[str, Column]

    @property
    def rows(self) -> int:
        """The number of rows."""
        counts = chain(map(len, self.scalars.values()), (c.rows for c in self.lists.values()))
        return next(counts, 0)

    def parts(self, places: Iterable[tuple[int, int]]) -> Iterator[Encoded]:
        """Some of the rows, between each pair of places."""
        lists = {name: (column, column.offsets()) for name, column in self.lists.items()}
        for start, end in places:
            yield Encoded(
                {name: tensor[start:end] for name, tensor in self.scalars.items()},
                {name: _rows(*each, start, end) for name, each in lists.items()},
            )


class Encoder:
    """An encoder of tables of any kind for one model. Thread-safe.

    Args:
        columns: the columns that the model takes.

    Example:
        >>> encoder = Encoder([WireColumn("userId", "int64"), WireColumn("age", "int64")])
        >>> encoder.encode({"userId": [7, 8], "age": [30, 40]}).scalars["age"].tolist()
        [[30], [40]]
    """

    def __init__(self, columns: Iterable[WireColumn]) -> None:
        self._columns = tuple(columns)
        self._lists = [column for column in self._columns if column.is_list]
        alike: dict[WireColumn, list[str]] = {}
        for column in self._columns:
            if not column.is_list:
                alike.setdefault(replace(column, name=""), []).append(column.name)
        self._groups = list(alike.items())
        self._small = SmallFrames(self._columns)

    def encode(self, data: Any) -> Encoded:
        """Encode a table.

        Args:
            data: a Polars or pandas frame, or a mapping of names to arrays, lists or series.

        Raises:
            ClientError: the data does not fit.
        """
        expect_table(data)
        with suppress(ClientError, SchemaError, KeyError):
            return self._together(self._small.columns_of(data))
        return self.one_by_one(data)

    def one_by_one(self, data: Any) -> Encoded:
        """Encode a table column by column.

        Raises:
            ClientError: the data does not fit; names the column.
        """
        columns = to_columns(self._columns, data)
        lists = {column.name: columns[column.name] for column in self._lists}
        single = [column for column in self._columns if not column.is_list]
        try:
            scalars = [encode_request(column, columns[column.name]) for column in single]
        except SchemaError as error:
            raise DtypeError("INVALID_INPUT", str(error)) from error
        return Encoded({name: t for tensors in scalars for name, t in tensors.items()}, lists)

    def _together(self, table: Mapping[str, Any]) -> Encoded:
        """Encode a table, processing columns of equal form together.

        Raises:
            ClientError, SchemaError, KeyError: a value or column does not fit, or columns differ.
        """
        scalars: dict[str, Array] = {}
        rows = set[int]()
        for column, names in self._groups:
            parts = _as_lists(column, [table[name] for name in names])
            if len(names) > 1 and (joint := _joined(parts)) is not None:
                tensors = _tensor(column, joint).reshape(len(names), -1, 1)
                scalars.update(zip(names, tensors, strict=True))
                rows.add(tensors.shape[1])
                continue
            for name, part in zip(names, parts, strict=True):
                scalars[name] = tensor = _tensor(column, part)
                rows.add(len(tensor))
        lists = {column.name: read(column, table[column.name]) for column in self._lists}
        rows.update(column.rows for column in lists.values())
        if len(rows) > 1:
            # All columns are then read one by one, for an error that names them.
            raise DtypeError("INVALID_INPUT", "Expected columns of equal numbers of rows.")
        return Encoded(scalars, lists)


def _rows(column: Column, offsets: Array, start: int, end: int) -> Column:
    """Some rows of a list column."""
    lengths, first, last = column.lengths, offsets[start], offsets[end]
    valid = None if column.valid is None else column.valid[first:last]
    return Column(column.array[first:last], valid, None if lengths is None else lengths[start:end])


def _tensor(column: WireColumn, values: Any) -> Array:
    """The tensor (N, 1) of a scalar column.

    Raises:
        ClientError, SchemaError: a value does not fit.
    """
    is_series = isinstance(values, pl.Series)
    if is_series and values.dtype.is_float() and DTYPES[column.dtype].kind == "float":
        numbers = cast(column, values.to_numpy(), None)  # null becomes NaN, as on the wire
        expect_no_nan(column, numbers)
        return numbers.reshape(-1, 1)
    is_list = type(values) in (list, tuple)
    if not is_list or (fit := fitting(column, values)) is None:
        (tensor,) = encode_request(column, read(column, values)).values()
        return tensor
    return np.array(fit, DTYPES[column.dtype].numpy).reshape(-1, 1)


def _as_lists(column: WireColumn, parts: list[Any]) -> list[Any]:
    """Arrays as lists, if they are small."""
    # A NaN in a list stands for a null string, but an array of numbers holds no strings.
    unlike = "mMSbiuf" if column.dtype == "string" else "mMS"
    if set(map(type, parts)) != {np.ndarray} or sum(part.size for part in parts) > _FEW:
        return parts
    if not all(_is_column(part) and part.dtype.kind not in unlike for part in parts):
        return parts
    return [part.reshape(-1).tolist() for part in parts]


def _joined(parts: Sequence[Any]) -> Any:
    """Columns of one kind and length, concatenated; None if they differ."""
    if len(parts) == 1:
        return parts[0]
    kinds = set(map(type, parts))
    if not kinds <= {list, tuple}:
        of_arrays = kinds == {np.ndarray} and all(map(_is_column, parts))
        of_series = kinds == {pl.Series} and _PLAIN.issuperset(part.dtype for part in parts)
        if not (of_arrays or of_series) or len(set(map(_DTYPE, parts))) > 1:
            return None
    if len(set(map(len, parts))) > 1:
        return None
    if kinds == {np.ndarray}:
        return np.concatenate([part.reshape(-1) for part in parts])
    return pl.concat(parts) if kinds == {pl.Series} else list(chain.from_iterable(parts))


def _is_column(array: Array) -> bool:
    return array.ndim > 0 and array.shape[1:] in ((), (1,))
