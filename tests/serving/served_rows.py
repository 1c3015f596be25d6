"""Rows for the ensemble that the tests serve, and what it answers."""

import numpy as np
import polars as pl

ROWS = {
    "userId": [7, None, -(2**63) + 1],
    "age": [30.5, None, 0.1],
    "genres": [["Drama", "Krimi ü"], None, ["?"]],
    "rating": [1, 2, 3],
}
AGE = [30.5, None, float(np.float32(0.1))]
EXPECTED = pl.DataFrame(
    {
        "same_user": ROWS["userId"],
        "same_age": pl.Series([30.5, float("nan"), 0.1], dtype=pl.Float32),
        "probabilities": pl.Series(
            [[7, 8], [-(2.0**63)] * 2, [-(2.0**63)] * 2], dtype=pl.Array(pl.Float32, 2)
        ),
        "genre_codes": [[3, 4], [], [2]],
    }
)
FRAME = pl.DataFrame(ROWS, schema_overrides={"age": pl.Float32})
