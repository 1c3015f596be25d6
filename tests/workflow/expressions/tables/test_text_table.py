"""The table of strings finds what a dictionary finds, for strings of any kind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflow.expressions.tables import lookup, text_table
from workflow.expressions.tables.text_table import TextTable
from workflow.schema.column import Column, Strings

PATTERNS = {
    "one": ["a"],
    "empty": ["", "a"],
    "zeros": ["\0", "\0\0", "a\0", "a", "a\0b", ""],
    "prefixes": ["x" * length for length in range(70)],
    "last byte": [f"{'k' * 15}{chr(65 + number)}" for number in range(26)],
    "first byte": [f"{chr(65 + number)}{'k' * 31}" for number in range(26)],
    "not ASCII": ["é", "e\u0301", "日本", "日", "🎬🎬", "🎬"],
    "ids": [f"user_{number * 7919}" for number in range(100_000)],
    "long": ["y" * 100_000, "y" * 99_999, "z"],
}


def objects(texts: list[str]) -> np.ndarray:
    return np.array(texts, object)


def assert_finds(table: TextTable, keys: list[str], queries: list[str]) -> None:
    """Few and many at once, which are found in different ways."""
    positions = {key: row for row, key in enumerate(keys)}
    expected = [positions.get(query, -1) for query in queries]
    many = queries * (1 + 40 // max(len(queries), 1))
    found = table.find(objects(many)).tolist()
    assert found == expected * (len(many) // max(len(queries), 1))
    few = [table.find(objects([query])).tolist() for query in queries[:50]]
    assert few == [[position] for position in expected[:50]]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_string_is_found_and_nothing_else(pattern):
    keys = PATTERNS[pattern]
    table = TextTable(Strings.of(keys))
    assert_finds(table, keys, keys)
    others = [key + "!" for key in keys[:1000]] + [key[:-1] for key in keys[:1000]]
    assert_finds(table, keys, [*others, "", "\0", "nowhere", "\ud800"])


@settings(max_examples=200)
@given(
    keys=st.lists(st.text(max_size=20), min_size=1, max_size=60, unique=True),
    queries=st.lists(st.text(max_size=20), max_size=60),
)
def test_it_is_a_dictionary(keys, queries):
    assert_finds(TextTable(Strings.of(keys)), keys, keys + queries)


@pytest.mark.parametrize("many", [0, 10**9])
def test_lookup_is_the_same_by_either_structure(monkeypatch, many):
    monkeypatch.setattr(lookup, "MANY_STRINGS", many)
    keys = Column(Strings.of(["b", "", "é"]))
    find = lookup.find_positions(keys, first=3, missing=2)
    assert find(objects(["é", "x", ""] * 9)).tolist() == [5, 2, 4] * 9
    assert find(objects([])).shape == (0,)
    assert find(objects([["b"], ["x"]])).tolist() == [[3], [2]]


def colliding() -> tuple[str, str]:
    """Two strings of 16 bytes, made so that the hash of seed 0 is one and the same."""
    # A word is XORed with the hash of those before it, and all else is one to one.
    states = ((n, state_after(b"first..."), state_after(b"%08d" % n)) for n in range(10**5))
    number, one, other = next(s for s in states if not (s[1] ^ s[2]) & 0x8080808080808080)
    last = int.from_bytes(b"collides", "little")
    first, second = (n.to_bytes(8, "little").decode() for n in (last, last ^ one ^ other))
    return f"first...{first}", f"{number:08d}{second}"


def state_after(text: bytes) -> int:
    """The hash of seed 0 after the first word of a string of 16 bytes."""
    state = 16 * text_table.HASH_LENGTH & text_table.HASH_BITS
    mixed = (state ^ int.from_bytes(text, "little")) * text_table.HASH_WORD & text_table.HASH_BITS
    return mixed ^ mixed >> text_table.HASH_SHIFT


def test_a_string_with_the_hash_of_another_is_not_taken_for_it():
    first, second = colliding()
    assert first != second
    assert len({text_table.hash_one(text.encode(), 0) for text in (first, second)}) == 1
    others = [f"user_{number}" for number in range(100)]
    assert_finds(TextTable(Strings.of([first, *others])), [first, *others], [second, first])


def test_strings_of_one_hash_do_not_hide_each_other():
    keys = [*colliding(), *(f"user_{number}" for number in range(100))]
    assert_finds(TextTable(Strings.of(keys)), keys, keys)


def test_one_string_twice_is_refused():
    with pytest.raises(ValueError, match="Two of 3 strings are one"):
        TextTable(Strings.of(["a", "b", "a"]))
