"""Polars expressions of the verbs that read tables: `lookup` and `gather`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from workflow.expressions.language.types import ExpressionError, Type
from workflow.expressions.numpy.lists import ranges
from workflow.expressions.program.program import Step
from workflow.expressions.tables.cuckoo import CuckooTable, cuckoo_table
from workflow.expressions.tables.lookup import find_positions, in_tiles
from workflow.schema.column import Array, Column, Strings

from .series import in_numpy, polars_dtype, to_lists, to_series

# Attempts to find distinct hashes for all strings.
_SEEDS = 8


def lookup(step: Step, _: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`lookup`: numbers in numpy, a few thousand at once, and strings by their hashes.

    Polars computes each operation for all rows before the next, in memory rather than in the
    processor's caches. Its `replace_strict` builds a hash table of all keys for each query, and
    large data takes many queries.
    """
    keys: Column = step.parameters["keys"]
    dtype = polars_dtype(step.type.dtype)
    if keys.rows == 0:
        missing = pl.lit(step.parameters["missing"], dtype)
        return pl.when(operands[0].is_not_null()).then(missing)
    if isinstance(keys.values, Strings):
        # Made here: in a thread of Polars it would wait for other threads of Polars.
        hashed = keys.derived("hashed", lambda: _hashed_strings(to_series(keys)))
        find = partial(_among_strings, hashed, step)
    else:
        find = partial(in_numpy, partial(_among_numbers, step))
    return operands[0].map_batches(find, return_dtype=dtype, is_elementwise=True)


def _among_numbers(step: Step, values: Array) -> Array:
    """Positions of numbers among the keys.

    The first thread that needs the keys' table makes it; other threads can make the tables of other
    columns meanwhile.
    """
    keys: Column = step.parameters["keys"]
    first, missing = step.parameters["first"], step.parameters["missing"]
    dtype = step.type.dtype
    find = keys.derived(
        ("positions", first, missing, dtype), lambda: find_positions(keys, first, missing, dtype)
    )
    return find(values)


@dataclass(frozen=True)
class _Hashed:
    """Strings and a hash table of them, which is built once for a table.

    Attributes:
        keys: compared with a value in the end.
        table: finds the row of a hash.
        seed: seed of the hashes.
    """

    keys: pl.Series
    table: CuckooTable
    seed: int


def _hashed_strings(keys: pl.Series) -> _Hashed:
    # Two 64-bit hashes collide in one of a billion vocabularies of a hundred thousand strings.
    for seed in range(_SEEDS):
        hashes = keys.hash(seed)
        if hashes.n_unique() == len(keys):
            return _Hashed(keys, cuckoo_table(hashes.reinterpret(signed=True).to_numpy()), seed)
    twice = keys.filter(keys.is_duplicated()).head(1).to_list()
    raise ExpressionError(f"lookup needs keys that differ. Received: {twice} more than once.")


def _among_strings(hashed: _Hashed, step: Step, values: pl.Series) -> pl.Series:
    """Compare with the only key that can have the value's hash, and then the bytes."""
    # With few operations, since Polars calls this for each file, and each takes 40 us of a short one.
    bits = values.hash(hashed.seed).to_numpy().view(np.int64)
    rows = in_tiles(hashed.table.find)(bits)
    equal = hashed.keys.gather(pl.Series(np.maximum(rows, 0))) == values  # null of null
    first, missing = step.parameters["first"], step.parameters["missing"]
    positions = pl.Series(values.name, rows + first).zip_with(equal, pl.Series([missing]))
    if values.null_count():
        positions = positions.set(values.is_null(), None)
    results: pl.Series = positions.cast(polars_dtype(step.type.dtype))
    return results


def gather(step: Step, _: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`gather`; a missing row of lists is empty."""
    table: Column = step.parameters["table"]
    if table.is_list:
        lists = table.derived("lists", lambda: _Lists.of(table))
        dtype = polars_dtype(step.type.dtype, is_list=True)
        return operands[0].map_batches(lists.take, return_dtype=dtype, is_elementwise=True)
    rows = table.derived("series", lambda: to_series(table))
    if rows.null_count() == len(rows):
        return only_null(operands[0], rows.dtype)
    position = pl.when((operands[0] >= 0) & (operands[0] < table.rows)).then(operands[0])
    return pl.lit(rows).gather(position)


def only_null(row: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """A null for each row of an expression.

    Polars 1.44 takes literal columns of nulls for one, whatever their dtypes, as a common subexpression.
    """
    return pl.when(row.is_not_null()).then(pl.lit(None, dtype))


@dataclass(frozen=True)
class _Lists:
    """The rows of a table of lists. Polars gathers lists one by one, in four times the time.

    Attributes:
        elements: the elements of all rows in sequence.
        starts: int64, where each row starts, and one more, empty row.
        lengths: int64, likewise.
    """

    elements: pl.Series
    starts: Array
    lengths: Array

    @classmethod
    def of(cls, table: Column) -> _Lists:
        offsets = table.offsets()
        elements = to_series(Column(table.values, table.valid))
        return cls(elements, offsets, np.append(np.diff(offsets), 0))

    def take(self, positions: pl.Series) -> pl.Series:
        # As unsigned numbers, negative positions are beyond any table.
        places = positions.cast(pl.Int64, strict=False).fill_null(-1)
        bits = places.to_numpy().view(np.uint64)
        rows = np.minimum(bits, np.uint64(len(self.lengths) - 1)).view(np.int64)
        lengths = self.lengths.take(rows)
        elements = self.elements.gather(pl.Series(ranges(self.starts.take(rows), lengths)))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return to_lists(elements, offsets).alias(positions.name)
