"""What `EnsembleClient` costs over tritonclient's own client, in one run against one server.

    python -m benchmarks.client [--pipelines movielens criteo] [--seconds 3]

The floor sends tensors that were made once with tritonclient. The other ways take a table of any
kind and give one back. They take turns of some calls, so that all meet the same load. What this
process takes of the processor, gRPC's threads included, says what a way costs on a busy machine too.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from tritonclient import grpc as tritonclient
from tritonclient.utils import np_to_triton_dtype

from benchmarks.serving import show
from exporter import ServingOptions, export_tensorflow_ensemble
from serving import EnsembleClient, TritonServer
from serving.exchange import to_requests

SIZES = (1, 64, 16384)
# Calls in a turn: a client that asks again finds its code in the caches.
TURN = 20
FLOOR = "tritonclient, tensors made once"
Call = Callable[[], Any]


class Taken(NamedTuple):
    """Medians of a call.

    Attributes:
        milliseconds: until the answer is there.
        processor_us: microseconds of the processor, in this process.
    """

    milliseconds: float
    processor_us: float


def medians(calls: Mapping[str, Call], seconds: float) -> dict[str, Taken]:
    """What each call takes, taking turns for so many seconds each."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    processor: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end:
        for name, call in calls.items():
            begin = time.process_time()
            for _ in range(TURN):
                start = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - start)
            processor[name].append((time.process_time() - begin) / TURN)
    return {
        name: Taken(statistics.median(times[name]) * 1e3, statistics.median(processor[name]) * 1e6)
        for name in calls
    }


def floor(client: tritonclient.InferenceServerClient, model: str, feed: Mapping[str, Any]) -> Call:
    """A call of tritonclient's with inputs that are ready, outputs read."""
    inputs = []
    for name, tensor in feed.items():
        made = tritonclient.InferInput(name, tensor.shape, np_to_triton_dtype(tensor.dtype))
        inputs.append(made.set_data_from_numpy(tensor))

    def call() -> list[Any]:
        result = client.infer(model, inputs)
        return [result.as_numpy(output.name) for output in result.get_response().outputs]

    return call


def measure(name: str, seconds: float) -> list[dict[Any, Any]]:
    """Every way of asking one pipeline."""
    from benchmarks.serving_pipelines import PIPELINES  # noqa: PLC0415 - TensorFlow, in a child

    pipeline = PIPELINES[name](SIZES[-1])
    with tempfile.TemporaryDirectory() as folder:
        options = ServingOptions(runtime="fused_onnx", max_batch_size=SIZES[-1])
        export_tensorflow_ensemble(
            pipeline.model, pipeline.workflow, name, folder, pipeline.labels, serving=options
        )
        with (
            TritonServer(folder, startup_timeout=300) as server,
            tritonclient.InferenceServerClient(server.grpc_url) as plain,
            EnsembleClient(server.grpc_url, name) as client,
            EnsembleClient(server.http_url, name) as over_http,
            EnsembleClient(
                server.grpc_url, name, headers=server.admin_headers, shared_memory=True
            ) as shared,
        ):
            rows: dict[str, dict[Any, Any]] = {}
            for size in SIZES:
                frame = pipeline.rows.head(size)
                (feed,) = to_requests(client.contract, frame)
                calls: dict[str, Call] = {
                    FLOOR: floor(plain, name, feed),
                    **ways(client, frame, feed),
                    "tensors, shared memory": partial(shared.raw, feed),
                    "Polars, shared memory": partial(shared.predict, frame),
                    "Polars, HTTP": partial(over_http.predict, frame),
                }
                for way, taken in medians(calls, seconds).items():
                    rows.setdefault(way, {"way": way})[size] = taken.milliseconds
                    if size == 1:
                        rows[way]["µs"] = taken.processor_us
    return [
        row | {"ms over": row[1] - rows[FLOOR][1], "µs over": row["µs"] - rows[FLOOR]["µs"]}
        for row in rows.values()
    ]


def ways(client: EnsembleClient, frame: Any, feed: Mapping[str, Any]) -> dict[str, Call]:
    """The ways of asking over gRPC."""
    pandas, arrays = frame.to_pandas(), {name: np.array(frame[name]) for name in frame.columns}
    lists = frame.to_dict(as_series=False)
    return {
        "tensors": lambda: client.raw(feed),
        "arrays": lambda: client.predict(arrays),
        "lists": lambda: client.predict(lists),
        "Polars": lambda: client.predict(frame),
        "pandas": lambda: client.predict(pandas),
    }


def main() -> None:
    """Measure, each pipeline in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pipelines", nargs="+", default=["movielens", "criteo"])
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    for name in arguments.pipelines:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            rows = pool.apply(measure, (name, arguments.seconds))
        show(f"{name}: median ms by rows; processor µs of one row; over the floor at one row", rows)


if __name__ == "__main__":
    main()
