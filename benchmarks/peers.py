"""NVTabular and Merlin's dataloader 23.08, in the environment `.venv-nvtabular` of `make bench-peers`.

    .venv-nvtabular/bin/python -P benchmarks/peers.py criteo OUT FILE...
    echo 65536 shuffled | .venv-nvtabular/bin/python -P benchmarks/peers.py loader FILE...

`criteo` and `movielens` do what `benchmarks.workflow` does, and print seconds and peak memory as JSON.
`loader` reads an epoch of Criteo-like parquet for each line of its input, and answers with the number of
rows; in between it waits for input and uses no processor. Every column but "label" is a feature. Dask's
synchronous scheduler is the fastest of its modes on two cores.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import dask  # noqa: E402 - its and Merlin's warnings are not the subject
from merlin.io import Dataset  # noqa: E402

CONTS = [f"I{number}" for number in range(1, 14)]
CATS = [f"C{number}" for number in range(1, 27)]


def criteo(_: Path, scratch: str) -> Any:
    """13 counts filled, clipped, logged and normalised; 26 columns of ids."""
    from nvtabular import ops  # noqa: PLC0415 - not for the loader

    counts = (
        CONTS >> ops.FillMissing(0.0) >> ops.Clip(min_value=0.0) >> ops.LogOp() >> ops.Normalize()
    )
    label = ["label"] >> ops.LambdaOp(lambda column: column.astype("int8"))
    return counts + (CATS >> ops.Categorify(out_path=scratch)) + label


def movielens(folder: Path, scratch: str) -> Any:
    """Genres joined, ids of users, movies and genres, the rating as a label."""
    import pandas as pd  # noqa: PLC0415
    from nvtabular import ops  # noqa: PLC0415

    movies = ["movieId"] >> ops.JoinExternal(
        pd.read_parquet(folder / "movies.parquet"), on="movieId", columns_ext=["movieId", "genres"]
    )
    label = ["rating"] >> ops.LambdaOp(lambda column: (column > 3).astype("int8"))
    return ((["userId"] + movies) >> ops.Categorify(out_path=scratch)) + label


def fit_and_transform(name: str, out: str, files: list[str]) -> dict[str, float]:
    """Fit, then transform to parquet."""
    import nvtabular  # noqa: PLC0415 - not for the loader

    def data() -> Any:
        return Dataset(files, engine="parquet", part_size="128MB", cpu=True)

    with tempfile.TemporaryDirectory() as scratch:
        start, cpu = time.perf_counter(), time.process_time()
        make = {"criteo": criteo, "movielens": movielens}[name]
        workflow = nvtabular.Workflow(make(Path(files[0]).parent, scratch))
        workflow.fit(data())
        fitted = time.perf_counter()
        workflow.transform(data()).to_parquet(output_path=out)
        done = time.perf_counter()
        cpu = time.process_time() - cpu
    # Not getrusage's ru_maxrss, which counts what the parent had before this program began.
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 2**20
    return {"fit": fitted - start, "transform": done - fitted, "processor": cpu, "gb": peak}


@functools.cache
def make_loader(batch_size: int, shuffle: bool) -> Any:
    """Merlin's loader, made once for each setting."""
    from merlin.dataloader.tensorflow import Loader  # noqa: PLC0415 - TensorFlow
    from merlin.schema import Tags  # noqa: PLC0415

    data = Dataset(sys.argv[2:], engine="parquet", part_size="128MB", cpu=True)
    data.schema["label"] = data.schema["label"].with_tags([Tags.TARGET])
    return Loader(data, batch_size=batch_size, shuffle=shuffle, device="cpu")


def main() -> None:
    """Do what is named first."""
    dask.config.set(scheduler="synchronous")
    if sys.argv[1] != "loader":
        print(json.dumps(fit_and_transform(sys.argv[1], sys.argv[2], sys.argv[3:])))
        return
    for line in sys.stdin:
        size, order = line.split()
        batches = make_loader(int(size), order == "shuffled")
        print(sum(int(label.shape[0]) for _, label in batches), flush=True)


if __name__ == "__main__":
    main()
