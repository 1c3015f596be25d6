"""Where the GPU's time goes in fit and transform of Criteo-like data: read, compute, copy, write.

    python -m benchmarks.gpu_workflow_stages [--rows 16000000] [--seconds 60]

The best of three runs of each stage, on the rows of one query. A stage before "write" ends in a
result of a few bytes, so that it holds those before it and no copy to the host. No stage is begun
when the seconds are over.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks import criteo
from workflow.engine.engine import collect_on_gpu, rows_on_gpu
from workflow.expressions.cudf.exceptions import VERBS_ON_GPU
from workflow.expressions.fold_tables import fold_tables
from workflow.expressions.polars.stages import compile_stages, run_stages
from workflow.transform.parquet_sink import ROW_GROUP_ROWS, ROWS_ON_GPU

TIMES = 3
ROWS_PER_FILE = 1_000_000


def main() -> None:
    """Print a line for each stage."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=16_000_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--folder", type=Path, default=Path("build/gpu_workflow"))
    options = parser.parse_args()
    files = criteo.make_raw(options.folder, options.rows)
    end = time.perf_counter() + options.seconds
    workflow = criteo.make_workflow(options.folder)
    show("fit", options.rows, lambda: workflow.fit([*files], engine="gpu"), end)
    stages = compile_stages(fold_tables(workflow.program), VERBS_ON_GPU)
    rows = min(options.rows, ROWS_ON_GPU)
    part = pl.scan_parquet([*files]).slice(0, rows)
    few, query = part.select(pl.all().max()), run_stages(part, stages)
    show("read", rows, lambda: collect_on_gpu(few), end)
    show("read, compute", rows, lambda: collect_on_gpu(query.select(pl.all().max())), end)
    show("read, compute, copy to the host", rows, lambda: collect_on_gpu(query), end)
    out = options.folder / "stages"
    out.mkdir(exist_ok=True)
    paths = [out / f"{number}.parquet" for number in range(max(1, rows // ROWS_PER_FILE))]
    with rows_on_gpu() as make:
        made = make(query)
        for compression in ("snappy", "lz4", "uncompressed"):
            show(
                f"write, {compression}",
                rows,
                partial(made.write_parquet, paths, ROWS_PER_FILE, compression, ROW_GROUP_ROWS),
                end,
            )


def show(label: str, rows: int, work: Callable[[], Any], end: float) -> None:
    """Run a stage and print its line."""
    taken = []
    for _ in range(TIMES):
        if time.perf_counter() > end:
            break
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    if taken:
        best = min(taken)
        print(f"{label:34} {rows:11,} {best:7.3f} s {rows / best / 1e6:7.1f} M rows/s", flush=True)


if __name__ == "__main__":
    main()
