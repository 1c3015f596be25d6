"""Many clients at once, and the floors of Python models that do nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from benchmarks.measure import children_seconds

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
