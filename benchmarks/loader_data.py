"""The data of the loader's benchmark: Criteo-like after preprocessing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

CONTS = [f"I{number}" for number in range(1, 14)]
CATS = [f"C{number}" for number in range(1, 27)]
CARDINALITIES = np.geomspace(10, 1_000_000, len(CATS)).astype(int)
FILES = 4
ROW_GROUP = 500_000


def make_data(folder: Path, rows: int) -> list[Path]:
    """Write the parquet files, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{rows}_{number}.parquet" for number in range(FILES)]
    random = np.random.default_rng(0)
    for file in files:
        if not file.exists():
            count = rows // FILES
            columns = {name: random.standard_normal(count, np.float32) for name in CONTS}
            for name, size in zip(CATS, CARDINALITIES, strict=True):
                columns[name] = (random.pareto(1.0, count).astype(np.int64) % size).astype(np.int32)
            columns["label"] = (random.random(count) < 0.25).astype(np.int32)
            partial = file.with_suffix(".partial")
            pl.DataFrame(columns).write_parquet(
                partial, compression="snappy", row_group_size=ROW_GROUP
            )
            partial.rename(file)
    return files
