"""Raw data of the Criteo data set's shape: 13 counts with nulls, 26 ids up to two million, a label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

CONTS = [f"I{number}" for number in range(1, 14)]
CATS = [f"C{number}" for number in range(1, 27)]
CARDINALITIES = np.geomspace(10, 2_000_000, len(CATS)).astype(int)
ROW_GROUP = 250_000


def make_raw(folder: Path, rows: int, files: int = 4, seed: int = 0) -> list[Path]:
    """Write the parquet files, unless they are there; one base file is shuffled into the others."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"raw_{rows}_{number}.parquet" for number in range(files)]
    if all(path.exists() for path in paths):
        return paths
    random = np.random.default_rng(seed)
    count = rows // files
    columns = {}
    for name in CONTS:
        values = np.floor(random.lognormal(2, 2, count)).astype(np.float32)
        columns[name] = pl.Series(values).set(pl.Series(random.random(count) < 0.1), None)
    for name, size in zip(CATS, CARDINALITIES, strict=True):
        # Ids as they come in logs: spread over a range, so that a lookup is a lookup.
        ids = random.zipf(1.1, count) % size
        columns[name] = pl.Series(ids.astype(np.int64) * 2_654_435_761 % (1 << 31))
    columns["label"] = pl.Series((random.random(count) < 0.25).astype(np.int32))
    base = pl.DataFrame(columns)
    for number, path in enumerate(paths):
        partial = path.with_suffix(".partial")
        frame = base if number == 0 else base.sample(fraction=1.0, shuffle=True, seed=number)
        frame.write_parquet(partial, compression="snappy", row_group_size=ROW_GROUP)
        partial.rename(path)
    return paths
