"""Dtypes that hold every value of a column exactly."""

from __future__ import annotations

import numpy as np

from .dtypes import DTYPES, DType
from .schema import ColumnSchema
from .tags import facts_of


def inexact(column: ColumnSchema, wanted: DType) -> str | None:
    """The reason why values of a column would change in a dtype.

    Integers are checked against the range that the operators before them state, in the property
    `domain`. If none is stated, the values of each table decide: `transform` checks them
    (transform/narrowed_outputs.py), the client refuses values in a request that are passed through,
    and an export refuses outputs that are computed from them. Fractions may lose digits, but
    `transform` refuses a finite one that would become infinite.

    Args:
        column: the column.
        wanted: the dtype that it should have.

    Returns:
        The reason, to follow the column's name; None if every value is unchanged.

    Example:
        >>> ids = ColumnSchema("userId", "int64", properties={"domain": {"min": 0, "max": 302}})
        >>> inexact(ids, DTYPES["int8"])
        'has values from 0 to 302, which int8 does not hold exactly; int16 is the narrowest that does'
        >>> inexact(ids, DTYPES["float32"]) is None
        True
    """
    have = column.info
    if (have.kind == "string") != (wanted.kind == "string"):
        return f"is {have.name} and cannot become {wanted.name}"
    if have.kind == "float" and wanted.kind != "float":
        return (
            f"is {have.name}, and {wanted.name} holds no fractions; cast it in the workflow where "
            f"that is meant: LambdaOp(lambda c: c.cast({wanted.name!r}))"
        )
    stated = stated_range(column)
    if stated is None:
        if have.is_integer and wanted.kind == "bool":
            return (
                f"is {have.name}, of which bool holds two values; compare it in the workflow where "
                "that is meant: LambdaOp(lambda c: c != 0)"
            )
        return None
    if holds(wanted, *stated):
        return None
    reason = (
        f"has values from {stated[0]} to {stated[1]}, which {wanted.name} does not hold exactly"
    )
    # The signed ones come first in the table, the narrowest of them first.
    integers = (dtype for dtype in DTYPES.values() if dtype.is_integer)
    possible = next((dtype.name for dtype in integers if holds(dtype, *stated)), None)
    return f"{reason}; {possible} is the narrowest that does" if possible else reason


def stated_range(column: ColumnSchema) -> tuple[int, int] | None:
    """The smallest and the largest integer that a column can hold; None if unknown.

    Example:
        >>> stated_range(ColumnSchema("clicked", "bool"))
        (0, 1)
    """
    if column.dtype == "bool":
        return 0, 1
    domain = facts_of(column).get("domain") if column.info.is_integer else None
    return None if domain is None else (domain["min"], domain["max"])


def holds(dtype: DType, low: int, high: int) -> bool:
    """Whether a dtype represents each integer of a range exactly.

    Example:
        >>> holds(DTYPES["float32"], 0, 2**24), holds(DTYPES["float32"], 0, 2**24 + 1)
        (True, False)
    """
    if dtype.kind == "string":
        return False
    if dtype.kind == "bool":
        least, most = 0, 1
    elif dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        least, most = int(limits.min), int(limits.max)
    else:
        most = 2 ** (int(np.finfo(dtype.numpy).nmant) + 1)
        least = -most
    return least <= low and high <= most


def holds_all(dtype: DType, have: DType) -> bool:
    """Whether a dtype represents each integer of another dtype exactly.

    Example:
        >>> holds_all(DTYPES["float32"], DTYPES["int16"]), holds_all(DTYPES["float64"], DTYPES["int64"])
        (True, False)
    """
    limits = np.iinfo(have.numpy)
    return holds(dtype, int(limits.min), int(limits.max))
