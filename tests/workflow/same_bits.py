"""Digests of fits to one data set, for comparison between processes."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from workflow import Workflow, ops
from workflow.fit import fit_graph, learn_operators

ROWS = 20_000
ROWS_OF_A_PART = 3_000
NUMBERS = ["price", "small", "count", "scores", "zero"]


def write_data(folder: Path) -> list[Path]:
    """Files of several row groups, with floats whose sum depends on the order in which they are added."""
    random = np.random.default_rng(7)
    prices = 10.0 ** random.uniform(-8, 12, ROWS) * random.choice([-1, 1], ROWS)
    ends = np.cumsum(random.integers(0, 5, ROWS))
    frame = pl.DataFrame(
        {
            "user": random.zipf(1.3, ROWS) % 3_000,
            "city": [None if n % 13 == 0 else f"é{n * 7 % 40}" for n in range(ROWS)],
            "price": prices,
            "small": random.normal(0, 1, ROWS).astype(np.float32),
            "count": random.integers(-(2**60), 2**60, ROWS),
            "scores": np.split(random.normal(1e6, 1, int(ends[-1])), ends[:-1]),
            "zero": np.where(np.arange(ROWS) % 2, 0.0, -0.0),
        },
        schema_overrides={"scores": pl.List(pl.Float64)},
    ).with_columns(
        price=pl.when(pl.col("user") % 17 != 0).then("price"),
        small=pl.when(pl.col("user") % 19 == 0).then(float("nan")).otherwise("small"),
    )
    files = [folder / f"{number}.parquet" for number in range(5)]
    for number, file in enumerate(files):
        frame[number * ROWS // 5 : (number + 1) * ROWS // 5].write_parquet(
            file, row_group_size=1_300
        )
    return files


def by_row() -> Workflow:
    """Operators that learn floats from each row."""
    stats = ["count", "sum", "mean", "std", "var", "min", "max"]
    keys = [["user", "city"], "user", "city"]
    described = keys >> ops.JoinGroupby(["price", "small", "zero"], stats=stats)
    encoded = keys >> ops.TargetEncoding(["price", "small"], out_dtype="float64")
    seen = [*NUMBERS, "city"] >> ops.DataStats() >> ops.Rename(postfix="_seen")
    return Workflow(
        (NUMBERS >> ops.Normalize("float64") >> ops.Rename(postfix="_normal"))
        + (NUMBERS >> ops.NormalizeMinMax() >> ops.Rename(postfix="_scaled"))
        + (NUMBERS >> ops.FillMedian() >> ops.Rename(postfix="_filled"))
        + described
        + encoded
        + seen
    )


def filtered() -> Workflow:
    """Operators that learn from some of the rows."""
    kept = [*NUMBERS, "user", "city"] >> ops.Filter(lambda columns: columns["user"] > 1)
    means = kept["user", "city"] >> ops.TargetEncoding(kept["price"], out_dtype="float64")
    return Workflow((kept[NUMBERS] >> ops.Normalize("float64")) + means)


def lagged() -> Workflow:
    """An operator that learns from columns over all rows."""
    return Workflow(NUMBERS[:3] >> ops.DifferenceLag("city") >> ops.Normalize("float64"))


def fitted(workflow: Workflow, data: Any, **options: Any) -> str:
    """The digest of the files of a saved fit."""
    with tempfile.TemporaryDirectory() as folder:
        workflow.fit(data, **options).save(folder)
        return _digest(Path(folder).iterdir())


def out_of_fold(data: Any) -> str:
    """The digest of training data that is encoded out of fold."""
    with tempfile.TemporaryDirectory() as folder:
        return _digest(map(Path, by_row().fit_transform_to_parquet(data, folder)))


def _digest(files: Any) -> str:
    contents = (file.read_bytes() for file in sorted(files, key=lambda file: file.suffix))
    return hashlib.sha256(b"".join(contents)).hexdigest()


def every_way(files: list[Path]) -> dict[str, str]:
    """The digests of all fits, by what is fitted, in a process that does nothing else."""
    fit_graph.ROWS_OF_A_PASS = learn_operators.ROWS_OF_A_PASS = ROWS_OF_A_PART
    return {
        "files": fitted(by_row(), files),
        "a query": fitted(by_row(), pl.scan_parquet(files)),
        "a frame": fitted(by_row(), pl.read_parquet(files)),
        "some rows": fitted(filtered(), files),
        "columns over all rows": fitted(lagged(), files),
        "out of fold": out_of_fold(files),
    }
