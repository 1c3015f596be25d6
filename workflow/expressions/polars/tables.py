"""Polars expressions of the verbs that read tables: `lookup` and `gather`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from workflow.expressions.language.types import ExpressionError, Type
from workflow.expressions.program.program import Step
from workflow.expressions.tables.cuckoo import CuckooTable, as_int64, cuckoo_table
from workflow.expressions.tables.lookup import direct_table
from workflow.schema.column import Array, Column, Strings

from .series import polars_dtype, to_series

# Attempts to find distinct hashes for all strings.
_SEEDS = 8


def lookup(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`lookup`: by address if the integers are dense, else by hash."""
    value, keys = operands[0], step.parameters["keys"]
    if keys.rows == 0:
        found = pl.lit(step.parameters["missing"], pl.Int64)
    elif isinstance(keys.values, Strings):
        found = _among_strings(value, step)
    else:
        found = _among_integers(value, types[0], step)
    return pl.when(value.is_not_null()).then(found)


def _among_strings(value: pl.Expr, step: Step) -> pl.Expr:
    """By the hash among the keys' hashes, and then by the bytes.

    Polars' `replace_strict` builds a hash table of all keys for each query, and large data takes
    many queries.
    """
    keys: Column = step.parameters["keys"]
    hashed = keys.derived("hashed", lambda: _hashed_strings(to_series(keys)))
    return _by_hash(value, lambda v: v.hash(hashed.seed).reinterpret(signed=True), hashed, step)


def _among_integers(value: pl.Expr, type_: Type, step: Step) -> pl.Expr:
    column: Column = step.parameters["keys"]
    keys: Any = column.values
    if keys.dtype == bool:
        keys, value = keys.astype(np.uint8), value.cast(pl.UInt8)
    first, missing = step.parameters["first"], step.parameters["missing"]
    direct = column.derived(
        ("by address", first, missing), lambda: _by_address(keys, first, missing)
    )
    if direct is not None:
        slots, low, high = direct
        value = value.clip(None, 2**63 - 1) if type_.dtype == "uint64" else value
        return pl.lit(slots).gather(value.cast(pl.Int64).clip(low, high) - low)
    # A value outside the keys' dtype becomes null, which matches nothing.
    value = value.cast(polars_dtype(keys.dtype.name), strict=False)
    value = value.reinterpret(signed=True) if keys.dtype == np.uint64 else value.cast(pl.Int64)
    hashed = column.derived("hashed", lambda: _hashed_integers(as_int64(keys)))
    return _by_hash(value, lambda v: v, hashed, step)


def _by_address(keys: Array, first: int, missing: int) -> tuple[pl.Series, int, int] | None:
    direct = direct_table(keys, first, missing)
    return None if direct is None else (pl.Series(direct[0]), *direct[1:])


@dataclass(frozen=True)
class _Hashed:
    """Keys and a hash table of them, which is built once for a table.

    Attributes:
        keys: compared with a value in the end.
        hashes: int64, the hash of each key.
        rows: the key's row in each slot of a cuckoo table.
        slots: computes the two slots of a hash.
        seed: seed of the hashes of strings.
    """

    keys: pl.Series
    hashes: pl.Series
    rows: pl.Series
    slots: Callable[[pl.Expr], list[pl.Expr]]
    seed: int = 0


def _hashed_strings(keys: pl.Series) -> _Hashed:
    # Two 64-bit hashes collide in one of a billion vocabularies of a hundred thousand strings.
    for seed in range(_SEEDS):
        hashes = keys.hash(seed)
        if hashes.n_unique() == len(keys):
            bits = hashes.reinterpret(signed=True)
            return _Hashed(keys, bits, *_slots(cuckoo_table(bits.to_numpy())), seed)
    twice = keys.filter(keys.is_duplicated()).head(1).to_list()
    raise ExpressionError(f"lookup needs keys that differ. Received: {twice} more than once.")


def _hashed_integers(keys: Array) -> _Hashed:
    series = pl.Series(keys)
    return _Hashed(series, series, *_slots(cuckoo_table(keys)))


def _slots(table: CuckooTable) -> tuple[pl.Series, Callable[[pl.Expr], list[pl.Expr]]]:
    multipliers, size, offset = table.multipliers, 1 << table.shift, table.offset
    return pl.Series(table.rows), lambda h: [h * m // size + offset for m in multipliers]


def _by_hash(
    value: pl.Expr, hash_of: Callable[[pl.Expr], pl.Expr], hashed: _Hashed, step: Step
) -> pl.Expr:
    """The position of a value among the keys, of which at most one matches its hash.

    In columns of a separate frame: in one expression Polars would compute hash and row for each
    use.
    """
    columns = {"hash": hash_of(pl.col("value")), "row": _row(pl.col("hash"), hashed)}
    hit = pl.lit(hashed.keys).gather(pl.col("row")) == pl.col("value")
    position = pl.col("row").cast(pl.Int64) + step.parameters["first"]
    found = pl.when(hit).then(position).otherwise(pl.lit(step.parameters["missing"], pl.Int64))

    def run(values: pl.Series) -> pl.Series:
        frame = values.alias("value").to_frame().lazy()
        for name, column in columns.items():
            frame = frame.with_columns(column.alias(name))
        return frame.select(found.alias(values.name)).collect(engine="in-memory").to_series()

    return value.map_batches(run, return_dtype=pl.Int64, is_elementwise=True)


def _row(hash_: pl.Expr, hashed: _Hashed) -> pl.Expr:
    """The only row of the table that can have a hash."""
    known, rows = pl.lit(hashed.hashes), pl.lit(hashed.rows)
    one, two = hashed.slots(hash_)
    row = rows.gather(one)
    return pl.when(known.gather(row) == hash_).then(row).otherwise(rows.gather(two))


def gather(step: Step, _: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`gather`."""
    table: Column = step.parameters["table"]
    position = pl.when((operands[0] >= 0) & (operands[0] < table.rows)).then(operands[0])
    gathered = pl.lit(table.derived("series", lambda: to_series(table))).gather(position)
    return gathered.fill_null([]) if table.is_list else gathered
