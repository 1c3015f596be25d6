"""The hash table finds every key, and nothing else, for keys of any pattern."""

import numpy as np
import pytest

from workflow.expressions.tables import cuckoo
from workflow.expressions.tables.cuckoo import as_int64, cuckoo_table

RANDOM = np.random.default_rng(0)
PATTERNS = {
    "one": np.array([7]),
    "ends": np.array([-(2**63), 2**63 - 1, 0, -1, 1]),
    "dense": np.arange(100_000),
    "strided": np.arange(50_000) * 2**40,
    "negative": -np.arange(1, 60_000) * 12_345,
    "random": np.unique(RANDOM.integers(-(2**63), 2**63 - 1, 200_000)),
    "powers": 2 ** np.arange(63),
    "floats": np.unique(RANDOM.standard_normal(100_000)).view(np.int64),
    "timestamps": 1_600_000_000_000_000 + np.arange(80_000) * 1_000_000,
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_key_is_found_and_nothing_else(pattern):
    keys = PATTERNS[pattern].astype(np.int64)
    table = cuckoo_table(keys)
    np.testing.assert_array_equal(table.find(keys), np.arange(len(keys)))
    np.testing.assert_array_equal(table.find(keys, first=3), np.arange(3, len(keys) + 3))
    others = np.setdiff1d(np.concatenate([keys + 1, keys - 1, keys ^ 2**62, [0, -1, 5]]), keys)
    assert np.all(table.find(others) == -1)
    assert np.all(table.find(others, first=3, missing=2) == 2)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_key_alone_is_found_as_among_others(pattern):
    keys = PATTERNS[pattern].astype(np.int64)[:300]
    table = cuckoo_table(keys)
    assert [table.find_one(key) for key in keys.tolist()] == list(range(len(keys)))
    others = np.setdiff1d(np.concatenate([keys + 1, keys - 1, keys ^ 2**62, [0, -1, 5]]), keys)
    assert {table.find_one(other) for other in others.tolist()} == {-1}


def test_a_hash_that_repeats_itself_is_given_up_soon(monkeypatch):
    """Each key moved a hundred times, for multiples of 10,000, before the next hash was tried."""
    moved, move_in = [], cuckoo.move_in

    def counted(left, *rest):
        moved.append(len(left))
        return move_in(left, *rest)

    monkeypatch.setattr(cuckoo, "move_in", counted)
    keys = np.arange(400_000) * 10_000
    np.testing.assert_array_equal(cuckoo_table(keys).find(keys), np.arange(len(keys)))
    assert sum(moved) < 4 * len(keys)


def test_uint64_keeps_its_bits():
    keys = np.array([0, 2**63, 2**64 - 1], np.uint64)
    assert as_int64(keys).tolist() == [0, -(2**63), -1]


def test_keys_that_collide_under_every_hash_are_refused():
    with pytest.raises(ValueError, match="collide"):
        cuckoo_table(np.zeros(100, np.int64))
