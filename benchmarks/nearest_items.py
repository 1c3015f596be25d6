"""The search for the nearest items on a server: a request's time and the recall, by the size of the catalogue.

python -m benchmarks.nearest_items --sizes 10000 100000 1000000

Vectors of items and users have the width 64, and lie near a space of 16 dimensions, as those of trained
towers do: a search in an index would find little among vectors without any structure.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from exporter import NearestItems, ServingOptions, export_ensemble
from serving import EnsembleClient, TritonServer
from workflow import Workflow, ops
from workflow.schema.column import Array

WIDTH, DIMENSIONS, K, USERS, REPEATS = 64, 16, 20, 1000, 20
EXACT = ("onnx", "fused_onnx")
INDEXES = ("HNSW32 efSearch=64", "IVF1024,Flat nprobe=32")


def vectors(count: int, seed: int) -> Array:
    """Vectors of length 1, float32 (count, WIDTH), all near one space of fewer dimensions."""
    space = np.random.default_rng(0).normal(size=(DIMENSIONS, WIDTH))
    random = np.random.default_rng(seed)
    made = random.normal(size=(count, DIMENSIONS)) @ space
    made += 0.4 * random.normal(size=made.shape)
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    return made.astype(np.float32)


def make_tower() -> tuple[Workflow, Any]:
    """A workflow of one id, and a tower that looks the user's vector up."""
    workflow = Workflow(["user"] >> ops.Categorify()).fit({"user": range(USERS)})
    user = keras.Input((1,), name="user", dtype="int64")
    table = keras.layers.Embedding(USERS + 3, WIDTH)
    tower = keras.Model({"user": user}, keras.layers.Flatten(name="query_vector")(table(user)))
    table.set_weights([vectors(USERS + 3, 1)])
    return workflow, tower


def write_items(path: Path, count: int) -> Path:
    """Vectors of numbered items."""
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors(count, 2).ravel()), WIDTH)
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


def share_of(lists: Array, exact: Array) -> float:
    """The share of the exact lists' items that other lists have."""
    return float(np.mean([np.isin(*pair) for pair in zip(exact, lists, strict=True)]))


def main(arguments: list[str] | None = None) -> None:
    """Print a table of catalogues and searches."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nearest_items", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument(
        "--indexes",
        nargs="*",
        default=INDEXES,
        help='as "HNSW32 efSearch=64"; none leaves them out',
    )
    options = parser.parse_args(arguments)
    searches = [*EXACT, *options.indexes]
    workflow, tower = make_tower()
    built: dict[tuple[int, str], float] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for count in options.sizes:
            items = write_items(folder / "items.parquet", count)
            for number, search in enumerate(searches):
                index, _, parameters = search.partition(" ")
                network = NearestItems(tower, items, K)
                if search not in EXACT:
                    network = NearestItems(tower, items, K, index, parameters or None)
                serving = ServingOptions(
                    runtime=search if search in EXACT else "onnx", max_rows=64, warm_up=False
                )
                start = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "The index .* finds few")
                    export_ensemble(
                        network, workflow, f"s{number}_{count}", folder / "models", serving=serving
                    )
                built[count, search] = time.perf_counter() - start
        columns = ("ms, 1 row", "ms, 64 rows", f"recall@{K}", "export, s")
        print(f"{'items':>10}  {'search':24}  " + "  ".join(f"{c:>11}" for c in columns))
        with TritonServer(folder / "models") as server:
            for count in options.sizes:
                exact = None
                for number, search in enumerate(searches):
                    with EnsembleClient(server.grpc_url, f"s{number}_{count}") as client:
                        one, many = (milliseconds(client, rows) for rows in (1, 64))
                        lists = client.predict({"user": list(range(USERS))})["item"]
                    exact = lists if exact is None else exact
                    print(
                        f"{count:>10,}  {search:24}  {one:>11.2f}  {many:>11.1f}  "
                        f"{share_of(lists, exact):>11.3f}  {built[count, search]:>11.1f}"
                    )


if __name__ == "__main__":
    main(sys.argv[1:])
