"""Fits of one data set in this process, with a line for the digest of each file: a script and a module."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from workflow import Workflow, ops

ROWS = 60_000
# Far from the sizes of parts: these are made smaller, so that there are several.
SOME = 7_000


def write_data(folder: Path) -> None:
    """Files with several row groups, of floats whose sum depends on the order in which they are added."""
    random = np.random.default_rng(7)
    sizes = 10.0 ** random.uniform(-8, 12, ROWS) * random.choice([-1, 1], ROWS)
    ends = np.cumsum(random.integers(0, 5, ROWS))
    frame = pl.DataFrame(
        {
            "user": random.zipf(1.3, ROWS) % 9_000,
            "city": [None if n % 13 == 0 else f"é{n * 7 % 40}" for n in range(ROWS)],
            "price": sizes,
            "small": random.normal(0, 1, ROWS).astype(np.float32),
            "count": random.integers(-(2**60), 2**60, ROWS),
            "scores": np.split(random.normal(1e6, 1, int(ends[-1])), ends[:-1]),
        },
        schema_overrides={"scores": pl.List(pl.Float64)},
    ).with_columns(
        price=pl.when(pl.col("user") % 17 == 0).then(None).otherwise("price"),
        small=pl.when(pl.col("user") % 19 == 0).then(float("nan")).otherwise("small"),
        zero=pl.Series(np.where(np.arange(ROWS) % 2, 0.0, -0.0)),
    )
    for number, start in enumerate(range(0, ROWS, 23_000)):
        frame[start : start + 23_000].write_parquet(
            folder / f"{number}.parquet", row_group_size=3_500
        )


def graphs() -> dict[str, Workflow]:
    """Workflows whose operators add floats."""
    numbers = ["price", "small", "count", "scores", "zero"]
    stats = ["count", "sum", "mean", "std", "var", "min", "max"]
    keys = [["user", "city"], "user", "city"]
    floats = ["price", "small", "zero"]
    by_row = (
        (numbers >> ops.Normalize(out_dtype="float64") >> ops.Rename(postfix="_normal"))
        + (numbers >> ops.FillMedian() >> ops.Rename(postfix="_filled"))
        + (numbers >> ops.NormalizeMinMax() >> ops.Rename(postfix="_ends"))
        + (keys >> ops.JoinGroupby(floats, stats=stats))
        + (keys >> ops.TargetEncoding(["price", "small"], out_dtype="float64"))
        + ([*numbers, "city"] >> ops.DataStats() >> ops.Rename(postfix="_seen"))
    )
    kept = [*numbers, "user", "city"] >> ops.Filter(lambda columns: columns["user"] > 1)
    filtered = (kept[numbers] >> ops.Normalize("float64")) + (
        kept["user", "city"] >> ops.TargetEncoding(kept["price"], out_dtype="float64")
    )
    lags = (numbers[:3] >> ops.DifferenceLag("city")) >> ops.Normalize("float64")
    return {name: Workflow(node) for name, node in locals().items() if name in _GRAPHS}


_GRAPHS = ("by_row", "filtered", "lags")


def digests(data: object, make: str, **options: object) -> list[str]:
    """The digests of a saved fit to data, and of its outputs for a part of the data."""
    with tempfile.TemporaryDirectory() as folder:
        workflow = graphs()[make].fit(data, **options)
        workflow.save(folder)
        saved = sorted(Path(folder).iterdir(), key=lambda path: path.suffix)
        return [hashlib.sha256(path.read_bytes()).hexdigest() for path in saved]


def digest_out_of_fold(data: object) -> str:
    """The digest of the files of training data that `fit_transform_to_parquet` writes."""
    with tempfile.TemporaryDirectory() as folder:
        files = graphs()["by_row"].fit_transform_to_parquet(data, folder)
        return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()


def all_digests(folder: str) -> list[str]:
    """A line for each way to fit."""
    files = sorted(Path(folder).glob("*.parquet"))
    lines = [f"{name} {digests(files, name)}" for name in _GRAPHS]
    lines += [f"query {digests(pl.scan_parquet(files), 'by_row')}"]
    lines += [f"frame {digests(pl.read_parquet(files), 'by_row')}"]
    return [*lines, f"out of fold {digest_out_of_fold(files)}"]


if __name__ == "__main__":
    from workflow.fit import fit_graph, learn_operators

    fit_graph.ROWS_OF_A_PASS = SOME
    if hasattr(learn_operators, "ROWS_OF_A_PASS"):
        learn_operators.ROWS_OF_A_PASS = SOME
    print(*all_digests(sys.argv[1]), sep="\n")
