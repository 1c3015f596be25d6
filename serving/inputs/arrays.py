"""Columns from numpy arrays and Python lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import NoneType
from typing import Any

import numpy as np

from serving.inputs.cast import cast, conversion, refused
from serving.inputs.times import from_datetimes, from_values, time_of
from workflow.schema.column import Array, Column
from workflow.schema.dtypes import DTYPES
from workflow.schema.schema import NAIVE
from workflow.wire.format import WireColumn

ROW_TYPES = (list, tuple, np.ndarray)
_NUMBERS, _TEXTS = frozenset({bool, int, float}), frozenset({str, bytes})
# Values of these types are never null or NaN.
_NEVER_NULL = frozenset({bool, int, str, bytes})


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
        values, _ = _flat(column, values.tolist())
    elif values.dtype.kind not in "biuf":
        time = NAIVE if values.dtype.kind == "M" else ""
        raise refused(column, values.dtype, conversion(column, time))
    elif values.dtype.kind == "f" and DTYPES[column.dtype].is_integer:
        nan = np.isnan(values)
        valid = _both(valid, ~nan if nan.any() else None)
    return Column(cast(column, values, valid), valid, lengths)


def _both(left: Array | None, right: Array | None) -> Array | None:
    """Mask of the values that are present in both masks; None if all are."""
    if left is None or right is None:
        return left if right is None else right
    return left & right


def from_list(column: WireColumn, data: Sequence[Any]) -> Column:
    """A column from Python values: numbers, strings or None, and for a list column rows of them.

    NaN among integers, strings or times is null, as in pandas and numpy.

    Raises:
        DtypeError: rows where scalars are expected or vice versa, or values that the column cannot
            hold.
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
    """The elements of an array as Python objects, except numpy's times, some of which would be integers."""
    return items if items.dtype.kind in "mM" else items.tolist()


def _flat(column: WireColumn, data: Sequence[Any]) -> tuple[Array, Array | None]:
    """Values of one dtype, zero or "" for null, and a mask of values that are not null."""
    if column.time:
        return from_values(column, data)
    filled, valid = _filled(column, data)
    kinds = set(map(type, filled))
    if column.dtype == "string":
        return _strings(column, filled, kinds), valid
    if not kinds <= _NUMBERS:
        _refuse_kind(column, filled, _NUMBERS)
    if float not in kinds:
        return _integers(column, filled), valid
    return _floats(column, filled, kinds), valid


def _filled(column: WireColumn, data: Sequence[Any]) -> tuple[Sequence[Any], Array | None]:
    """Python values, zero or "" for null, and a mask of values that are not null."""
    kinds = set(map(type, data))
    if kinds <= _NEVER_NULL or (DTYPES[column.dtype].kind == "float" and kinds <= _NUMBERS):
        return data, None
    zero = "" if column.dtype == "string" else 0
    if kinds <= {int, str, NoneType}:
        present = [value is not None for value in data]
    else:
        data = [value.item() if _is_plain(value) else value for value in data]
        present = [value is not None and not _is_nan(value) for value in data]
        if all(present):
            return data, None
    filled = [value if here else zero for value, here in zip(data, present, strict=True)]
    return filled, np.array(present, bool)


def _is_plain(value: Any) -> bool:
    """Whether `value.item()` is the same value of Python: of some numpy times it is an integer."""
    return isinstance(value, np.generic) and value.dtype.kind not in "mM"


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value  # noqa: PLR0124


def _strings(column: WireColumn, values: Sequence[Any], kinds: set[type]) -> Array:
    if not kinds <= _TEXTS:
        _refuse_kind(column, values, _TEXTS)
    texts = np.empty(len(values), object)
    if bytes not in kinds:
        texts[:] = values
        return texts
    try:
        texts[:] = [value.decode() if isinstance(value, bytes) else value for value in values]
    except UnicodeDecodeError as error:
        raise refused(column, f"the bytes {error.object[:40]!r}, which are not UTF-8") from None
    return texts


def _integers(column: WireColumn, values: Sequence[Any]) -> Array:
    least, most = min(values, default=0), max(values, default=0)
    for value in (least, most):
        if not -(2**63) <= value < 2**64:
            raise refused(column, f"the value {value}, out of range")
    unsigned = most >= 2**63
    if unsigned and least < 0:
        raise refused(column, f"the values {least} and {most}, out of range")
    return cast(column, np.array(values, np.uint64 if unsigned else np.int64), None)


def _floats(column: WireColumn, values: Sequence[Any], kinds: set[type]) -> Array:
    if DTYPES[column.dtype].kind == "float":
        if len(kinds) > 1:
            _integers(column, [value for value in values if not isinstance(value, float)])
        return cast(column, np.array(values, np.float64), None)
    reals = np.array([value for value in values if isinstance(value, float)])
    cast(column, reals, None)  # Refuses fractions.
    return _integers(column, [int(value) for value in values])


def _refuse_kind(column: WireColumn, values: Sequence[Any], allowed: frozenset[type]) -> None:
    row, value = next(
        (row, value) for row, value in enumerate(values) if type(value) not in allowed
    )
    place = "element" if column.is_list else "row"
    text = repr(value)
    text = text if len(text) <= 80 else text[:80] + " ..."
    received = f"{text} ({type(value).__name__}) in {place} {row}"
    raise refused(column, received, conversion(column, time_of(value)))
