"""Columns from numpy arrays and Python lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from serving.inputs.cast import cast, refused
from serving.inputs.times import from_datetimes, from_values
from workflow.schema.column import Array, Column
from workflow.schema.dtypes import DTYPES
from workflow.wire.format import WireColumn

ROW_TYPES = (list, tuple, np.ndarray)


def from_array(column: WireColumn, data: Array) -> Column:
    """A column from an array: (N,) or (N, 1) for scalars, (N, k) for lists of length k.

    Object arrays are read as lists of Python values. A masked value is null, and so is a NaN among
    integers.

    Raises:
        DtypeError: another shape, or values that the column cannot hold.
    """
    if data.dtype == object and data.ndim:
        rows = data.reshape(-1) if column.layout == "scalar" and data.shape[1:] == (1,) else data
        return from_list(column, rows.tolist())
    is_list = column.is_list
    if data.ndim != 2 if is_list else data.shape[1:] not in ((), (1,)) or not data.ndim:
        shape = "(N, k)" if is_list else "(N,) or (N, 1)"
        raise refused(column, f"an array of the shape {data.shape}", f"The shape must be {shape}.")
    valid = None
    if isinstance(data, np.ma.MaskedArray):
        valid = ~np.broadcast_to(data.mask, data.shape).reshape(-1)
    values = np.asarray(data).reshape(-1)
    lengths = np.full(len(data), data.shape[1], np.int64) if is_list else None
    if column.time and values.dtype.kind == "M":
        values, present = from_datetimes(column, values)
        return Column(values, _both(valid, present), lengths)
    if values.dtype.kind in "SU":
        values = from_list(WireColumn(column.name, column.dtype), values.tolist()).array
    elif values.dtype.kind not in "biuf":
        raise refused(column, values.dtype, "Convert the column first.")
    elif values.dtype.kind == "f" and DTYPES[column.dtype].is_integer:
        nan = np.isnan(values)
        valid = _both(valid, ~nan if nan.any() else None)
    return Column(cast(column, values, valid), valid, lengths)


def _both(one: Array | None, other: Array | None) -> Array | None:
    """Mask of the values present by both of two masks; None where all are."""
    if one is None or other is None:
        return one if other is None else other
    return one & other


def from_list(column: WireColumn, data: Sequence[Any]) -> Column:
    """A column from Python values: numbers, strings or None, and for a list column rows of them.

    A NaN among integers, strings or times is null: that is how pandas and numpy write it.

    Raises:
        DtypeError: rows where scalars are expected or the other way round, or values that the
            column cannot hold.
    """
    if column.layout == "scalar":
        values, valid = _flat(column, data)
        return Column(values, valid)
    elements: list[Any] = []
    lengths = np.zeros(len(data), np.int64)
    for row, items in enumerate(data):
        if items is None:
            continue
        if not isinstance(items, ROW_TYPES):
            raise refused(column, f"{items!r} in row {row}", "Send a list for each row, or None.")
        lengths[row] = len(items)
        elements.extend(_python(items) if isinstance(items, np.ndarray) else items)
    values, valid = _flat(column, elements)
    return Column(values, valid, lengths)


def _python(items: Array) -> Iterable[Any]:
    """The elements of an array as Python's own; times stay numpy's, which would make integers of some."""
    return items if items.dtype.kind in "mM" else items.tolist()


def _flat(column: WireColumn, data: Sequence[Any]) -> tuple[Array, Array | None]:
    """Values of one dtype, zero or "" where null, and where they are not null."""
    if column.time:
        return from_values(column, data)
    is_float = DTYPES[column.dtype].kind == "float"
    values = [value.item() if _is_plain(value) else value for value in data]
    present = [value is not None and (is_float or not _is_nan(value)) for value in values]
    valid = None if all(present) else np.array(present, bool)
    zero = "" if column.dtype == "string" else 0
    filled = [value if here else zero for value, here in zip(values, present, strict=True)]
    kinds = {type(value) for value in filled}
    if column.dtype == "string":
        return _strings(column, filled, kinds), valid
    if not kinds <= {bool, int, float}:
        _refuse_kind(column, filled, (bool, int, float))
    if float not in kinds:
        return _integers(column, filled), valid
    return _floats(column, filled), valid


def _is_plain(value: Any) -> bool:
    """Whether a value is numpy's, and no time, of which `item` would make an integer."""
    return isinstance(value, np.generic) and value.dtype.kind not in "mM"


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value  # noqa: PLR0124


def _strings(column: WireColumn, values: list[Any], kinds: set[type]) -> Array:
    if not kinds <= {str, bytes}:
        _refuse_kind(column, values, (str, bytes))
    texts = np.empty(len(values), object)
    try:
        texts[:] = [value.decode() if isinstance(value, bytes) else value for value in values]
    except UnicodeDecodeError as error:
        raise refused(column, f"the bytes {error.object[:40]!r}, which are not UTF-8") from None
    return texts


def _integers(column: WireColumn, values: list[Any]) -> Array:
    for value in (min(values, default=0), max(values, default=0)):
        if not -(2**63) <= value < 2**64:
            raise refused(column, f"the value {value}, out of range")
    unsigned = max(values, default=0) >= 2**63
    if unsigned and min(values) < 0:
        raise refused(column, f"the values {min(values)} and {max(values)}, out of range")
    return cast(column, np.array(values, np.uint64 if unsigned else np.int64), None)


def _floats(column: WireColumn, values: list[Any]) -> Array:
    reals = np.array([value for value in values if isinstance(value, float)])
    if DTYPES[column.dtype].kind == "float":
        _integers(column, [value for value in values if not isinstance(value, float)])
        return cast(column, np.array(values, np.float64), None)
    cast(column, reals, None)  # Refuses those that are not whole.
    return _integers(column, [int(value) for value in values])


def _refuse_kind(column: WireColumn, values: list[Any], allowed: tuple[type, ...]) -> None:
    row, value = next(
        (row, value) for row, value in enumerate(values) if type(value) not in allowed
    )
    place = "element" if column.is_list else "row"
    text = repr(value)
    text = text if len(text) <= 80 else text[:80] + " ..."
    raise refused(column, f"{text} ({type(value).__name__}) in {place} {row}")
