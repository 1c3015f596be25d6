"""Where values stand in a table of keys: the structure that suits the keys, built once.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .column import Array, Column, Strings
from .cuckoo import as_int64, cuckoo_table

Find = Callable[[Array], Array]


def find_positions(keys: Column, first: int, missing: int) -> Find:
    """A function from values to `first` + their position among the keys, or `missing`.

    Args:
        keys: distinct integers, booleans or strings.
        first: the result for the first key.
        missing: the result for a value that is no key.
    """
    if isinstance(keys.values, Strings):
        return _by_dictionary(keys.values, first, missing)
    direct = direct_table(keys.values, first, missing)
    return _by_hash(keys.values, first, missing) if direct is None else _by_address(*direct)


def direct_table(keys: Array, first: int, missing: int) -> tuple[Array, int, int] | None:
    """A table with one slot for each integer in the range of the keys, if that is not too large.

    Returns:
        the table, and the smallest and the largest integer that it has a slot for; its first
        and last slots hold `missing`, so clipping a value to the range finds an answer for all.
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
    def find(values: Array) -> Array:
        if values.dtype == np.uint64:
            values = np.minimum(values, np.uint64(max(high, 0)))
        slots = np.clip(values.astype(np.int64, copy=False), low, high)
        slots -= low
        return table[slots]

    return find


def _by_hash(keys: Array, first: int, missing: int) -> Find:
    if len(keys) == 0:
        return lambda values: np.full(values.shape, missing, np.int64)
    table = cuckoo_table(as_int64(keys), first)
    wide = keys.dtype == np.uint64

    def find(values: Array) -> Array:
        found = table.find(as_int64(values), missing)
        if wide == (values.dtype == np.uint64):
            return found
        # Only one side is uint64, so the same bits mean another number where the sign bit is set.
        return np.where(values <= 2**63 - 1 if not wide else values >= 0, found, missing)

    return find


def _by_dictionary(keys: Strings, first: int, missing: int) -> Find:
    positions: dict[Any, int] = {text: first + row for row, text in enumerate(keys.to_objects())}
    get = positions.get

    def find(values: Array) -> Array:
        return np.fromiter((get(value, missing) for value in values), np.int64, len(values))

    return find
