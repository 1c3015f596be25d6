"""Latency and throughput of every runtime on the embedded server, in one run.

    python -m benchmarks.serving [--pipelines movielens criteo] [--seconds 3] [--large GB]

Each runtime is asked for 1, 64, 1,024 and 16,384 rows by one client, and for one row at a time
by 32 at once; requests are made once and sent as the bytes they are, so that the client costs
little. What a one-row request of 32 clients takes of the processor is shown as well, since on a
busy machine that says more than the number of them. There are two floors: an ensemble of two
Python models that do nothing with the same tensors, and the fused graph in onnxruntime, called in
this process. All take turns in rounds, so that what else the machine does falls on each of them.
`--large` measures time and memory of exporting a network with a table of so many
gigabytes instead.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import polars as pl
from tritonclient.grpc import service_pb2

from benchmarks.serving_floor import write_floor
from benchmarks.serving_load import METHOD, load
from exporter import ServingOptions, export_tensorflow_ensemble
from exporter.plan.options import RUNTIMES
from serving import EnsembleClient, TritonServer
from workflow.expressions.polars.series import to_column
from workflow.wire.format import encode

SIZES = (1, 64, 1024, 16384)
CLIENTS = 32
ROUNDS = 5
EMPTY = "empty"
Call = Callable[[], Any]
Row = dict[Any, Any]
Key = tuple[str, int]


def times_ms(call: Call, seconds: float) -> list[float]:
    """The times of a call, over so many seconds."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 2:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def tensors_of(client: EnsembleClient, rows: pl.DataFrame) -> dict[str, Any]:
    """The tensors of a request."""
    tensors: dict[str, Any] = {}
    for column in client.contract.inputs:
        tensors |= encode(column, to_column(rows[column.name]))
    return tensors


def request_of(model: str, tensors: dict[str, Any]) -> bytes:
    """A request as gRPC sends it. Its tensors are numbers."""
    request = service_pb2.ModelInferRequest(model_name=model)
    for name, tensor in tensors.items():
        kind = {"i": "INT", "f": "FP"}[tensor.dtype.kind] + str(8 * tensor.dtype.itemsize)
        request.inputs.add(name=name, datatype=kind, shape=tensor.shape)
        request.raw_input_contents.append(tensor.tobytes())
    return request.SerializeToString()


def sender(channel: grpc.Channel, request: bytes) -> Call:
    """Sends a request as bytes and takes the answer as bytes."""
    call = channel.unary_unary(METHOD)
    return lambda: call(request)


def measure(name: str, seconds: float) -> list[Row]:
    """Every runtime of one pipeline, and the floors."""
    from benchmarks.serving_pipelines import PIPELINES  # noqa: PLC0415 - TensorFlow, in a child

    pipeline = PIPELINES[name](SIZES[-1])
    with tempfile.TemporaryDirectory() as folder:
        for runtime in RUNTIMES:
            export_tensorflow_ensemble(
                pipeline.model,
                pipeline.workflow,
                f"{name}_{runtime}",
                folder,
                pipeline.labels,
                serving=ServingOptions(runtime=runtime, max_batch_size=SIZES[-1]),
            )
        write_floor(Path(folder), f"{name}_tensorflow", f"{name}_{EMPTY}")
        with TritonServer(folder, startup_timeout=300) as server:
            with EnsembleClient(server.grpc_url, f"{name}_fused_onnx") as client:
                feeds = {n: tensors_of(client, pipeline.rows.head(n)) for n in SIZES}
            requests = {
                (runtime, n): request_of(f"{name}_{runtime}", feed)
                for runtime in RUNTIMES
                for n, feed in feeds.items()
            }
            # It answers with one row.
            requests["two empty Python steps", 1] = request_of(f"{name}_{EMPTY}", feeds[1])
            graph = Path(folder) / f"{name}_fused_onnx" / "1" / "model.onnx"
            return ask(server.grpc_url, requests, in_process(graph, feeds), seconds)


