"""TensorFlow's fingerprints of values: numbers that its hashed and crossed columns are made of.

A string's fingerprint is FarmHash's Fingerprint64 of its UTF-8 bytes; an integer's is that of its
decimal digits. TensorFlow's `to_hash_bucket_fast` is this number modulo the buckets, and its
`sparse.cross_hashed` combines such numbers with a key.

The formulas are written once, for Python integers and for arrays of uint64. The low 64 bits of
sums, products, differences and shifts to the left depend on the low 64 bits of their operands only,
so that Python integers, which do not overflow, are cut in front of shifts to the right and at the
end.

Not collision-resistant: an attacker who knows the function can construct colliding inputs.

Sources: Pike and Alakuijala, FarmHash 1.1, `farmhashna::Hash64`, whose fingerprints never change;
TensorFlow 2.21, `FingerprintCat64` in `tsl/platform/fingerprint.h`.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import numpy as np

from ...schema.column import Array, Strings, byte_words

_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_BITS, SHIFT = 2**64 - 1, 47
# The state before the first block of a long string, from the seed 81.
_X, _Y = 81 * _K2 & _BITS, (81 * _K1 + 113) & _BITS
_Z = ((_Y * _K2 + 113 & _BITS) ^ (_Y * _K2 + 113 & _BITS) >> SHIFT) * _K2 & _BITS
CAT_MULTIPLIER = 0xC6A4A7935BD1E995
# The key of TensorFlow's crosses, unless they have their own.
CROSS_KEY = 0xDECAFCAFFE
# The first length of each kind of string. Strings of the last kind differ by their blocks too.
_KINDS = (1, 4, 8, 17, 33, 65)
_BLOCK = 64
# The most values at once, so that temporary memory, some 200 bytes a value, stays in the caches.
_MOST = 2**13
# Up to this many are computed one by one, which avoids numpy's cost for each call.
_FEW = 20
# The most digits of an integer, and the row that has space for them and for a sign.
_DIGITS, _ROW = 20, 24
_TENS = np.array([10**power for power in range(1, _DIGITS)], np.uint64)

# An integer of Python, or an array of uint64.
Bits = Any
# The eight bytes of a string from a position on, as a little-endian number.
Fetch = Callable[[int | Bits], Bits]


def fingerprint_values(values: Array) -> Array:
    """The fingerprint of each value.

    Args:
        values: integers or, in an object array, `str`; any shape.

    Returns:
        uint64, with the shape of `values`.

    Example:
        >>> fingerprint_values(np.array(["", "7"], object)).tolist()
        [11160318154034397263, 9813730750082856088]
        >>> fingerprint_values(np.array([7])).tolist()
        [9813730750082856088]
    """
    flat, made = values.reshape(-1), np.empty(values.size, np.uint64)
    if len(flat) <= _FEW:
        made[:] = [_of_bytes(str(value).encode()) for value in flat.tolist()]
        return made.reshape(values.shape)
    for start in range(0, len(flat), _MOST):
        part = flat[start : start + _MOST]
        if values.dtype == object:
            made[start : start + _MOST] = fingerprint_strings(Strings.of(part.tolist()))
        else:
            made[start : start + _MOST] = _of_words(*_decimals(part))
    return made.reshape(values.shape)


def fingerprint_strings(texts: Strings) -> Array:
    """The fingerprint of each string, uint64, shape (N,)."""
    made = np.empty(len(texts), np.uint64)
    for start in range(0, len(texts), _MOST):
        offsets = texts.offsets[start : start + _MOST + 1]
        words = byte_words(texts.data[offsets[0] : offsets[-1]])
        made[start : start + _MOST] = _of_words(words, offsets[:-1] - offsets[0], np.diff(offsets))
    return made


def concatenate(first: Bits, second: Bits) -> Bits:
    """FingerprintCat64: the fingerprint of two fingerprints in their order.

    Args:
        first: uint64, or an integer of Python.
        second: likewise.

    Example:
        >>> concatenate(1, 2), concatenate(2, 1)
        (14454907135238785252, 16822303259140627331)
    """
    mixed = first ^ CAT_MULTIPLIER ^ _mixed(second * CAT_MULTIPLIER) * CAT_MULTIPLIER
    return _mixed(_mixed(mixed * CAT_MULTIPLIER) * CAT_MULTIPLIER)


def _of_bytes(raw: bytes) -> int:
    length = len(raw)
    kind = bisect_right(_KINDS, length) + (length > _BLOCK) * ((length - 1) // _BLOCK)
    made: int = _of_kind(kind, lambda at: int.from_bytes(raw[at : at + 8], "little"), length)
    return made


def _of_words(words: Array, starts: Array, lengths: Array) -> Array:
    """The fingerprints of strings; strings whose lengths need the same formula are computed together.

    Args:
        words: the eight bytes from each position on.
        starts: the position of each string.
        lengths: the number of bytes of each string.
    """
    kinds = np.searchsorted(_KINDS, lengths, "right")
    kinds += np.where(lengths > _BLOCK, (lengths - 1) // _BLOCK, 0)
    order = np.argsort(kinds, kind="stable")
    made = np.empty(len(lengths), np.uint64)
    ends = np.append(np.flatnonzero(np.diff(kinds[order])) + 1, len(order)).tolist()
    for begin, end in zip([0, *ends], ends):  # noqa: B905 - Python 3.10
        chosen = order[begin:end]
        kind, own, sizes = int(kinds[chosen[0]]), starts[chosen], lengths[chosen]
        if len(chosen) > _FEW:
            made[chosen] = _of_kind(kind, _fetch(words, own), sizes.astype(np.uint64))
        else:
            made[chosen] = [
                _of_kind(kind, _fetch_one(words, start), size)
                for start, size in zip(own.tolist(), sizes.tolist())  # noqa: B905 - Python 3.10
            ]
    return made


def _fetch(words: Array, starts: Array) -> Fetch:
    own = starts.astype(np.uint64)
    return lambda at: words[own + at]


def _fetch_one(words: Array, start: int) -> Fetch:
    return lambda at: words.item(start + at)


def _of_kind(kind: int, fetch: Fetch, length: Bits) -> Bits:
    """The fingerprints of strings of one kind: one of `_KINDS`, or more with the number of blocks."""
    if kind > len(_KINDS):
        return _long(fetch, length, kind - len(_KINDS)) & _BITS
    return (_empty, _to_3, _to_7, _to_16, _to_32, _to_64)[kind](fetch, length) & _BITS


def _empty(_: Fetch, length: Bits) -> Bits:
    return length + _K2


def _to_3(fetch: Fetch, length: Bits) -> Bits:
    """The fingerprint of 1 to 3 bytes, from the first, the middle and the last one."""
    first, middle, last = (fetch(at) & 0xFF for at in (0, length >> 1, length - 1))
    return _mixed((first + (middle << 8)) * _K2 ^ (length + (last << 2)) * _K0) * _K2


def _to_7(fetch: Fetch, length: Bits) -> Bits:
    first, last = (fetch(at) & 0xFFFFFFFF for at in (0, length - 4))
    return _joined(length + (first << 3), last, _K2 + length * 2)


def _to_16(fetch: Fetch, length: Bits) -> Bits:
    multiplier = _K2 + length * 2
    first, last = fetch(0) + _K2, fetch(length - 8)
    u = _rotated(last, 37) * multiplier + first
    return _joined(u, (_rotated(first, 25) + last) * multiplier, multiplier)


def _to_32(fetch: Fetch, length: Bits) -> Bits:
    multiplier = _K2 + length * 2
    return _joined(*_ends(fetch, length, fetch(0) * _K1, multiplier), multiplier)


def _ends(fetch: Fetch, length: Bits, first: Bits, multiplier: Bits) -> tuple[Bits, Bits]:
    """Two numbers of the first and the last sixteen bytes."""
    second, last = fetch(8), fetch(length - 8) * multiplier
    u = _rotated(first + second, 43) + _rotated(last, 30) + fetch(length - 16) * _K2
    return u, first + _rotated(second + _K2, 18) + last


def _to_64(fetch: Fetch, length: Bits) -> Bits:
    multiplier, first = _K2 + length * 2, fetch(0) * _K2
    u, v = _ends(fetch, length, first, multiplier)
    third, fourth = fetch(16) * multiplier, fetch(24)
    last = (u + fetch(length - 32)) * multiplier
    rest = (_joined(u, v, multiplier) + fetch(length - 24)) * multiplier
    return _joined(
        _rotated(third + fourth, 43) + _rotated(last, 30) + rest,
        third + _rotated(fourth + first, 18) + last,
        multiplier,
    )


def _long(fetch: Fetch, length: Bits, blocks: int) -> Bits:
    """The fingerprint of more than 64 bytes: whole blocks of 64, and then the last 64 bytes.

    Args:
        fetch: reads the string.
        length: the number of its bytes.
        blocks: how many whole blocks there are before its last byte.
    """
    first = fetch(0)
    zero = first & 0
    state = (first + _X, zero + _Y, zero + _Z, zero, zero, zero, zero)
    for number in range(blocks):
        state = _block(fetch, number * _BLOCK, state, _K1, 1)
    x, y, z, v, v_next, w, w_next = state
    multiplier = _K1 + ((z & 0xFF) << 1)
    w = w + ((length - 1) & (_BLOCK - 1))
    v = v + w
    state = (x, y, z, v, v_next, w + v, w_next)
    x, y, z, v, v_next, w, w_next = _block(fetch, length - _BLOCK, state, multiplier, 9)
    u = _joined(v, w, multiplier) + _mixed(y) * _K0 + z
    return _joined(u, _joined(v_next, w_next, multiplier) + x, multiplier)


def _block(
    fetch: Fetch, at: Bits, state: tuple[Bits, ...], multiplier: Bits, factor: int
) -> tuple[Bits, ...]:
    """The state after 64 bytes."""
    x, y, z, v, v_next, w, w_next = state
    x = _rotated(x + y + v + fetch(at + 8), 37) * multiplier ^ w_next * factor
    y = _rotated(y + v_next + fetch(at + 48), 42) * multiplier + v * factor + fetch(at + 40)
    z = _rotated(z + w, 33) * multiplier
    v, v_next = _weak(fetch, at, v_next * multiplier, x + w)
    w, w_next = _weak(fetch, at + 32, z + w_next, y + fetch(at + 16))
    # x and z change places.
    return tuple(bits & _BITS for bits in (z, y, x, v, v_next, w, w_next))


def _weak(fetch: Fetch, at: Bits, u: Bits, v: Bits) -> tuple[Bits, Bits]:
    """Two numbers of 32 bytes and of two numbers."""
    last, u = fetch(at + 24), u + fetch(at)
    between = u + fetch(at + 8) + fetch(at + 16)
    return between + last, _rotated(v + u + last, 21) + _rotated(between, 44) + u


def _joined(u: Bits, v: Bits, multiplier: Bits) -> Bits:
    """One number of two."""
    mixed = _mixed((u ^ v) * multiplier)
    return _mixed((v ^ mixed) * multiplier) * multiplier


def _mixed(bits: Bits) -> Bits:
    """The highest bits also in the place of the lowest ones."""
    bits = bits & _BITS
    return bits ^ bits >> SHIFT


def _rotated(bits: Bits, places: int) -> Bits:
    """The bits moved to the right, and those that leave on the left."""
    bits = bits & _BITS
    return bits >> places | bits << 64 - places


def _decimals(values: Array) -> tuple[Array, Array, Array]:
    """The decimal digits of integers: words, starts and lengths as `_of_words` takes them."""
    negative = values < 0
    bits = values.astype(np.uint64)
    rest = np.where(negative, 0 - bits, bits)
    lengths = np.searchsorted(_TENS, rest, "right") + 1
    text = np.empty((len(values), _ROW), np.uint8)
    for place in range(_DIGITS, _DIGITS - int(lengths.max()), -1):
        tenth = rest // 10
        text[:, place] = rest - tenth * 10 + ord("0")
        rest = tenth
    starts = _DIGITS + 1 - lengths
    text[negative, starts[negative] - 1] = ord("-")
    starts += np.arange(0, text.size, _ROW)
    return byte_words(text.reshape(-1)), starts - negative, lengths + negative
