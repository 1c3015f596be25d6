"""Many clients at once, and the floors of Python models that do nothing."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

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


def load(url: str, request: bytes, clients: int, seconds: float) -> dict[str, float]:
    """Requests answered in a second, and the microseconds of processor time that one takes.

    All clients run in this thread and send bytes that were made once, since what they take of
    the processor is missing to a server on the same machine.

    Args:
        url: the server's gRPC address.
        request: what each client sends, again and again.
        clients: how many send at once.
        seconds: for how long.
    """
    server, own = children_seconds(), time.process_time()
    count, taken = asyncio.run(answers(url, request, clients, seconds))
    server, own = children_seconds() - server, time.process_time() - own
    return {
        "requests/s": count / taken,
        "server µs": server / count * 1e6,
        "client µs": own / count * 1e6,
    }


async def answers(url: str, request: bytes, clients: int, seconds: float) -> tuple[int, float]:
    """The number of answers, and the seconds until the last one."""
    start = time.perf_counter()
    async with grpc.aio.insecure_channel(url) as channel:
        call: Any = channel.unary_unary(METHOD)

        async def ask() -> int:
            answered = 0
            while time.perf_counter() < start + seconds:
                await call(request)
                answered += 1
            return answered

        counts = await asyncio.gather(*(ask() for _ in range(clients)))
    return sum(counts), time.perf_counter() - start


def children_seconds() -> float:
    """The processor time of all processes that this one has started, and of theirs."""
    parents, ticks = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # It may have ended since.
            # After the name, which may hold anything: state, parent, ..., user and system time.
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            process = int(folder.name)
            parents[process] = int(fields[1])
            ticks[process] = int(fields[11]) + int(fields[12])
    return sum(
        spent for process, spent in ticks.items() if os.getpid() in _ancestors(process, parents)
    ) / os.sysconf("SC_CLK_TCK")


def _ancestors(process: int, parents: Mapping[int, int]) -> list[int]:
    found = []
    while process := parents.get(process, 0):
        found.append(process)
    return found


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
