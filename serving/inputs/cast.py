"""The rule for dtypes: a value is sent exactly, or rounded to the column's float, or refused."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from serving.errors import DtypeError
from workflow.errors import AS_INTEGERS
from workflow.schema.column import Array
from workflow.schema.dtypes import DTYPES
from workflow.schema.times import remedy
from workflow.wire.format import WireColumn, null_code

# Above this float64 cannot represent all integers.
EXACT_FLOAT64 = 2**53


def refused(column: WireColumn, received: Any, advice: str = "") -> DtypeError:
    """The error for a column whose data cannot be sent; the caller raises it."""
    lists = "lists of " if column.is_list else ""
    message = f"Column {column.name!r}: expected {lists}{column.element}. Received: {received}."
    return DtypeError("INVALID_INPUT", f"{message} {advice}".strip())


def cast(column: WireColumn, values: Array, valid: Array | None) -> Array:
    """Convert values to the column's dtype without loss.

    Args:
        column: the expected column.
        values: shape (N,), numbers, or `str` in an object array.
        valid: False where the value is null, and so ignored; None if no value is null.

    Returns:
        Shape (N,), the column's numpy dtype.

    Raises:
        DtypeError: the dtype is of another kind, such as numbers for times, or a value does not
            fit.

    Example:
        >>> cast(WireColumn("userId", "int32"), np.array([1, 2]), None).dtype
        dtype('int32')
    """
    target = np.dtype(object if column.dtype == "string" else column.dtype)
    if column.time:
        kind = "string" if values.dtype.kind == "O" else "int64"
        raise refused(
            column,
            "strings" if kind == "string" else values.dtype,
            remedy(column.time, "", kind),
        )
    if values.dtype == target:
        return values
    real = values if valid is None else values[valid]
    kinds = values.dtype.kind + target.kind
    if kinds[0] not in "biuf" or kinds[1] == "O":
        raise refused(column, "strings" if kinds[0] == "O" else values.dtype, conversion(column))
    if kinds[1] in "biu":
        _check_whole(column, real, target)
    elif kinds[0] in "iu":
        _check_exact_integers(column, real, target)
    with np.errstate(invalid="ignore", over="ignore"):
        result = values.astype(target)
    if kinds == "ff":
        _check_finite(column, values, result, valid)
    return result


@cache
def whole_range(dtype: str, *, nullable: bool = False) -> tuple[int, int]:
    """The smallest and the largest integer of a dtype, without the null code if it has one."""
    limits = np.iinfo(DTYPES[dtype].numpy)
    code = null_code(dtype) if nullable else None
    return limits.min + (code == limits.min), limits.max - (code == limits.max)


def conversion(column: WireColumn, time: str = "") -> str:
    """Advice to convert values of another type than the column's, for the message.

    Args:
        column: the expected column, not of times.
        time: the kind of times that the values are, "" if they are not times.
    """
    advice = remedy("", time, column.dtype)
    return advice or f"Convert the column to {column.dtype} before sending it."


def _check_whole(column: WireColumn, real: Array, target: np.dtype[Any]) -> None:
    """Refuse floats with fractions as integers; whole ones occur in pandas beside a NaN."""
    if real.dtype.kind == "b" or not real.size:
        return
    if real.dtype.kind == "f":
        for value in real[~((np.abs(real) <= EXACT_FLOAT64) & (real == np.floor(real)))][:1]:
            is_rounded = EXACT_FLOAT64 < abs(value) < np.inf
            advice = AS_INTEGERS if is_rounded else conversion(column)
            raise refused(column, f"{real.dtype} with the value {value}", advice)
    low, high = (0, 1) if target.kind == "b" else whole_range(column.dtype)
    for value in (int(real.min()), int(real.max())):
        if not low <= value <= high:
            raise refused(column, f"{real.dtype} with the value {value}, out of range")


def _check_exact_integers(column: WireColumn, real: Array, target: np.dtype[Any]) -> None:
    with np.errstate(over="ignore"):
        rounded = real.astype(target).astype(np.float64)
    inexact = real[rounded != real.astype(np.float64)]
    for value in inexact[:1]:
        raise refused(column, f"{real.dtype} with the value {value}, which has no exact {target}")
    # Beyond 2**53 float64 itself rounds, so those few are compared as Python integers.
    for value in real[(real > EXACT_FLOAT64) | (real < -EXACT_FLOAT64)].tolist():
        if int(target.type(value)) != value:
            raise refused(
                column, f"{real.dtype} with the value {value}, which has no exact {target}"
            )


def _check_finite(column: WireColumn, values: Array, result: Array, valid: Array | None) -> None:
    """Refuse numbers that become infinite; training rounds as well, so rounding is allowed."""
    lost = np.isinf(result)
    if not lost.any():
        return
    lost &= np.isfinite(values)
    for value in values[lost if valid is None else lost & valid][:1]:
        raise refused(column, f"{values.dtype} with the value {value}, out of range")
