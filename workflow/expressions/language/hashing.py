"""The hash of a value: one function, with the same bits in every interpreter.

An integer or boolean is taken as its 64 bits in two's complement, so that 5 has one hash whatever
the width of its column. A string of the UTF-8 bytes b is taken as the 64 bits of `len(b) + sum(b[i]
* BASE ** (i + 1))`. An offset derived from the seed is added to these bits, which then go through
the finaliser of SplitMix64, in which every input bit changes every result bit with probability one
half. The upper 63 bits are the hash, as a non-negative int64: onnxruntime, TensorFlow and Polars
all divide int64 exactly, but not all of them unsigned integers.

Not collision-resistant: an attacker who knows the function can construct colliding inputs.

Sources: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, with
the constants of Stafford's variant 13; the base is a multiplier of Steele and Vigna,
"Computationally easy, spectrally good multipliers", 2021.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

import numpy as np

from ...schema.column import Array, Strings

BASE = 0xD1342543DE82EF95
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
SHIFTS = (30, 27, 31)
_GOLDEN = 0x9E3779B97F4A7C15
_BITS = 2**64 - 1
# The most that is hashed at once, so that temporary memory, some 30 bytes a byte, stays small.
_MOST_BYTES, _MOST_TEXTS = 2**18, 2**16


def seed_offset(seed: int) -> int:
    """The term that a seed adds to a value's bits before they are mixed, from 0 to 2**64 - 1."""
    mixed = (seed + 1) * _GOLDEN & _BITS
    for shift, multiplier in zip(SHIFTS, (*MULTIPLIERS, 1), strict=True):
        mixed = (mixed ^ mixed >> shift) * multiplier & _BITS
    return mixed


def hash_values(values: Array, seed: int) -> Array:
    """The hash of each value.

    Args:
        values: integers, booleans or, in an object array, `str`; any shape.
        seed: another seed gives another function.

    Returns:
        int64 from 0 to 2**63 - 1, with the shape of `values`.

    Example:
        >>> hash_values(np.array([1, 2]), seed=0).tolist()
        [8449514215880780645, 5957332687720944705]
    """
    if values.dtype == object:
        texts, made = values.reshape(-1), np.empty(values.size, np.int64)
        for start in range(0, len(texts), _MOST_TEXTS):
            part = slice(start, start + _MOST_TEXTS)
            made[part] = hash_strings(Strings.of(texts[part].tolist()), seed)
        return made.reshape(values.shape)
    bits = values.astype(np.int64, copy=False) if values.dtype != np.uint64 else values
    return _mixed(bits.view(np.uint64), seed)


def hash_strings(texts: Strings, seed: int) -> Array:
    """The hash of each string, int64, shape (N,)."""
    offsets, size = texts.offsets, len(texts.data)
    if size <= _MOST_BYTES:
        return _mixed(_sums(texts.data, offsets), seed)
    bits = np.empty(len(texts), np.uint64)
    cuts = np.searchsorted(offsets, np.arange(_MOST_BYTES, size, _MOST_BYTES)).tolist()
    for begin, end in zip([0, *cuts], [*cuts, len(texts)]):  # noqa: B905 - Python 3.10
        bits[begin:end] = _sums(texts.data, offsets[begin : end + 1])
    return _mixed(bits, seed)


def _sums(data: Array, offsets: Array) -> Array:
    """The sum of each string's bytes times powers of the base, and its length."""
    lengths, data = np.diff(offsets), data[offsets[0] : offsets[-1]]
    begins = offsets[:-1] - offsets[0]
    powers = np.cumprod(np.full(lengths.max(initial=0), BASE, np.uint64))
    places = np.arange(len(data)) - np.repeat(begins, lengths)
    # Sums wrap around at 2**64, and so does the difference of two sums.
    sums = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(data * powers[places], out=sums[1:])
    bits: Array = sums[begins + lengths] - sums[begins] + lengths.astype(np.uint64)
    return bits


def _mixed(bits: Array, seed: int) -> Array:
    with np.errstate(over="ignore"):  # numpy warns when a scalar overflows
        bits = bits + np.uint64(seed_offset(seed))
        for shift, multiplier in zip(SHIFTS, (*MULTIPLIERS, 1), strict=True):
            bits = (bits ^ bits >> np.uint64(shift)) * np.uint64(multiplier)
        return (bits >> np.uint64(1)).astype(np.int64)
