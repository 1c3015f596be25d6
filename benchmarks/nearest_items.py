"""The search for the nearest items on a server: a request's time and the recall, by the size of the catalogue.

    python -m benchmarks.nearest_items [--sizes 10000 100000 1000000]

Vectors of items and users have the width 64, and lie near a space of 16 dimensions, as those of trained
towers do: a search in an index would find little among vectors without any structure.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import Contestant, options, race, show, timed
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
    asked = Contestant("", partial(timed, partial(client.predict, request), 1), 1)
    race([asked], REPEATS)
    return 1000 * asked.seconds


def share_of(lists: Array, exact: Array) -> float:
    """The share of the exact lists' items that other lists have."""
    return float(np.mean([np.isin(*pair) for pair in zip(exact, lists, strict=True)]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of catalogues and searches."""
    parser = options(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    sizes = parser.parse_args(arguments).sizes
    searches = [*EXACT, *INDEXES]
    workflow, tower = make_tower()
    built: dict[tuple[int, str], float] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for count in sizes:
            items = write_items(folder / "items.parquet", count)
            for number, search in enumerate(searches):
                index, _, parameters = search.partition(" ")
                network = NearestItems(tower, items, K)
                if search not in EXACT:
                    network = NearestItems(tower, items, K, index, parameters)
                serving = ServingOptions(
                    runtime=search if search in EXACT else "onnx", max_rows=64, warm_up=False
                )
                export = partial(
                    export_ensemble,
                    network,
                    workflow,
                    f"s{number}_{count}",
                    folder / "models",
                    serving=serving,
                )
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "The index .* finds few")
                    built[count, search] = timed(export, 1).seconds
        with TritonServer(folder / "models") as server:
            table = []
            for count in sizes:
                exact = None
                for number, search in enumerate(searches):
                    with EnsembleClient(server.grpc_url, f"s{number}_{count}") as client:
                        one, many = (milliseconds(client, rows) for rows in (1, 64))
                        lists = client.predict({"user": list(range(USERS))})["item"]
                    exact = lists if exact is None else exact
                    table.append(
                        {
                            "items": count,
                            "search": search,
                            "ms, 1 row": one,
                            "ms, 64 rows": many,
                            f"recall@{K}": share_of(lists, exact),
                            "export, s": built[count, search],
                        }
                    )
    show("Searches for the nearest items", table)


if __name__ == "__main__":
    main()
