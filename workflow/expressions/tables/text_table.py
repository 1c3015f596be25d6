"""A table of many strings that finds any of them: by hash in a cuckoo table, then by its bytes.

A Python dictionary of ten million strings is 2 GB of objects that take seconds to make. This is
the bytes as they lie in the file, and some twenty more for each string.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...schema.column import Array, Strings
from .cuckoo import CuckooTable, cuckoo_table

# Odd numbers with no pattern, of SplitMix64; each word of eight bytes is multiplied in.
_WORD, _LENGTH = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_SHIFT = 29
_BITS = 2**64 - 1
_SEEDS = 8
# So many strings of the table are hashed at once, which bounds what that takes beside it.
_BLOCK = 2**16
# So few are found one by one, which saves numpy's cost of each call.
FEW = 16
# Which bits of a word belong to a string, by how many of its bytes do.
_MASKS = np.array([(1 << 8 * used) - 1 for used in range(9)], np.uint64)

# Strings that are as long as the word with this number: which they are, its mask, its bits.
Piece = tuple[int, Any, Array, Array]


class TextTable:
    """Distinct strings, and where each stands.

    Args:
        texts: the strings, at least one.

    Raises:
        ValueError: for every seed two of the hashes are one; only strings that are made for it,
            or are one themselves, do that.

    Example:
        >>> table = TextTable(Strings.of(["b", "a"]))
        >>> table.find(np.array(["a", "c"], object)).tolist()
        [1, -1]
    """

    def __init__(self, texts: Strings) -> None:
        self._data = texts.data
        self._offsets = texts.offsets
        self._words = _words(texts.data)
        self._seed, self._table = self._build()

    def find(self, values: Array) -> Array:
        """The row of each `str` of an object array, int64, shape (N,); -1 where it is not there."""
        wanted = values.tolist()
        if len(wanted) <= FEW:
            return np.array([self._find_bytes(_bytes(value)) for value in wanted], np.int64)
        words, starts, lengths = _encode(wanted)
        pieces = list(_pieces(words, starts, lengths))
        rows, found = self._table.find(_hashes(lengths, pieces, self._seed))
        rows = rows.astype(np.int64)
        begins = self._offsets.take(rows)
        found &= self._offsets.take(rows + 1) - begins == lengths
        last = len(self._words) - 1
        for number, chosen, mask, word in pieces:
            # What is not found, being of another length, may lead beyond the end.
            places = np.minimum(begins[chosen] + 8 * number, last)
            found[chosen] &= self._words[places] & mask == word
        return np.where(found, rows, -1)

    def _find_bytes(self, raw: bytes) -> int:
        row = self._table.find_one(_hash_one(raw, self._seed))
        if row < 0:
            return -1
        start, end = self._offsets.item(row), self._offsets.item(row + 1)
        return row if self._data[start:end].tobytes() == raw else -1

    def _build(self) -> tuple[int, CuckooTable]:
        for seed in range(_SEEDS):
            try:
                table = cuckoo_table(self._hashes(seed))
            except ValueError:
                continue
            if all(_finds_itself(table, start) for start in range(0, len(table.keys), _BLOCK)):
                return seed, table
        raise ValueError(f"Two of {len(self._offsets) - 1} strings are one, or collide as such.")

    def _hashes(self, seed: int) -> Array:
        made = np.empty(len(self._offsets) - 1, np.int64)
        for start in range(0, len(made), _BLOCK):
            offsets = self._offsets[start : start + _BLOCK + 1]
            lengths = np.diff(offsets)
            pieces = _pieces(self._words, offsets[:-1], lengths)
            made[start : start + _BLOCK] = _hashes(lengths, pieces, seed)
        return made


def _finds_itself(table: CuckooTable, start: int) -> bool:
    """Whether no other key is found in place of those from a row on."""
    keys = table.keys[start : start + _BLOCK]
    rows, _ = table.find(keys)
    return bool(np.all(rows == np.arange(start, start + len(keys))))


def _words(data: Array) -> Array:
    """The eight bytes from each place on, as a number; beyond the end there are zeros."""
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    return np.ndarray(len(data) + 1, "<u8", padded, strides=(1,))


def _bytes(text: str) -> bytes:
    # Half a surrogate pair is no character; it is found nowhere, and is no error here.
    return text.encode("utf-8", "surrogatepass")


def _encode(texts: Sequence[str]) -> tuple[Array, Array, Array]:
    """The words, starts and lengths of some strings."""
    data = np.frombuffer(_bytes("\0".join(texts)), np.uint8)
    ends = np.flatnonzero(data == 0)
    if len(ends) == len(texts) - 1:
        ends = np.append(ends, len(data))
        starts = np.append(0, ends[:-1] + 1)
        return _words(data), starts, ends - starts
    # A string holds the zero that was to part them.
    raw = [_bytes(text) for text in texts]
    lengths = np.array([len(each) for each in raw], np.int64)
    return _words(np.frombuffer(b"".join(raw), np.uint8)), np.cumsum(lengths) - lengths, lengths


def _pieces(words: Array, starts: Array, lengths: Array) -> Iterator[Piece]:
    """The strings word by word."""
    for number in range((int(lengths.max(initial=0)) + 7) // 8):
        left = lengths - 8 * number
        chosen: Any = np.flatnonzero(left > 0) if int(left.min()) <= 0 else slice(None)
        mask = _MASKS.take(np.minimum(left[chosen], 8))
        yield number, chosen, mask, words[starts[chosen] + 8 * number] & mask


def _hashes(lengths: Array, pieces: Iterable[Piece], seed: int) -> Array:
    """The hash of each string, int64: multiplied and shifted for each word."""
    made = (lengths + seed).view(np.uint64) * np.uint64(_LENGTH)
    for _, chosen, _, word in pieces:
        mixed = (made[chosen] ^ word) * np.uint64(_WORD)
        made[chosen] = mixed ^ mixed >> np.uint64(_SHIFT)
    return made.view(np.int64)


def _hash_one(raw: bytes, seed: int) -> int:
    """The same of one string, in Python's integers."""
    made = (len(raw) + seed) * _LENGTH & _BITS
    for start in range(0, len(raw), 8):
        word = int.from_bytes(raw[start : start + 8], "little")
        mixed = (made ^ word) * _WORD & _BITS
        made = mixed ^ mixed >> _SHIFT
    return made - (made >> 63 << 64)
