"""Latency and throughput of every runtime on the embedded server, in one run.

    python -m benchmarks.serving [--seconds 3]
    python -m benchmarks.serving --backend [--device gpu] [--seconds 2]
    python -m benchmarks.serving --graphs [--seconds 9]

Each runtime is asked for 1, 64, 1,024 and 16,384 rows by one client, and for one row at a time
by 32 at once; requests are made once and sent as the bytes they are, so that the client costs
little. What a one-row request of 32 clients takes of the processor is shown as well, since on a
busy machine that says more than the number of them. There are three floors: an ensemble of two
Python models that do nothing with the same tensors, one such model, and the fused graph in
onnxruntime, called in this process. All take turns in rounds, so that what else the machine does
falls on each of them; "of its floor" is the median over the rounds of a runtime's time, or of its
requests/s, divided by those of as many empty steps.

`--backend` needs no server: a call of the TensorFlow backend, beside TensorFlow 2's own call of the
same signature, for the same rows of a MovieLens-like network, in turns. The answers are compared
before anything is timed.

`--graphs` needs none either: the fused graph in onnxruntime, beside one written by hand with the same
answers, with the processor time of this process; see `benchmarks/serving_graphs.py`.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from operator import truediv
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from benchmarks.measure import Contestant, in_child, options, race, show, timed, use
from benchmarks.serving_graphs import measure_graphs, session_of, tensors_of
from benchmarks.serving_load import METHOD, load, write_floor
from exporter import ServingOptions, export_tensorflow_ensemble
from exporter.plan.runtime import RUNTIMES
from serving import EnsembleClient, TritonServer
from serving.embedded.installation import lay_out_backend

SIZES = (1, 64, 1024, 16384)
CLIENTS = 32
ROUNDS = 5
# An empty step for each Python step of a runtime, as a copy of another runtime's configs.
FLOORS = {"two empty Python steps": "tensorflow", "one empty Python step": "fused_onnx"}
HERE = [name for name, kind in RUNTIMES.items() if kind.is_served]
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


def request_of(model: str, tensors: dict[str, Any]) -> bytes:
    """A request as gRPC sends it. Its tensors are numbers."""
    request = service_pb2.ModelInferRequest(model_name=model)
    for name, tensor in tensors.items():
        kind = {"i": "INT", "f": "FP"}[tensor.dtype.kind] + str(8 * tensor.dtype.itemsize)
        request.inputs.add(name=name, datatype=kind, shape=tensor.shape)
        request.raw_input_contents.append(tensor.tobytes())
    return request.SerializeToString()


def sender(channel: grpc.Channel, request: bytes) -> Call:
    """Send a request as bytes, and take the answer as bytes."""
    call = channel.unary_unary(METHOD)
    return lambda: call(request)


def measure(name: str, seconds: float) -> list[Row]:
    """Every runtime of one pipeline, and the floors."""
    from benchmarks.pipelines import SERVED  # noqa: PLC0415 - TensorFlow, in a child

    pipeline = SERVED[name](SIZES[-1])
    with tempfile.TemporaryDirectory() as folder:
        for runtime in HERE:
            export_tensorflow_ensemble(
                pipeline.model,
                pipeline.workflow,
                f"{name}_{runtime}",
                folder,
                pipeline.labels,
                serving=ServingOptions(runtime=runtime, max_batch_size=SIZES[-1]),
            )
        for number, runtime in enumerate(FLOORS.values()):
            write_floor(Path(folder), f"{name}_{runtime}", f"{name}_empty{number}")
        with TritonServer(folder, startup_timeout=300) as server:
            with EnsembleClient(server.grpc_url, f"{name}_fused_onnx") as client:
                columns = client.contract.inputs
                feeds = {n: tensors_of(columns, pipeline.rows.head(n)) for n in SIZES}
            requests = {
                (runtime, n): request_of(f"{name}_{runtime}", feed)
                for runtime in HERE
                for n, feed in feeds.items()
            }
            for number, floor in enumerate(FLOORS):  # they answer with one row
                requests[floor, 1] = request_of(f"{name}_empty{number}", feeds[1])
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
    times: dict[Key, list[list[float]]] = defaultdict(list)
    loads: dict[str, list[Row]] = defaultdict(list)
    with grpc.insecure_channel(url, options) as channel:
        calls = {key: sender(channel, request) for key, request in requests.items()} | own
        for _ in range(ROUNDS):
            for key, call in calls.items():
                times[key].append(times_ms(call, seconds / ROUNDS))
            for (name, rows), request in requests.items():
                if rows == 1:
                    loads[name].append(load(url, request, CLIENTS, seconds / ROUNDS))
    made: dict[str, Row] = {name: {"runtime": name} for name, _ in calls}
    for (name, rows), taken in times.items():
        made[name][rows] = statistics.median(itertools.chain(*taken))
    for name, parts in loads.items():
        made[name] |= {what: statistics.median(part[what] for part in parts) for what in parts[0]}
        floor = name if name in FLOORS else [*FLOORS][RUNTIMES[name].is_fused]
        one = [map(statistics.median, times[key, 1]) for key in (name, floor)]
        made[name]["1, of its floor"] = statistics.median(map(truediv, *one))
        many = [(part["requests/s"] for part in loads[key]) for key in (name, floor)]
        made[name]["requests/s, of its floor"] = statistics.median(map(truediv, *many))
    return list(made.values())


def in_process(model: Path, feeds: dict[int, dict[str, Any]]) -> dict[Key, Call]:
    """The fused graph without a server."""
    run = session_of(model).run
    return {("onnxruntime in process", n): partial(run, None, feed) for n, feed in feeds.items()}


def measure_backend(device: str, seconds: float) -> list[Row]:
    """Compare and time a call of the TensorFlow backend and one of TensorFlow's, in a process of its own."""
    from training import models, save_model  # noqa: PLC0415 - TensorFlow, where it is wanted

    use(device)
    scalars = {"userId": (162_544, 64), "movieId": (56_873, 64)}
    network = models.mlp((scalars, {"genres": (23, 16)}))
    with tempfile.TemporaryDirectory() as folder:
        save_model(network, Path(folder) / "model.savedmodel")
        calls = {
            "TensorFlow 2, signature": signature(Path(folder)),
            "backend": backend(Path(folder), 0 if device == "gpu" else None),
        }
        table: dict[str, Row] = {name: {"": name} for name in calls}
        for rows in SIZES:
            tensors = request_tensors(rows)
            answers = [call(tensors) for call in calls.values()]
            for name, answer in answers[0].items():
                np.testing.assert_allclose(answers[1][name], answer, rtol=0, atol=1e-5)
            racers = [contestant(name, call, tensors) for name, call in calls.items()]
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                race(racers, 10)
            for racer in racers:
                table[racer.name][rows] = racer.seconds * 1e3
        return list(table.values())


