"""Common parts of elementwise verbs, in numpy.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...schema.column import Array, Column
from ...schema.dtypes import DTYPES

Function = Callable[..., Column]


def joint_valid(columns: Sequence[Column]) -> Array | None:
    """Mask of rows in which no column is null; None if nothing can be null."""
    masks = [c.valid for c in columns if c.valid is not None]
    valid = masks[0] if masks else None
    for mask in masks[1:]:
        valid = valid & mask
    return valid


def joint_lengths(columns: Sequence[Column]) -> Array | None:
    """The row lengths of the list columns, if there are any."""
    for column in columns:
        if column.lengths is not None:
            return column.lengths
    return None


def elementwise(function: Callable[..., Array], dtype: str | None) -> Function:
    """Apply a numpy function to values of one dtype; a null operand makes a null result."""
    wanted = None if dtype is None else DTYPES[dtype].numpy

    def apply(*columns: Column) -> Column:
        arrays = [
            c.array if wanted is None else c.array.astype(wanted, copy=False) for c in columns
        ]
        return Column(function(*arrays), joint_valid(columns), joint_lengths(columns))

    return apply
