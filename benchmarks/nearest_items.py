"""The search for the nearest items on a server: a request's time and the recall, by the size of the catalogue.

    python -m benchmarks.nearest_items [--sizes 10000 100000 1000000]

Vectors of items and users have the width 64, and lie near a space of 16 dimensions, as those of trained
towers do: a search in an index would find little among vectors without any structure.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import options, show, timed
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
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def make_tower() -> tuple[Workflow, Any]:
    """A workflow of one id, and a tower that looks the user's vector up."""
    workflow = Workflow(["user"] >> ops.Categorify()).fit({"user": range(USERS)})
    user = keras.Input((1,), name="user", dtype="int64")
    table = keras.layers.Embedding(USERS + 3, WIDTH)
    tower = keras.Model({"user": user}, keras.layers.Flatten(name="query_vector")(table(user)))
    table.set_weights([vectors(USERS + 3, 1)])
    return workflow, tower


def write_items(path: Path, count: int) -> None:
    """Vectors of numbered items."""
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors(count, 2).ravel()), WIDTH)
    pq.write_table(pa.table({"id": np.arange(count), "vector": lists}), path)


def milliseconds(client: EnsembleClient, rows: int) -> float:
    """The median time of a request, from the client."""
    request = {"user": list(range(rows))}
    times = [timed(partial(client.predict, request), 1).seconds for _ in range(1 + REPEATS)]
    return 1000 * statistics.median(times[1:])


def export(search: str, name: str, folder: Path) -> float:
    """Write an ensemble whose search is exact, by a runtime, or by an index; the seconds."""
    workflow, tower = make_tower()
    index = () if search in EXACT else search.split()
    network = NearestItems(tower, folder / "items.parquet", K, *index)
    runtime = search if search in EXACT else "onnx"
    serving = ServingOptions(runtime=runtime, max_rows=64, warm_up=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The index .* finds few")
        write = partial(export_ensemble, network, workflow, name, folder / "models")
        return timed(partial(write, serving=serving), 1).seconds


def rows(folder: Path, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """A line for each catalogue and search."""
    searches = (*EXACT, *INDEXES)
    for count in sizes:
        write_items(folder / "items.parquet", count)
        built = [export(s, f"search{n}", folder) for n, s in enumerate(searches)]
        with TritonServer(folder / "models") as server:
            exact = None
            for number, (search, seconds) in enumerate(zip(searches, built, strict=True)):
                with EnsembleClient(server.grpc_url, f"search{number}") as client:
                    one, many = (milliseconds(client, rows) for rows in (1, 64))
                    lists = client.predict({"user": list(range(USERS))})["item"]
                exact = lists if exact is None else exact
                shared = [np.isin(*pair) for pair in zip(exact, lists, strict=True)]
                yield {
                    "items": count,
                    "search": search,
                    "ms, 1 row": one,
                    "ms, 64 rows": many,
                    f"recall@{K}": float(np.mean(shared)),
                    "export, s": seconds,
                }
        shutil.rmtree(folder / "models")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of catalogues and searches."""
    parsed = options(__doc__, sizes=(10_000, 100_000, 1_000_000)).parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        show("Searches for the nearest items", rows(Path(folder), parsed.sizes))


if __name__ == "__main__":
    main()
