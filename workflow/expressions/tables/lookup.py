"""Positions of values in a table of keys, by the fastest structure for the keys, built once.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...schema.column import Array, Column, Strings
from .cuckoo import CuckooTable, as_int64, cuckoo_table
from .text_table import TextTable

Find = Callable[[Array], Array]

# Up to here a dictionary finds strings faster. For ten million it takes 1.6 GB and five times as
# long to build as a table of their bytes, which finds a batch of a thousand in half the time.
MANY_STRINGS = 100_000
# The values that are looked up at once, so that temporary arrays fit into the processor's caches.
_TILE = 2**14


def find_positions(keys: Column, first: int, missing: int, dtype: str = "int64") -> Find:
    """A function from values to `first` + their position among the keys, or `missing`.

    Args:
        keys: distinct integers, booleans or strings.
        first: the result for the first key.
        missing: the result for a value that is not a key.
        dtype: an integer dtype that holds the results.
    """
    return in_tiles(_find(keys, first, missing), dtype)


def find_position(keys: Column, first: int, missing: int) -> Callable[[int], int]:
    """The function of `find_positions` for a single integer or boolean, as an object of Python.

    It takes a microsecond, where numpy's calls for an array of one element take several. Both
    functions use one table.

    Args:
        keys: distinct integers or booleans.
        first: the result for the first key.
        missing: the result for a value that is not a key.
    """
    direct = _direct(keys, first, missing)
    if direct is not None:
        slots, low, high = direct
        return lambda value: slots.item(min(max(value, low), high) - low)
    if keys.rows == 0:
        return lambda _: missing
    find_one, is_wide = _hashed(keys).find_one, keys.array.dtype == np.uint64

    def find(value: int) -> int:
        # The table has the bits of uint64 as signed numbers.
        bits = value - (value >> 63 << 64) if is_wide and value >= 0 else value
        row = -1 if is_wide and value < 0 else find_one(bits)
        return missing if row < 0 else first + row

    return find


def _direct(keys: Column, first: int, missing: int) -> tuple[Array, int, int] | None:
    return keys.derived(
        ("direct", first, missing), lambda: direct_table(keys.array, first, missing)
    )


def _hashed(keys: Column) -> CuckooTable:
    return keys.derived("hashed numbers", lambda: cuckoo_table(as_int64(keys.array)))


def _find(keys: Column, first: int, missing: int) -> Find:
    if isinstance(keys.values, Strings):
        many = len(keys.values) > MANY_STRINGS
        return (_by_bytes if many else _by_dictionary)(keys.values, first, missing)
    direct = _direct(keys, first, missing)
    return _by_hash(keys, first, missing) if direct is None else _by_address(*direct)


def in_tiles(find: Find, dtype: str = "int64") -> Find:
    """The same function for many values: it is called with a few thousand of them at a time."""

    def find_all(values: Array) -> Array:
        if values.size <= _TILE:
            return find(values).astype(dtype, copy=False)
        flat, made = values.reshape(-1), np.empty(values.size, dtype)
        for start in range(0, values.size, _TILE):
            made[start : start + _TILE] = find(flat[start : start + _TILE])
        return made.reshape(values.shape)

    return find_all


def direct_table(keys: Array, first: int, missing: int) -> tuple[Array, int, int] | None:
    """A table with a slot for each integer in the range of the keys, if that is not too large.

    Returns:
        The table, and the smallest and the largest integer with a slot; its first and last slots
        hold `missing`, so that clipping a value to the range gives the right result for all.
    """
    if keys.dtype.kind not in "iu" or len(keys) == 0:
        return None
    low, high = int(keys.min()) - 1, int(keys.max()) + 1
    if high - low > max(8 * len(keys), 100_000) or low < -(2**63) or high >= 2**63:
        return None
    table = np.full(high - low + 1, missing, np.int64)
    table[keys.astype(np.int64) - low] = np.arange(first, first + len(keys))
    return table, low, high


def _by_address(table: Array, low: int, high: int) -> Find:
    # For few values numpy takes longer to find the type of a Python number, above all in np.clip,
    # than to compute.
    first, last = np.array(low), np.array(high)

    def find(values: Array) -> Array:
        if values.dtype == np.uint64:
            values = np.minimum(values, np.uint64(max(high, 0)))
        slots = np.minimum(np.maximum(values.astype(np.int64, copy=False), first), last)
        found: Array = table[slots - first]
        return found

    return find


def _by_hash(keys: Column, first: int, missing: int) -> Find:
    if keys.rows == 0:
        return lambda values: np.full(values.shape, missing, np.int64)
    table, wide = _hashed(keys), keys.array.dtype == np.uint64

    def find(values: Array) -> Array:
        bits = as_int64(values)
        if bits.size == 1:
            row = table.find_one(bits.item())
            found = np.full(values.shape, missing if row < 0 else first + row, np.int64)
        else:
            found = table.find(bits.reshape(-1), first, missing).reshape(values.shape)
        if wide == (values.dtype == np.uint64):
            return found
        # Only one side is uint64, so equal bits are different numbers if the sign bit is set.
        return np.where(values <= 2**63 - 1 if not wide else values >= 0, found, missing)

    return find


def _by_dictionary(keys: Strings, first: int, missing: int) -> Find:
    get = {text: first + row for row, text in enumerate(keys.to_objects())}.get

    def find(values: Array) -> Array:
        found = [get(value, missing) for value in values.reshape(-1).tolist()]
        return np.array(found, np.int64).reshape(values.shape)

    return find


def _by_bytes(keys: Strings, first: int, missing: int) -> Find:
    table = TextTable(keys)

    def find(values: Array) -> Array:
        rows = table.find(values.reshape(-1)).reshape(values.shape)
        return np.where(rows < 0, missing, rows + first)

    return find
