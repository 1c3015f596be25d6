"""The search for the nearest items on a server: a request's time by the size of the catalogue.

python -m benchmarks.nearest_items --sizes 10000 100000 1000000
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from exporter import NearestItems, ServingOptions, export_ensemble
from serving import EnsembleClient, TritonServer
from training.models.two_tower import UnitVector
from workflow import Workflow, ops

WIDTH, K, USERS, REPEATS = 64, 20, 1000, 20
RUNTIMES = ("onnx", "fused_onnx")


def make_tower() -> tuple[Workflow, Any]:
    """A workflow of one id, and a tower of random vectors."""
    workflow = Workflow(["user"] >> ops.Categorify()).fit({"user": range(USERS)})
    user = keras.Input((1,), name="user", dtype="int64")
    vector = keras.layers.Flatten()(keras.layers.Embedding(USERS + 3, WIDTH)(user))
    return workflow, keras.Model({"user": user}, UnitVector(name="query_vector")(vector))


def write_items(path: Path, count: int) -> Path:
    """Random vectors of numbered items."""
    vectors = np.random.default_rng(0).normal(size=count * WIDTH).astype("float32")
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors), WIDTH)
    pq.write_table(pa.table({"id": np.arange(count), "vector": lists}), path)
    return path


def milliseconds(client: EnsembleClient, rows: int) -> float:
    """The median time of a request, from the client."""
    request = {"user": list(range(rows))}
    client.predict(request)
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        client.predict(request)
        taken.append(time.perf_counter() - start)
    return 1000 * float(np.median(taken))


def main(arguments: list[str] | None = None) -> None:
    """Print a table of catalogues and runtimes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nearest_items", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    sizes = parser.parse_args(arguments).sizes
    workflow, tower = make_tower()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for count in sizes:
            items = NearestItems(tower, write_items(folder / "items.parquet", count), K)
            for runtime in RUNTIMES:
                options = ServingOptions(runtime=runtime, max_rows=64)
                export_ensemble(
                    items, workflow, f"{runtime}_{count}", folder / "models", serving=options
                )
        print(f"{'items':>10}  {'runtime':10}  {'ms, 1 row':>10}  {'ms, 64 rows':>11}")
        with TritonServer(folder / "models") as server:
            for count in sizes:
                for runtime in RUNTIMES:
                    with EnsembleClient(server.grpc_url, f"{runtime}_{count}") as client:
                        one, many = (milliseconds(client, rows) for rows in (1, 64))
                    print(f"{count:>10,}  {runtime:10}  {one:>10.2f}  {many:>11.1f}")


if __name__ == "__main__":
    main(sys.argv[1:])
