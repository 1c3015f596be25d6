"""Peak memory of fit and of transform_to_parquet on Criteo-like data, whatever its size.

    python -m benchmarks.memory [--rows 4000000 16000000] [--shuffle] [--keep]

Each size runs in a process of its own. The peak is the resident set's high-water mark, which
counts the pages of files that are mapped; it is reset between fit and transform. 50 million rows
take 4 GB of disk for the raw files and 5 GB for what is made of them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks import criteo


def peak_of(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds, seconds of all cores and peak memory in GB of some work in this process."""
    Path("/proc/self/clear_refs").write_text("5")
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    seconds = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    status = Path("/proc/self/status").read_text()
    return seconds | {"gigabytes": int(status.split("VmHWM:")[1].split()[0]) / 2**20}


def run_here(options: argparse.Namespace) -> None:
    """Fit and transform in this process."""
    (rows,) = options.rows
    files = criteo.make_raw(options.folder, rows)
    out = options.folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    workflow = criteo.make_workflow(options.folder)
    result = {
        "fit": peak_of(lambda: workflow.fit([*files])),
        "transform": peak_of(
            lambda: workflow.transform_to_parquet([*files], out, shuffle=options.shuffle)
        ),
    }
    print(json.dumps(result))


def main() -> None:
    """Run each size in a process of its own and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[4_000_000, 16_000_000])
    parser.add_argument("--shuffle", action="store_true")
    parser.add_argument("--keep", action="store_true", help="the raw files, for the next time")
    parser.add_argument("--folder", type=Path, default=Path("build/benchmark_memory"))
    parser.add_argument("--only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        run_here(options)
        return
    print(f"{'rows':>12} {'':10} {'seconds':>8} {'CPU s':>8} {'rows/s':>10} {'peak GB':>8}")
    for rows in options.rows:
        files = criteo.make_raw(options.folder, rows)
        command = [sys.executable, "-m", "benchmarks.memory", "--only", "--rows", str(rows)]
        command += ["--folder", str(options.folder)] + ["--shuffle"] * options.shuffle
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr[-2000:])
        for phase, made in json.loads(done.stdout).items():
            print(
                f"{rows:12,} {phase:10} {made['seconds']:8.1f} {made['cpu']:8.1f} "
                f"{rows / made['seconds']:10,.0f} {made['gigabytes']:8.2f}",
                flush=True,
            )
        made_rows = pl.scan_parquet(options.folder / "out" / "*.parquet").select(pl.len()).collect()
        if made_rows.item() != rows:
            sys.exit(f"{made_rows.item():,} rows came out of {rows:,}.")
        shutil.rmtree(options.folder / "out")
        if not options.keep:
            for file in files:
                file.unlink()


if __name__ == "__main__":
    main()
