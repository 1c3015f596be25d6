"""Verbs over whole lists, in numpy.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...schema.column import Array, Column
from ...schema.dtypes import DTYPES
from ..language.types import Type
from ..program.program import Step
from .elementwise import Function


def list_length(*_: Any) -> Function:
    """`list_length`."""
    return lambda a: Column(a.lengths)


def gather_lists(table: Column) -> Callable[[Array], Column]:
    """Take rows from a table of lists; a row outside the table is an empty list."""
    offsets, values = table.offsets(), table.array
    advise_few_rows(values)
    lengths_of = np.append(np.diff(offsets), 0)

    def take(rows: Array) -> Column:
        lengths = lengths_of[rows]
        elements = ranges(offsets[rows], lengths)
        valid = None if table.valid is None else table.valid[elements]
        return Column(values[elements], valid, lengths)

    return take


def advise_few_rows(values: Array) -> None:
    """Tell the system that rows here and there are read, if the values are a view of a mapped file.

    Otherwise it reads up to a megabyte for each row that is not in memory, in place of others that are.
    """
    if (mapped := _map_of(values)) is None or not values.size:
        return
    start = values.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
    before = start % mmap.PAGESIZE
    mapped.madvise(mmap.MADV_RANDOM, start - before, values.nbytes + before)


def _map_of(values: Any) -> mmap.mmap | None:
    """The map of a file that an array is a view of."""
    while not isinstance(values, mmap.mmap | None):
        values = values.obj if isinstance(values, memoryview) else getattr(values, "base", None)
    return values


def ranges(starts: Array, lengths: Array) -> Array:
    """The numbers in many ranges, one range after another.

    Args:
        starts: int64, shape (N,), the first number of each range.
        lengths: int64, shape (N,), the count of numbers in each.

    Returns:
        int64, shape (sum of lengths,).

    Example:
        >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
        [5, 6, 0, 1, 2]
    """
    ends = lengths.cumsum()
    shifts: Array = (starts - ends + lengths).repeat(lengths)
    shifts += np.arange(len(shifts))
    return shifts


def list_slice(step: Step, _: Sequence[Type]) -> Function:
    """`list_slice`."""
    start, end = step.parameters["start"], step.parameters["end"]

    def apply(a: Column) -> Column:
        offsets = a.offsets()
        begins, lengths = slice_bounds(start, end, np.diff(offsets))
        elements = ranges(offsets[:-1] + begins, lengths)
        return Column(a.array[elements], None if a.valid is None else a.valid[elements], lengths)

    return apply


def slice_bounds(start: int, end: int | None, size: Array) -> tuple[Array, Array]:
    """Starts and lengths of the slices of lists with some lengths.

    Example:
        >>> begins, lengths = slice_bounds(-2, None, np.array([5, 1]))
        >>> begins.tolist(), lengths.tolist()
        ([3, 0], [2, 1])
    """
    begins = _place(start, size)
    ends = size if end is None else _place(end, size)
    return begins, np.maximum(ends - begins, 0)


def _place(bound: int, size: Array) -> Array:
    """Position of a slice's bound in lists of these lengths."""
    return np.clip(bound + size if bound < 0 else bound, 0, size)


def repeat_as(*_: Any) -> Function:
    """`repeat_as`."""

    def apply(a: Column, lists: Column) -> Column:
        lengths: Any = lists.lengths
        valid = None if a.valid is None else a.valid.repeat(lengths)
        return Column(a.array.repeat(lengths), valid, lengths)

    return apply


def list_pad(step: Step, _: Sequence[Type]) -> Function:
    """`list_pad`."""
    dtype, length = DTYPES[step.type.dtype].numpy, step.parameters["length"]

    def apply(a: Column, padding: Column) -> Column:
        offsets, within = a.offsets(), np.arange(length)
        # One more element, for positions beyond the end of a list.
        values = np.append(a.array.astype(dtype, copy=False), padding.array.astype(dtype))
        inside = within < np.diff(offsets)[:, None]
        elements = np.where(inside, offsets[:-1, None] + within, len(values) - 1).reshape(-1)
        valid = None if a.valid is None else np.append(a.valid, True)[elements]
        return Column(values[elements], valid, np.full(a.rows, length))

    return apply
