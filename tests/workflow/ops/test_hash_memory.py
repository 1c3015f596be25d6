"""Strings are hashed in blocks: what it takes beside them does not grow with their number."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from workflow.expressions.language.fingerprints import fingerprint_strings
from workflow.expressions.language.hashing import hash_strings, hash_values
from workflow.schema.column import Strings


def texts(count: int) -> list[str]:
    """Texts of many lengths, some longer than a block, many empty."""
    return ["é" * (n % 5) + str(n) if n % 3 else "" for n in range(count)] + [
        "x" * 600_000,
        "",
        "y",
    ]


def peak_of(work) -> int:
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_in_blocks_a_hash_is_that_of_the_string_alone():
    given = texts(100_000)
    together = hash_strings(Strings.of(given), seed=3)
    assert together.tolist() == hash_values(np.array(given, object), seed=3).tolist()
    for row in (0, 1, 2, 50_000, 99_999, *range(100_000, 100_003)):
        assert hash_strings(Strings.of([given[row]]), seed=3).item() == together[row]


@pytest.mark.parametrize("hashes", [lambda texts: hash_strings(texts, 0), fingerprint_strings])
@pytest.mark.parametrize("count", [200_000, 800_000])
def test_memory_is_that_of_the_hashes_and_of_a_block(count: int, hashes):
    given = Strings.of([f"value {n:08d}" for n in range(count)])
    assert peak_of(lambda: hashes(given)) < 5 * 8 * count + 16_000_000
