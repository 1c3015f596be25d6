"""Raw data of the Criteo data set's shape: 13 counts with nulls, 26 ids up to two million, a label."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl

from workflow import Workflow, ops

CONTS = [f"I{number}" for number in range(1, 14)]
CATS = [f"C{number}" for number in range(1, 27)]
CARDINALITIES = np.geomspace(10, 2_000_000, len(CATS)).astype(int)
ROW_GROUP = 250_000
ROWS_PER_FILE = 2_000_000


def make_raw(folder: Path, rows: int, seed: int = 0) -> list[Path]:
    """Write the rows as parquet files of two million at most, unless they are there.

    Args:
        folder: where the files go.
        rows: of all files together.
        seed: of the random numbers; a file's own number makes its rows differ from the others'.
    """
    folder.mkdir(parents=True, exist_ok=True)
    count = max(4, -(-rows // ROWS_PER_FILE))
    paths = [folder / f"raw_{rows}_{number:02}.parquet" for number in range(count)]
    starts = [rows * number // count for number in range(count + 1)]

    def write(number: int) -> None:
        random = np.random.default_rng([seed, number])
        frame = make_rows(starts[number + 1] - starts[number], random)
        partial = paths[number].with_suffix(".partial")
        frame.write_parquet(partial, compression="snappy", row_group_size=ROW_GROUP)
        partial.rename(paths[number])

    missing = [number for number, path in enumerate(paths) if not path.exists()]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        list(pool.map(write, missing))
    return paths


def make_rows(count: int, random: np.random.Generator) -> pl.DataFrame:
    """Rows of the data, drawn independently."""
    columns = {}
    for name in CONTS:
        values = np.floor(random.lognormal(2, 2, count)).astype(np.float32)
        columns[name] = pl.Series(values).set(pl.Series(random.random(count) < 0.1), None)
    for name, size in zip(CATS, CARDINALITIES, strict=True):
        # Ids as they come in logs: spread over a range, so that a lookup is a lookup.
        ids = random.zipf(1.1, count) % size
        columns[name] = pl.Series(ids.astype(np.int64) * 2_654_435_761 % (1 << 31))
    columns["label"] = pl.Series((random.random(count) < 0.25).astype(np.int32))
    return pl.DataFrame(columns)


def make_workflow(_: Path) -> Workflow:
    """The work as operators."""
    clipped = CONTS >> ops.FillMissing(0.0) >> ops.LambdaOp(lambda c: c.clip(0.0, None).log1p())
    label = ["label"] >> ops.LambdaOp(lambda label: label.cast("int8"))
    return Workflow((clipped >> ops.Normalize()) + (CATS >> ops.Categorify(dtype="int32")) + label)


def by_hand(files: list[Path], out: Path) -> dict[str, float]:
    """What a Polars user writes: moments by one select, vocabularies by group_by, a join for each."""
    start = time.perf_counter()
    frame = pl.scan_parquet([*files])
    logged = [
        pl.col(c).fill_nan(None).fill_null(0.0).clip(0.0, None).log1p().cast(pl.Float64)
        for c in CONTS
    ]
    moments = frame.select(
        [e.mean().alias(f"{c}_mean") for c, e in zip(CONTS, logged, strict=True)]
        + [e.std().alias(f"{c}_std") for c, e in zip(CONTS, logged, strict=True)]
    )
    counts = [frame.select(c).drop_nulls().group_by(c).len() for c in CATS]
    stats, *tables = pl.collect_all([moments, *counts], engine="streaming")
    vocabularies = [
        t.sort(["len", c], descending=[True, False]).select(
            c, (pl.int_range(pl.len()) + 3).cast(pl.Int32).alias("id")
        )
        for c, t in zip(CATS, tables, strict=True)
    ]
    fitted = time.perf_counter()
    values = stats.row(0, named=True)
    scaled = [
        ((e - values[f"{c}_mean"]) / values[f"{c}_std"]).cast(pl.Float32).alias(c)
        for c, e in zip(CONTS, logged, strict=True)
    ]
    for column, vocabulary in zip(CATS, vocabularies, strict=True):
        codes = vocabulary.lazy().rename({"id": f"{column}_id"})
        frame = frame.join(codes, on=column, how="left", maintain_order="left")
    ids = [
        pl.when(pl.col(c).is_null())
        .then(1)
        .otherwise(pl.col(f"{c}_id").fill_null(2))
        .cast(pl.Int32)
        .alias(c)
        for c in CATS
    ]
    out.mkdir()
    frame.select(*scaled, *ids, pl.col("label").cast(pl.Int8)).sink_parquet(
        out / "part.parquet", compression="snappy", row_group_size=250_000, engine="streaming"
    )
    return {"fit": fitted - start, "transform": time.perf_counter() - fitted}
