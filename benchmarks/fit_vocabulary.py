"""Learning a large vocabulary: time and peak memory of `fit`, by how many parts it counts in.

Each measurement is a process of its own, so that its memory is its alone:

    python -m benchmarks.fit_vocabulary
    python -m benchmarks.fit_vocabulary --rows 5000000 --keys 2000000 --parts 1 4
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.load_vocabulary import cost
from workflow import Workflow, ops


def main() -> None:
    """Print a line for each number of parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--keys", type=int, default=20_000_000)
    parser.add_argument("--parts", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        workflow = Workflow(["user"] >> ops.Categorify(split_out=arguments.parts[0]))
        print(cost(lambda: workflow.fit(arguments.measure))[0])
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "users.parquet"
        write(path, arguments.rows, arguments.keys)
        print(f"{arguments.rows:,} rows of {arguments.keys:,} keys, int64; peak over the start.")
        for parts in arguments.parts:
            print(f"split_out={parts:>2}: {measured(path, parts)}", flush=True)


def write(path: Path, rows: int, keys: int) -> None:
    """Every key once, and the rest of the rows mostly of few keys."""
    random = np.random.default_rng(0)
    picks = np.concatenate(
        [np.arange(keys), (keys * random.random(rows - keys) ** 4).astype(np.int64)]
    )
    random.shuffle(picks)
    frame = pl.DataFrame({"user": picks * 7_919 * 104_729})
    frame.write_parquet(path, row_group_size=1_000_000, compression="snappy")


def measured(path: Path, parts: int) -> str:
    """What a fresh process takes."""
    command = [sys.executable, "-m", "benchmarks.fit_vocabulary", "--measure", str(path)]
    command += ["--parts", str(parts)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return answer.stdout.strip()


if __name__ == "__main__":
    main()
