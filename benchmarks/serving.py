"""Latency and throughput of every runtime on the embedded server, in one run.

    python -m benchmarks.serving [--seconds 3]
    python -m benchmarks.serving --servers 1 2 4 [--seconds 3]
    python -m benchmarks.serving --graphs [--seconds 9]

Each runtime is asked for 1, 64, 1,024 and 16,384 rows by one client, and for one row at a time
by 32 at once; requests are made once and sent as the bytes they are, so that the client costs
little. What a one-row request of 32 clients takes of the processor is shown as well, since on a
busy machine that says more than the number of them. There are three floors: an ensemble of two
Python models that do nothing with the same tensors, one such model, and the fused graph in
onnxruntime, called in this process. All take turns in rounds, so that what else the machine does
falls on each of them; "of its floor" is the median over the rounds of a runtime's time, or of its
requests/s, divided by those of as many empty steps.

`--servers` divides the 32 clients among so many servers of a Criteo-like `fused_onnx`.

`--graphs` needs no server: the fused graph in onnxruntime, beside one written by hand with the same
answers, with the processor time of this process; see `benchmarks/serving_graphs.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from operator import truediv
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from benchmarks.data import SERVED
from benchmarks.measure import children_seconds, in_child, options, show, timed
from benchmarks.serving_graphs import measure_graphs, session_of
from exporter.plan.runtime import RUNTIMES
from serving import EnsembleClient, TritonServer
from serving.connection.grpc_messages import infer_request
from serving.connection.tensors import encode_tensors
from serving.exchange import to_requests

SIZES = (1, 64, 1024, 16384)
CLIENTS = 32
ROUNDS = 5
# An empty step for each Python step of a runtime, as a copy of another runtime's configs.
FLOORS = {"two empty Python steps": "tensorflow", "one empty Python step": "fused_onnx"}
HERE = [name for name, kind in RUNTIMES.items() if kind.is_served]
METHOD = "/inference.GRPCInferenceService/ModelInfer"
# Reads what it is sent, as any model must, and answers with zeros.
MODEL = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.answer = {}
        for tensor in config["output"]:
            width = abs(int(tensor["dims"][0]))
            dtype = pb_utils.triton_string_to_numpy(tensor["data_type"])
            self.answer[tensor["name"]] = np.zeros((1, width), dtype)

    def execute(self, requests):
        responses = []
        for request in requests:
            for tensor in request.inputs():
                tensor.as_numpy()
            tensors = [pb_utils.Tensor(*item) for item in self.answer.items()]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
"""
Call = Callable[[], Any]
Row = dict[Any, Any]
Key = tuple[str, int]


def times_ms(call: Call, seconds: float) -> list[float]:
    """The times of a call, over so many seconds."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 2:
        times.append(timed(call, 1).seconds * 1e3)
    return times


def request_of(model: str, tensors: dict[str, Any]) -> bytes:
    """A request as gRPC sends it."""
    request: bytes = infer_request(model, "", encode_tensors(tensors)).SerializeToString()
    return request


def export(name: str, folder: Path, runtimes: Iterable[str]) -> Any:
    """Write the ensembles of a pipeline, each named by its runtime; rows for requests."""
    pipeline = SERVED[name](SIZES[-1])
    for runtime in runtimes:
        pipeline.export(runtime, folder, runtime, SIZES[-1])
    return pipeline.rows


def feeds_of(url: str, rows: Any) -> dict[int, dict[str, Any]]:
    """The tensors of requests, by their rows."""
    with EnsembleClient(url, "fused_onnx") as client:
        requests = {size: to_requests(client.contract, rows.head(size)) for size in SIZES}
    return {size: tensors for size, (tensors,) in requests.items()}


def write_floor(repository: Path, name: str, floor: str) -> None:
    """Copy the configs of what was exported, for requests of one row, with Python models that do nothing.

    Args:
        repository: the model repository.
        name: an ensemble, or a fused model.
        floor: the name of the copy.
    """
    for suffix in ("_nvt", "_tf", ""):
        file = repository / f"{name}{suffix}" / "config.pbtxt"
        if not file.exists():  # a fused model has no steps
            continue
        config = model_config_pb2.ModelConfig()
        text_format.Parse(file.read_text(), config)
        config.name = f"{floor}{suffix}"
        config.ClearField("model_warmup")
        for step in config.ensemble_scheduling.step:
            step.model_name = floor + step.model_name.removeprefix(name)
        for group in config.instance_group:
            group.name = config.name
            group.kind = model_config_pb2.ModelInstanceGroup.KIND_CPU
        version = repository / config.name / "1"
        version.mkdir(parents=True)
        if not config.ensemble_scheduling.step:
            config.ClearField("platform")
            config.backend = "python"
            (version / "model.py").write_text(MODEL)
        (version.parent / "config.pbtxt").write_text(text_format.MessageToString(config))


def measure(name: str, seconds: float) -> list[Row]:
    """Every runtime of one pipeline, and the floors."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        rows = export(name, folder, HERE)
        for floor, runtime in FLOORS.items():
            write_floor(folder, runtime, floor.replace(" ", "_"))
        with TritonServer(folder, startup_timeout=300) as server:
            feeds = feeds_of(server.grpc_url, rows)
            requests = {(r, n): request_of(r, feed) for r in HERE for n, feed in feeds.items()}
            for floor in FLOORS:  # they answer with one row
                requests[floor, 1] = request_of(floor.replace(" ", "_"), feeds[1])
            run = session_of(folder / "fused_onnx" / "1" / "model.onnx").run
            here = "onnxruntime in process"
            own: dict[Key, Call] = {(here, n): partial(run, None, f) for n, f in feeds.items()}
            return ask(server.grpc_url, requests, own, seconds)


