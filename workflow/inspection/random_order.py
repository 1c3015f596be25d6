"""Random permutations that are computed element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

_ROUNDS = 4
Integers = np.ndarray[Any, np.dtype[np.uint64]]


def permuted(numbers: Any, size: int, seed: int) -> Integers:
    """The places of numbers in a random order of 0 .. size - 1.

    Together, the places of all numbers are all numbers, so that a share of the places is an exact
    share of the rows, however the rows are divided.

    Args:
        numbers: shape (N,), integers from 0 to size - 1.
        size: at most 2**62.
        seed: another seed gives another order.

    Source: Luby and Rackoff, "How to construct pseudorandom permutations", 1988 (a Feistel network),
    repeated until the result is below `size` (Black and Rogaway, 2002).

    Example:
        >>> sorted(permuted(np.arange(5), 5, seed=0).tolist())
        [0, 1, 2, 3, 4]
    """
    half = np.uint64(max(1, -(-max(size - 1, 1).bit_length() // 2)))
    places = _feistel(np.asarray(numbers, np.uint64), half, seed)
    while (beyond := np.flatnonzero(places >= size)).size:
        places[beyond] = _feistel(places[beyond], half, seed)
    return places


def _feistel(numbers: Integers, half: np.uint64, seed: int) -> Integers:
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = numbers >> half, numbers & mask
    for turn in range(_ROUNDS):
        key = (seed * _ROUNDS + turn) * 0x9E37_79B9_7F4A_7C15 % 2**64
        left, right = right, left ^ (mixed(right + np.uint64(key)) & mask)
    return (left << half) | right


def mixed(numbers: Integers) -> Integers:
    """Hashes of integers, which wrap around 2**64.

    Source: the finalizer of splitmix64 (Steele, Lea and Flood, 2014).
    """
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return numbers ^ (numbers >> np.uint64(31))