def ask(url: str, requests: dict[Key, bytes], own: dict[Key, Call], seconds: float) -> list[Row]:
    """Median milliseconds by the rows of a request, and what many clients get, all in turns.

    Args:
        url: the server's gRPC address.
        requests: what is sent, by what answers and its rows.
        own: what is called in this process, by the same.
        seconds: for how long each is asked.
    """
    options = [("grpc.max_send_message_length", -1), ("grpc.enable_http_proxy", 0)]
    options.append(("grpc.max_receive_message_length", -1))
    times: dict[Key, list[float]] = defaultdict(list)
    loads: dict[str, list[Row]] = defaultdict(list)
    with grpc.insecure_channel(url, options) as channel:
        calls = {key: sender(channel, request) for key, request in requests.items()} | own
        for _ in range(ROUNDS):
            for key, call in calls.items():
                times[key] += times_ms(call, seconds / ROUNDS)
            for (name, rows), request in requests.items():
                if rows == 1:
                    loads[name].append(load(url, request, CLIENTS, seconds / ROUNDS))
    made: dict[str, Row] = {name: {"runtime": name} for name, _ in calls}
    for (name, rows), taken in times.items():
        made[name][rows] = statistics.median(taken)
    for name, parts in loads.items():
        made[name] |= {what: statistics.median(part[what] for part in parts) for what in parts[0]}
    return list(made.values())


def in_process(model: Path, feeds: dict[int, dict[str, Any]]) -> dict[Key, Call]:
    """The fused graph without a server."""
    import onnxruntime  # noqa: PLC0415 - not needed by the parent

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    name = "onnxruntime in process"
    return {(name, n): partial(session.run, None, feed) for n, feed in feeds.items()}


def large(gigabytes: float, runtime: str) -> list[Row]:
    """Time and memory of an export of a network with one large table."""
    import keras  # noqa: PLC0415 - TensorFlow, in a child

    from workflow import Workflow  # noqa: PLC0415

    count = int(gigabytes * 1e9 / 256)
    workflow = Workflow(["id"]).fit({"id": np.arange(3)})
    tensor = keras.Input((1,), name="id", dtype="int64")
    # Random numbers would take more memory than the export itself.
    table = keras.layers.Embedding(count, 64, embeddings_initializer="zeros")
    vector = keras.layers.Flatten()(table(tensor))
    model = keras.Model({"id": tensor}, keras.layers.Dense(1, name="score")(vector))
    before, start = peak_gb(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        options = ServingOptions(runtime=runtime)
        export_tensorflow_ensemble(model, workflow, "large", folder, [], serving=options)
        taken = time.perf_counter() - start
    row = {"runtime": runtime, "table GB": count * 256 / 1e9, "seconds": taken}
    return [row | {"peak GB": peak_gb(), "peak GB before": before}]


def peak_gb() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def show(title: str, rows: list[Row]) -> None:
    """Print a table in Markdown."""
    head = list(rows[0])
    print(f"\n{title}\n")
    print("|", " | ".join(f"{name:,}" if isinstance(name, int) else name for name in head), "|")
    print("|" + "---|" * len(head))
    for row in rows:
        cells = [row.get(name, "") for name in head]
        print("|", " | ".join(c if isinstance(c, str) else _number(c) for c in cells), "|")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def main() -> None:
    """Measure, each pipeline in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pipelines", nargs="+", default=["movielens", "criteo"])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--large", type=float, metavar="GB")
    arguments = parser.parse_args()
    children = multiprocessing.get_context("spawn")
    if arguments.large:
        rows = []
        for runtime in RUNTIMES:
            with children.Pool(1) as pool:
                rows += pool.apply(large, (arguments.large, runtime))
        show("Export of a large table", rows)
        return
    for name in arguments.pipelines:
        with children.Pool(1) as pool:
            rows = pool.apply(measure, (name, arguments.seconds))
        show(f"{name}: median ms by rows, and one-row requests of {CLIENTS} clients", rows)


if __name__ == "__main__":
    main()
