"""Made-up clicks in raw/, so that everything works at once; replace them by your own files."""

import sys
from pathlib import Path

import numpy as np
import polars as pl

ROWS = {"train": 20_000, "valid": 2_000}


def clicks(rows: int, seed: int) -> pl.DataFrame:
    """Rows of users, items, prices (some missing) and clicks, which depend on all three."""
    random = np.random.default_rng(seed)
    user, item = random.integers(0, 500, rows), random.zipf(1.5, rows) % 200
    price = random.lognormal(2, 1, rows)
    chance = 1 / (1 + np.exp(0.1 * price - (user % 7) / 2 - (item % 5) / 2))
    return pl.DataFrame(
        {
            "user": user,
            "item": [f"item {n}" for n in item],
            "price": pl.Series(price).set(pl.Series(random.random(rows) < 0.1), None),
            "clicked": (random.random(rows) < chance).astype(np.int8),
        }
    )


def main(file: Path) -> None:
    """Write one of raw/train.parquet and raw/valid.parquet."""
    file.parent.mkdir(exist_ok=True)
    name = file.stem
    clicks(ROWS[name], seed=list(ROWS).index(name)).write_parquet(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
