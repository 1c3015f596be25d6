"""Ratings to group, and the groups by a loop over the rows."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import polars as pl


def ratings(rows: int = 400, seed: int = 3) -> pl.DataFrame:
    """Ratings with nulls in every column, a target that depends on the user, and a time."""
    random = np.random.default_rng(seed)
    user = random.zipf(1.4, rows) % 23
    frame = pl.DataFrame(
        {
            "user": user,
            "city": random.choice(["a", "b", "é", ""], rows),
            "rating": random.integers(1, 6, rows).astype(float),
            "clicked": (user % 3 == 0) ^ (random.random(rows) < 0.2),
            "time": random.permutation(rows),
        }
    )
    for number, name in enumerate(("user", "city", "rating", "clicked"), 7):
        frame = frame.with_columns(
            pl.when(pl.int_range(pl.len()) % number > 0).then(pl.col(name)).alias(name)
        )
    return frame


def in_files(frame: pl.DataFrame, folder, rows: int = 37):
    """The folder, with the frame in many files."""
    for number, part in enumerate(frame.iter_slices(rows)):
        part.write_parquet(folder / f"{number:03}.parquet")
    return folder


def grouped(frame: pl.DataFrame, *names: str) -> dict[tuple, list[dict]]:
    """The rows of each group, in order."""
    groups = defaultdict(list)
    for row in frame.iter_rows(named=True):
        groups[tuple(row[name] for name in names)].append(row)
    return groups


def known(rows: list[dict], name: str) -> list[float]:
    return [row[name] for row in rows if row[name] is not None]
