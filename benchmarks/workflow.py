"""Rows per second of fit and transform, against a Polars script written by hand for the same work.

    python -m benchmarks.workflow [--rows 4000000] [--engine cpu|gpu] [--folder build/benchmark_workflow]

The work is Criteo's: 13 counts filled, clipped, logged and normalised, 26 columns of ids made
categories, the label cast; from parquet to parquet. Each contestant runs in a process of its own,
so that peak memory is its own, and they take turns.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.criteo import CATS, CONTS, make_raw
from workflow import Workflow, ops


def make_workflow() -> Workflow:
    """The work as operators."""
    clipped = CONTS >> ops.FillMissing(0.0) >> ops.LambdaOp(lambda c: c.clip(0.0, None).log1p())
    label = ["label"] >> ops.LambdaOp(lambda label: label.cast("int8"))
    return Workflow((clipped >> ops.Normalize()) + (CATS >> ops.Categorify(dtype="int32")) + label)


def ours(files: list[Path], out: Path) -> dict[str, float]:
    """Fit, then transform to parquet."""
    start = time.perf_counter()
    workflow = make_workflow().fit([*files])
    fitted = time.perf_counter()
    workflow.transform_to_parquet([*files], out)
    return {"fit": fitted - start, "transform": time.perf_counter() - fitted}


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


def on_gpu(files: list[Path], out: Path) -> dict[str, float]:
    """Fit and transform through cuDF, a file at a time, with no silent fallback."""
    start = time.perf_counter()
    workflow = make_workflow().fit([*files], engine="gpu")
    fitted = time.perf_counter()
    out.mkdir()
    for file in files:
        frame = workflow.transform(file).collect(engine=pl.GPUEngine(raise_on_fail=True))
        frame.write_parquet(out / file.name, compression="snappy")
    return {"fit": fitted - start, "transform": time.perf_counter() - fitted}


CONTESTANTS = {"ours": ours, "by_hand": by_hand, "on_gpu": on_gpu}


def run_one(name: str, files: list[Path], out: Path) -> None:
    """One contestant in this process; prints its seconds, its peak memory and a checksum."""
    shutil.rmtree(out, ignore_errors=True)
    result: dict[str, Any] = CONTESTANTS[name](files, out)
    result["gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    made = pl.scan_parquet(out / "*.parquet")
    sums = made.select(pl.len().alias("rows"), pl.col(CATS).cast(pl.Int64).sum()).collect(
        engine="streaming"
    )
    result["checksum"] = [int(value) for value in sums.row(0)]
    print(json.dumps(result))


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One contestant in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.workflow",
        "--only",
        name,
        "--rows",
        str(options.rows),
    ]
    command += ["--folder", str(options.folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{name} failed:\n{result.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer


def main() -> None:
    """Run the contestants in turns and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--folder", type=Path, default=Path("build/benchmark_workflow"))
    parser.add_argument("--only", choices=[*CONTESTANTS])
    options = parser.parse_args()
    files = make_raw(options.folder, options.rows)
    if options.only:
        run_one(options.only, files, options.folder / options.only)
        return
    names = ["ours", "by_hand"] + (["on_gpu"] if options.engine == "gpu" else [])
    rounds = [{name: measure(name, options) for name in names} for _ in range(options.rounds)]
    checksums = {json.dumps(turn[name]["checksum"]) for turn in rounds for name in names}
    print(
        f"{options.rows:,} rows, {options.rounds} rounds, medians; checksums equal: {len(checksums) == 1}"
    )
    print(
        f"{'':10} {'fit s':>8} {'transform s':>12} {'rows/s':>12} {'to by_hand':>11} {'peak GB':>8}"
    )
    totals = {n: [turn[n]["fit"] + turn[n]["transform"] for turn in rounds] for n in names}
    for name in names:
        median = {
            k: statistics.median(turn[name][k] for turn in rounds)
            for k in ("fit", "transform", "gigabytes")
        }
        ratio = statistics.median(
            b / a for a, b in zip(totals[name], totals["by_hand"], strict=True)
        )
        speed = options.rows / statistics.median(totals[name])
        print(
            f"{name:10} {median['fit']:8.2f} {median['transform']:12.2f} {speed:12,.0f} "
            f"{ratio:10.2f}x {median['gigabytes']:8.2f}"
        )


if __name__ == "__main__":
    main()
