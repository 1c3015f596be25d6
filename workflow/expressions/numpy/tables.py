"""Verbs over tables, in numpy: `lookup`, `gather` and `bucketize`.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ...schema.column import Array, Column, Strings
from ...schema.dtypes import DTYPES
from ..language.types import Type, promote, table_dtype
from ..program.program import Step
from ..tables.lookup import find_position, find_positions
from ..tables.text_table import TextTable
from .elementwise import Function, elementwise
from .lists import gather_lists


def lookup(step: Step, _: Sequence[Type]) -> Function:
    """`lookup`."""
    keys, first, missing = (step.parameters[name] for name in ("keys", "first", "missing"))
    find = elementwise(find_positions(keys, first, missing), None)

    def apply(values: Column) -> Column:
        if isinstance(values.values, Strings):  # a table, which folding looks up once
            rows = TextTable(keys.values).find_strings(values.values)
            return replace(values, values=np.where(rows < 0, missing, rows + first))
        return find(values)

    return apply if isinstance(keys.values, Strings) and keys.rows else find


def lookup_lanes(steps: Sequence[Step], functions: Sequence[Function]) -> Function:
    """Lookups of several columns, each in its own keys: of values stacked as the rows of an array.

    Args:
        steps: lookups among integers or booleans.
        functions: the function of each.
    """
    finds = [find_position(*(s.parameters[n] for n in ("keys", "first", "missing"))) for s in steps]

    def apply(stacked: Column) -> Column:
        values = stacked.array
        if values.shape[1] == 1:
            rows = [find(value) for find, value in zip(finds, values[:, 0].tolist(), strict=True)]
            found = np.array(rows, np.int64).reshape(values.shape)
        else:
            each = zip(functions, values, strict=True)
            found = np.stack([function(Column(lane)).array for function, lane in each])
        return Column(found, stacked.valid)

    return apply


def gather(step: Step, _: Sequence[Type]) -> Function:
    """`gather`."""
    table: Column = step.parameters["table"]
    if not table.is_list:
        return _gather_scalars(table)
    take, size = gather_lists(table), table.rows
    rows_of = _rows(size)
    return lambda positions: take(rows_of(positions))


def _rows(size: int) -> Callable[[Column], Array]:
    """A function from positions to rows of a table, `size` for positions outside it."""
    nowhere = np.array(size, np.uint64)

    def apply(positions: Column) -> Array:
        # As unsigned numbers, negative positions are beyond any table.
        bits = positions.array.astype(np.int64, copy=False).view(np.uint64)
        rows = np.minimum(bits, nowhere).view(np.int64)
        return rows if positions.valid is None else np.where(positions.valid, rows, size)

    return apply


def _gather_scalars(table: Column) -> Function:
    # One more row, for positions outside the table, avoids a branch and a special empty table.
    values, size = np.concatenate([table.array, np.zeros(1, table.array.dtype)]), table.rows
    if values.dtype == object:
        values[-1] = ""
    valid = None if table.valid is None else np.append(table.valid, False)
    rows_of = _rows(size)

    def apply(positions: Column) -> Column:
        rows = rows_of(positions)
        present = rows < size if valid is None else valid[rows]
        return Column(values[rows], None if present.all() else present, positions.lengths)

    return apply


def bucketize(step: Step, types: Sequence[Type]) -> Function:
    """`bucketize`."""
    boundaries: Column = step.parameters["boundaries"]
    dtype = promote("bucketize", [types[0], Type(table_dtype(boundaries).name)])
    edges = boundaries.array.astype(DTYPES[dtype].numpy)

    def count(values: Array) -> Array:
        reached = np.searchsorted(edges, values, side="right")
        return np.where(values == values, reached, 0)  # noqa: PLR0124 - NaN reaches none

    return elementwise(count, dtype)
