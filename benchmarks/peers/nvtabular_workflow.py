"""NVTabular 23.08 doing what `benchmarks.workflow` does, in the environment `.venv-nvtabular`.

    .venv-nvtabular/bin/python benchmarks/peers/nvtabular_workflow.py criteo OUT FILE...

Prints its seconds and its peak memory as JSON. Dask's synchronous scheduler is the fastest of its
modes on two cores.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")

import dask  # noqa: E402 - its and Merlin's warnings are not the subject
import nvtabular  # noqa: E402
import pandas as pd  # noqa: E402
from merlin.io import Dataset  # noqa: E402
from nvtabular import ops  # noqa: E402

CONTS = [f"I{number}" for number in range(1, 14)]
CATS = [f"C{number}" for number in range(1, 27)]


def criteo(_: Path, scratch: str) -> Any:
    """13 counts filled, clipped, logged and normalised; 26 columns of ids."""
    counts = (
        CONTS >> ops.FillMissing(0.0) >> ops.Clip(min_value=0.0) >> ops.LogOp() >> ops.Normalize()
    )
    label = ["label"] >> ops.LambdaOp(lambda column: column.astype("int8"))
    return counts + (CATS >> ops.Categorify(out_path=scratch)) + label


def movielens(folder: Path, scratch: str) -> Any:
    """Genres joined, ids of users, movies and genres, the rating as a label."""
    movies = ["movieId"] >> ops.JoinExternal(
        pd.read_parquet(folder / "movies.parquet"), on="movieId", columns_ext=["movieId", "genres"]
    )
    label = ["rating"] >> ops.LambdaOp(lambda column: (column > 3).astype("int8"))
    return ((["userId"] + movies) >> ops.Categorify(out_path=scratch)) + label


def main() -> None:
    """Fit, then transform to parquet."""
    name, out, *files = sys.argv[1:]
    dask.config.set(scheduler="synchronous")
    with tempfile.TemporaryDirectory() as scratch:
        start, cpu = time.perf_counter(), time.process_time()
        make = {"criteo": criteo, "movielens": movielens}[name]
        workflow = nvtabular.Workflow(make(Path(files[0]).parent, scratch))
        workflow.fit(Dataset(files, engine="parquet", part_size="128MB", cpu=True))
        fitted = time.perf_counter()
        data = Dataset(files, engine="parquet", part_size="128MB", cpu=True)
        workflow.transform(data).to_parquet(output_path=out)
        done = time.perf_counter()
        cpu = time.process_time() - cpu
    # Not getrusage's ru_maxrss, which counts what the parent had before this program began.
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 2**20
    result = {
        "fit": fitted - start,
        "transform": done - fitted,
        "processor": cpu,
        "gb": peak,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
