"""Parquet files with a sound footer whose rows cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np


def damage_rows(file: Path) -> None:
    """Write over the beginning of the first row group."""
    raw = bytearray(file.read_bytes())
    raw[4:40] = b"\xff" * 36
    file.write_bytes(raw)


def flips(raw: bytes, count: int, seed: int) -> Iterator[bytes]:
    """A file with one to three bytes changed, anywhere or in its last tenth, so many times."""
    random = np.random.default_rng(seed)
    for number in range(count):
        damaged = bytearray(raw)
        first = len(raw) * 9 // 10 if number % 2 else 0
        for place in random.integers(first, len(raw), random.integers(1, 4)):
            damaged[place] ^= int(random.integers(1, 256))
        yield bytes(damaged)