def contestant(name: str, call: Callable[[Any], Any], tensors: dict[str, Any]) -> Contestant:
    """A call, which answers every row."""
    rows = len(tensors["userId"])
    return Contestant(name, partial(timed, lambda: len(next(iter(call(tensors).values())))), rows)


def signature(folder: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The signature as TensorFlow 2 calls it."""
    import tensorflow as tf  # noqa: PLC0415 - where it is wanted

    loaded = tf.saved_model.load(str(folder / "model.savedmodel"))
    function = loaded.signatures["serving_default"]

    def call(tensors: dict[str, Any]) -> dict[str, Any]:
        # What was loaded owns the variables.
        answered = function(**{n: tf.constant(t) for n, t in tensors.items()}) if loaded else {}
        return {name: tensor.numpy() for name, tensor in answered.items()}

    return call


def backend(folder: Path, device: int | None) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The backend's own call, by its files as a server has them."""
    lay_out_backend("tensorflow", folder / "backends")
    sys.path.insert(0, str(folder / "backends" / "tensorflow"))
    # Triton's module exists in the server alone; loading and calling need nothing of it.
    sys.modules["triton_python_backend_utils"] = ModuleType("triton_python_backend_utils")
    model = import_module("model").TritonPythonModel()
    model.load(folder, {"name": "movielens"}, device)
    call: Callable[[dict[str, Any]], dict[str, Any]] = model.call
    return call


def request_tensors(rows: int) -> dict[str, Any]:
    """A request."""
    random = np.random.default_rng(rows)
    lengths = random.integers(0, 6, (rows, 1))
    return {
        "userId": random.integers(0, 162_544, (rows, 1), np.int32),
        "movieId": random.integers(0, 56_873, (rows, 1), np.int32),
        "genres__values": random.integers(0, 23, (lengths.sum(), 1)),
        "genres__nnzs": lengths,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, each pipeline in a process of its own."""
    parser = options(__doc__, devices=True, seconds=3.0)
    parser.add_argument("--backend", action="store_true", help="the TensorFlow backend, instead")
    parser.add_argument("--graphs", action="store_true", help="onnxruntime without a server")
    parsed = parser.parse_args(arguments)
    if parsed.backend:
        rows = in_child(measure_backend, parsed.device, parsed.seconds)
        show(f"ms on the {parsed.device} by rows", rows)
        return
    if parsed.device != "cpu":
        sys.exit(
            "Expected --backend beside --device gpu. Received: none: the embedded server has no GPU."
        )
    of_server = f"median ms by rows, and one-row requests of {CLIENTS} clients"
    of_graphs = "processor time of a request in onnxruntime"
    work, title = (measure_graphs, of_graphs) if parsed.graphs else (measure, of_server)
    for name in ("movielens", "criteo"):
        show(f"{name}: {title}", in_child(work, name, parsed.seconds))


if __name__ == "__main__":
    main()
