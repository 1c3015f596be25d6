"""A table that finds strings among many: by hash in a cuckoo table, then by bytes.

A Python dictionary of ten million strings is 2 GB of objects that take seconds to make. This table
is the strings' bytes as in the file, and about twenty more for each string.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...schema.column import Array, Strings, byte_words
from .cuckoo import CuckooTable, cuckoo_table

# Odd numbers without a pattern, from SplitMix64; each word of eight bytes is multiplied.
HASH_WORD, HASH_LENGTH = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
HASH_SHIFT = 29
HASH_BITS = 2**64 - 1
_SEEDS = 8
# The number of strings of the table that are hashed at once, which bounds temporary memory.
_BLOCK = 2**16
# Up to this many are found one by one, which avoids numpy's cost for each call.
FEW = 16
# The bits of a word that belong to a string, by the number of its bytes that do.
_MASKS = np.array([(1 << 8 * used) - 1 for used in range(9)], np.uint64)

# Strings that reach the word with this index: their indexes, the word's mask and bits.
Piece = tuple[int, Any, Array, Array]


class TextTable:
    """Distinct strings, and the row of each.

    Args:
        texts: the strings, at least one.

    Raises:
        ValueError: for every seed two of the hashes are equal; only for repeated strings, or
            strings constructed to this end.

    Example:
        >>> table = TextTable(Strings.of(["b", "a"]))
        >>> table.find(np.array(["a", "c"], object)).tolist()
        [1, -1]
    """

    def __init__(self, texts: Strings) -> None:
        self._data = texts.data
        self._offsets = texts.offsets
        self._words = byte_words(texts.data)
        self._seed, self._table = self._build()

    def find(self, values: Array) -> Array:
        """The row of each `str` in an object array, int64, shape (N,); -1 if it is not in the table."""
        wanted = values.tolist()
        if len(wanted) <= FEW:
            return np.array([self._find_bytes(_bytes(value)) for value in wanted], np.int64)
        return self._find(*_encode(wanted))

    def find_strings(self, texts: Strings) -> Array:
        """The row of each of some strings, int64, shape (N,); -1 if it is not in the table."""
        return self._find(byte_words(texts.data), texts.offsets[:-1], np.diff(texts.offsets))

    def _find(self, words: Array, starts: Array, lengths: Array) -> Array:
        pieces = list(_pieces(words, starts, lengths))
        rows = self._table.find(_hashes(lengths, pieces, self._seed))
        # A hash that is not in the table has row -1, whose length is negative here.
        begins = self._offsets.take(rows)
        found = self._offsets.take(rows + 1) - begins == lengths
        last = len(self._words) - 1
        for number, chosen, mask, word in pieces:
            # A string of another length, which will not match, may point beyond the end.
            places = np.minimum(begins[chosen] + 8 * number, last)
            found[chosen] &= self._words[places] & mask == word
        return np.where(found, rows, -1)

    def _find_bytes(self, raw: bytes) -> int:
        row = self._table.find_one(hash_one(raw, self._seed))
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
    """Whether no key from a row on is found in place of another one."""
    keys = table.keys[start : start + _BLOCK]
    rows = table.find(keys)
    return bool(np.all(rows == np.arange(start, start + len(keys))))


def _bytes(text: str) -> bytes:
    # Half a surrogate pair is not a character; it matches nothing, and is not an error here.
    return text.encode("utf-8", "surrogatepass")


def _encode(texts: Sequence[str]) -> tuple[Array, Array, Array]:
    """The words, starts and lengths of some strings."""
    data = np.frombuffer(_bytes("\0".join(texts)), np.uint8)
    ends = np.flatnonzero(data == 0)
    if len(ends) == len(texts) - 1:
        ends = np.append(ends, len(data))
        starts = np.append(0, ends[:-1] + 1)
        return byte_words(data), starts, ends - starts
    # A string contains the zero that was to separate the strings.
    raw = [_bytes(text) for text in texts]
    lengths = np.array([len(each) for each in raw], np.int64)
    return byte_words(np.frombuffer(b"".join(raw), np.uint8)), np.cumsum(lengths) - lengths, lengths


def _pieces(words: Array, starts: Array, lengths: Array) -> Iterator[Piece]:
    """The strings word by word."""
    for number in range((int(lengths.max(initial=0)) + 7) // 8):
        left = lengths - 8 * number
        chosen: Any = np.flatnonzero(left > 0) if int(left.min()) <= 0 else slice(None)
        mask = _MASKS.take(np.minimum(left[chosen], 8))
        yield number, chosen, mask, words[starts[chosen] + 8 * number] & mask


def _hashes(lengths: Array, pieces: Iterable[Piece], seed: int) -> Array:
    """The hash of each string, int64: a multiplication and a shift for each word."""
    made = (lengths + seed).view(np.uint64) * np.uint64(HASH_LENGTH)
    for _, chosen, _, word in pieces:
        mixed = (made[chosen] ^ word) * np.uint64(HASH_WORD)
        made[chosen] = mixed ^ mixed >> np.uint64(HASH_SHIFT)
    return made.view(np.int64)


def hash_one(raw: bytes, seed: int) -> int:
    """The hash of one string, in Python integers."""
    made = (len(raw) + seed) * HASH_LENGTH & HASH_BITS
    for start in range(0, len(raw), 8):
        word = int.from_bytes(raw[start : start + 8], "little")
        mixed = (made ^ word) * HASH_WORD & HASH_BITS
        made = mixed ^ mixed >> HASH_SHIFT
    return made - (made >> 63 << 64)