def load(urls: Sequence[str], request: bytes, clients: int, seconds: float) -> dict[str, float]:
    """Requests answered in a second, and the microseconds of processor time that one takes.

    All clients run in this thread and send bytes that were made once, since what they take of
    the processor is missing to a server on the same machine.

    Args:
        urls: gRPC addresses of servers that this process has started.
        request: what each client sends, again and again.
        clients: how many send at once, to all servers together.
        seconds: for how long.
    """
    server, own = children_seconds(), time.process_time()
    start = time.perf_counter()
    count = asyncio.run(_answers(urls, request, clients // len(urls), start + seconds))
    taken = time.perf_counter() - start
    server, own = children_seconds() - server, time.process_time() - own
    return {
        "requests/s": count / taken,
        "server µs": server / count * 1e6,
        "client µs": own / count * 1e6,
    }


async def _answers(urls: Sequence[str], request: bytes, clients: int, end: float) -> int:
    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(u)) for u in urls]

        async def ask(call: Any) -> int:
            answered = 0
            while not answered or time.perf_counter() < end:
                await call(request)
                answered += 1
            return answered

        calls = [channel.unary_unary(METHOD) for channel in channels] * clients
        return sum(await asyncio.gather(*map(ask, calls)))


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
        send = channel.unary_unary(METHOD)  # bytes, as is the answer
        calls = {key: partial(send, request) for key, request in requests.items()} | own
        for _ in range(ROUNDS):
            for key, call in calls.items():
                times[key].append(times_ms(call, seconds / ROUNDS))
            for (name, rows), request in requests.items():
                if rows == 1:
                    loads[name].append(load([url], request, CLIENTS, seconds / ROUNDS))
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


def measure_servers(counts: Sequence[int], seconds: float) -> list[Row]:
    """The cost of a one-row request, of clients who ask several servers at once."""
    table: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        rows = export("criteo", Path(folder), ["fused_onnx"])
        for count in counts:
            with ExitStack() as stack:
                servers = [TritonServer(folder, startup_timeout=300) for _ in range(count)]
                urls = [stack.enter_context(server).grpc_url for server in servers]
                request = request_of("fused_onnx", feeds_of(urls[0], rows)[1])
                load(urls, request, CLIENTS, seconds / 4)
                made = load(urls, request, CLIENTS, seconds)
            work = made["server µs"] / (table[0] if table else made)["server µs"]
            table.append({"servers": count, **made, "work of the first": work})
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, each pipeline in a process of its own."""
    parser = options(__doc__, seconds=3.0, graphs=False)
    parser.add_argument("--servers", nargs="+", type=int, help="several at once, instead")
    parsed = parser.parse_args(arguments)
    of_clients = f"one-row requests of {CLIENTS} clients"
    if parsed.servers:
        show(of_clients, in_child(measure_servers, parsed.servers, parsed.seconds))
        return
    of_graphs = "processor time of a request in onnxruntime"
    title = of_graphs if parsed.graphs else f"median ms by rows, and {of_clients}"
    for name in ("movielens", "criteo"):
        work = measure_graphs if parsed.graphs else measure
        show(f"{name}: {title}", in_child(work, name, parsed.seconds))


if __name__ == "__main__":
    main()
