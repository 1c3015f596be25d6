"""Rows per second of fit and transform, against a Polars script written by hand and NVTabular.

    python -m benchmarks.workflow [--data criteo movielens] [--rows 4000000] [--rounds 3] [--peers]

Criteo's work: 13 counts filled, clipped, logged and normalised, 26 columns of ids made categories,
the label cast. MovieLens': genres joined to the ratings as lists, users, movies and genres made
categories, the rating compared. Both from parquet to parquet. Each contestant runs in a process
of its own, so that peak memory is its own, and they take turns. On a machine that others use too,
the seconds of all cores are the steadier measure. `--peers` needs `make bench-peers`.
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
from types import ModuleType
from typing import Any

import polars as pl

from benchmarks import criteo, movielens

DATA: dict[str, ModuleType] = {"criteo": criteo, "movielens": movielens}
NVTABULAR = Path(".venv-nvtabular/bin/python")
Options = argparse.Namespace


def ours(data: ModuleType, files: list[Path], out: Path) -> dict[str, float]:
    """Fit, then transform to parquet."""
    start = time.perf_counter()
    workflow = data.make_workflow(files[0].parent).fit([*files])
    fitted = time.perf_counter()
    workflow.transform_to_parquet([*files], out)
    return {"fit": fitted - start, "transform": time.perf_counter() - fitted}


def by_hand(data: ModuleType, files: list[Path], out: Path) -> dict[str, float]:
    """The Polars script."""
    return dict(data.by_hand(files, out))


CONTESTANTS = {"ours": ours, "by_hand": by_hand}


def run_here(name: str, options: Options) -> None:
    """One contestant in this process; prints its seconds and its peak memory."""
    (data,) = options.data
    files, out = raw_files(data, options), out_folder(name, options)
    start = time.process_time()
    result = CONTESTANTS[name](DATA[data], files, out) | {"cpu": time.process_time() - start}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps(result | {"gigabytes": peak}))


def raw_files(data: str, options: Options) -> list[Path]:
    """The raw files, made if they are not there."""
    files: list[Path] = DATA[data].make_raw(options.folder / data, options.rows)
    return files


def out_folder(name: str, options: Options) -> Path:
    """Where a contestant writes to."""
    folder: Path = options.folder / f"out_{name}"
    return folder


def measure(name: str, data: str, options: Options) -> dict[str, Any]:
    """One contestant in a process of its own, and the checksum of what it wrote."""
    out = out_folder(name, options)
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "benchmarks.workflow", "--only", name, "--data", data]
    command += ["--rows", str(options.rows), "--folder", str(options.folder)]
    if name == "nvtabular":
        script = Path(__file__).parent / "peers" / "nvtabular_workflow.py"
        files = map(str, raw_files(data, options))
        command = [str(NVTABULAR), str(script), data, str(out), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    result["checksum"] = checksum(out, DATA[data].CATS)
    shutil.rmtree(out)
    return result


def checksum(folder: Path, columns: list[str]) -> list[int]:
    """The rows and the sum of each column's ids: the same however values of equal frequency are ranked."""
    made = pl.scan_parquet(folder / "*.parquet")
    is_list = {n: isinstance(t, pl.List) for n, t in made.collect_schema().items()}
    sums = [
        (pl.col(c).explode(empty_as_null=False) if is_list[c] else pl.col(c)).cast(pl.Int64).sum()
        for c in columns
    ]
    row = made.select(pl.len().alias("rows"), *sums).collect(engine="streaming").row(0)
    return [int(value) for value in row]


def compare(data: str, names: list[str], options: Options) -> None:
    """Run the contestants in turns and print a table."""
    raw_files(data, options)
    rounds = [{name: measure(name, data, options) for name in names} for _ in range(options.rounds)]
    checksums = {json.dumps(turn[name]["checksum"]) for turn in rounds for name in names}
    print(
        f"{data}, {options.rows:,} rows, {options.rounds} rounds, medians; "
        f"checksums equal: {len(checksums) == 1}"
    )
    print(
        f"{'':10} {'fit s':>8} {'transform s':>12} {'rows/s':>12} {'ours to it, lowest..highest':>27} "
        f"{'CPU s':>8} {'ours to it':>27} {'peak GB':>8}"
    )
    totals = {n: [turn[n]["fit"] + turn[n]["transform"] for turn in rounds] for n in names}
    cpu = {n: [turn[n]["cpu"] for turn in rounds] for n in names}
    for name in names:
        keys = ("fit", "transform", "cpu", "gigabytes")
        median = {k: statistics.median(turn[name][k] for turn in rounds) for k in keys}
        speed = options.rows / statistics.median(totals[name])
        print(
            f"{name:10} {median['fit']:8.2f} {median['transform']:12.2f} {speed:12,.0f} "
            f"{_ratio(totals, name):>27} {median['cpu']:8.1f} {_ratio(cpu, name):>27} "
            f"{median['gigabytes']:8.2f}",
            flush=True,
        )


def _ratio(values: dict[str, list[float]], name: str) -> str:
    """A contestant's value to ours in the same round: the median, and the range over the rounds."""
    ratios = [other / own for own, other in zip(values["ours"], values[name], strict=True)]
    return f"{statistics.median(ratios):.2f}x {min(ratios):.2f}..{max(ratios):.2f}"


def main() -> None:
    """Compare the contestants on each kind of data."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=[*DATA], default=[*DATA])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", action="store_true", help="NVTabular 23.08 too")
    parser.add_argument("--folder", type=Path, default=Path("build/benchmark_workflow"))
    parser.add_argument("--only", choices=[*CONTESTANTS])
    options = parser.parse_args()
    if options.only:
        run_here(options.only, options)
        return
    if options.peers and not NVTABULAR.exists():
        sys.exit(f"{NVTABULAR} is not there. Make it with `make bench-peers`.")
    for data in options.data:
        compare(data, [*CONTESTANTS] + ["nvtabular"] * options.peers, options)


if __name__ == "__main__":
    main()
