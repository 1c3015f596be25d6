"""A hash table that finds any integer in two probes: cuckoo hashing over plain arrays.

Each key is in one of two slots, so a lookup is arithmetic, gathers and a comparison, without a
loop: numpy does it for thousands of values at once, five times faster than a join and eight times
faster than a binary search among two million keys. The second slot is read for the few values alone
that are not in their first.

Source: Pagh and Rodler, "Cuckoo Hashing", 2001; the hash is Knuth's multiplicative one.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...schema.column import Array

# Odd numbers without a pattern: fractions of the golden ratio and of square roots of primes.
_MULTIPLIERS = (
    0x9E3779B97F4A7C15,
    0x6A09E667F3BCC909,
    0xBB67AE8584CAA73B,
    0x3C6EF372FE94F82B,
    0xA54FF53A5F1D36F1,
    0x510E527FADE682D1,
    0x9B05688C2B3E6C1F,
    0x1F83D9ABFB41BD6B,
    0x5BE0CD19137E2179,
)
_MOST_ROUNDS = 500
# The number of keys placed at once, so that temporary arrays fit into the processor's caches.
_BLOCK = 2**16
# Up to this many keys, slots are kilobytes.
_FEW = 2**16
_SIGN, _BITS = 1 << 63, (1 << 64) - 1


@dataclass(frozen=True)
class CuckooTable:
    """Keys, and the key in each slot.

    A slot holds the key's row in four bytes rather than the key in eight: that costs another
    access, but the table is a third as large, so that more of it fits into the processor's caches.

    Attributes:
        keys: int64, shape (K,), in the given order.
        rows: uint32, the row of the key in each slot; an unused slot holds row 0.
        multipliers: multipliers of the two hashes.
        shift: the arithmetic right shift of a product.
        offset: added to the shifted product to get the slot's index.
    """

    keys: Array
    rows: Array
    multipliers: tuple[int, int]
    shift: int
    offset: int

    def find(self, values: Array, first: int = 0, missing: int = -1) -> Array:
        """`first` + the row of each int64 among the keys, int64, or `missing`.

        Args:
            values: int64, shape (N,).
            first: the result for the first key.
            missing: the result for a value that is not a key.
        """
        one, two = self.multipliers
        # By `take`: numpy's indexing is three times slower with rows that are not int64.
        rows = self.rows.take(_slots(values, one, self.shift))
        found = np.add(rows, first, dtype=np.int64)
        # Most values are frequent keys, which are in their first slots.
        others = np.flatnonzero(self.keys.take(rows) != values)
        if len(others):
            rest = values.take(others)
            rows = self.rows.take(_slots(rest, two, self.shift))
            positions = np.add(rows, first, dtype=np.int64)
            found[others] = np.where(self.keys.take(rows) == rest, positions, missing)
        return found

    def find_one(self, value: int) -> int:
        """The row of one int64 among the keys, or -1: ten times faster than numpy on one element."""
        for multiplier in self.multipliers:
            slot = ((value * multiplier ^ _SIGN) & _BITS) >> self.shift
            row = self.rows.item(slot)
            if self.keys.item(row) == value:
                return int(row)
        return -1


def _slots(values: Array, multiplier: int, shift: int) -> Array:
    # The product wraps around; its highest bits, as a signed number, give the slot.
    slots = values * np.int64(multiplier)
    slots >>= shift
    slots += 1 << (63 - shift)
    return slots


def cuckoo_table(keys: Array) -> CuckooTable:
    """A table of distinct keys.

    Args:
        keys: int64, shape (K,), K at least 1, the frequent ones first: they are found the fastest.

    Raises:
        ValueError: no hash works for the keys; only for keys constructed to this end.
    """
    # With a quarter of the slots in use, few keys find their first one taken.
    bits = max(8, int(len(keys) - 1).bit_length() + (1 if len(keys) > _FEW else 2))
    signed = [int(np.uint64(m).view(np.int64)) for m in _MULTIPLIERS]
    for attempt, pair in enumerate(zip(signed, signed[1:])):  # noqa: B905, RUF007 - Python 3.10
        shift = 64 - bits - attempt // 2
        rows = _place(keys, pair, shift)
        if rows is not None:
            return CuckooTable(keys, rows, pair, shift, 1 << (63 - shift))
    raise ValueError(f"{len(keys)} keys collide under every hash.")


def _place(keys: Array, multipliers: tuple[int, int], shift: int) -> Array | None:
    """The row of the key in each slot; None if some keys find no slot."""
    slots = np.full(1 << (64 - shift), len(keys), np.uint32)
    left: Array = np.arange(len(keys), dtype=np.uint32)
    second = np.zeros(len(keys), bool)
    # Most keys find a free slot. Only the others move keys, so few frequent ones leave their first.
    for multiplier in multipliers:
        starts = range(0, len(left), _BLOCK)
        blocks = (left[start : start + _BLOCK] for start in starts)
        rest = [_fill(block, keys, slots, multiplier, shift) for block in blocks]
        left = np.concatenate(rest) if rest else left
    one, two = (slots.take(_slots(keys.take(left), m, shift)) for m in multipliers)
    second[left] = two > one
    moves = 0
    for _ in range(_MOST_ROUNDS):
        if not len(left):
            slots[slots == len(keys)] = 0
            return slots
        # Random keys take 0.4 moves each; where a hash repeats itself, they would go on in circles.
        moves += len(left)
        if moves > len(keys) + _FEW:
            break
        left = move_in(left, keys, slots, second, multipliers, shift)
    return None


def _fill(rows: Array, keys: Array, slots: Array, multiplier: int, shift: int) -> Array:
    """Put keys into their slots of one hash, if these are free; the rows of the other keys."""
    targets = _slots(keys.take(rows), multiplier, shift)
    free = np.flatnonzero(slots.take(targets) == len(keys))
    # Of several keys for one slot the last one written remains: the most frequent.
    slots[targets.take(free)[::-1]] = rows.take(free)[::-1]
    left: Array = rows[slots.take(targets) != rows]
    return left


def move_in(
    moving: Array,
    keys: Array,
    slots: Array,
    second: Array,
    multipliers: tuple[int, int],
    shift: int,
) -> Array:
    """The rows that lose their slots when others move in.

    All move in at once; a key that finds a slot taken moves its occupant to the other slot.
    """
    values = keys.take(moving)
    one, two = (_slots(values, multiplier, shift) for multiplier in multipliers)
    targets = np.where(second.take(moving), two, one)
    before = slots.take(targets)
    slots[targets] = moving
    stays = slots.take(targets) == moving
    evicted = before[stays]
    left: Array = np.concatenate([moving[~stays], evicted[evicted != len(keys)]])
    second[left] ^= True
    return left


def as_int64(keys: Array) -> Any:
    """Integers or booleans as int64; uint64 by the same bits, so that distinct keys stay distinct."""
    if keys.dtype == np.uint64:
        return keys.view(np.int64)
    return keys.astype(np.int64, copy=False)
