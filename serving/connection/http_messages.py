"""HTTP requests and answers in Triton's binary form, for the connections with and without asyncio.

A body begins with JSON, and the bytes of the tensors follow:
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md

tritonclient's HTTP client needs geventhttpclient, and an `InferInput` for each tensor. A request of one
row from tensors took 475 µs of processor time with it and 398 with this file for the MovieLens-like
model, and 677 and 487 for the Criteo-like one (`python -m benchmarks.client`, 2 cores at a load of 9,
2026-11-23).
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

from google.protobuf import json_format
from tritonclient.grpc import model_config_pb2

from serving.connection.channel import FIRST_PAUSE, LONGEST_PAUSE
from serving.connection.tensors import Inference, Place, WireTensor, from_bytes
from serving.errors import ServerUnavailableError, refusal

HEADER_LENGTH = "Inference-Header-Content-Length"
_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    429: "UNAVAILABLE",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class Request(NamedTuple):
    """A request.

    Attributes:
        method: "GET" or "POST".
        path: the path after the server's address.
        headers: headers in addition to those of the connection.
        body: its content.
        is_inference: whether it is one.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes | None = None
    is_inference: bool = False


class Answer(NamedTuple):
    """A response.

    Attributes:
        status: the HTTP status.
        reason: its text.
        json_length: the header with the length of the JSON at the start of the content.
        content: the body.
    """

    status: int
    reason: str
    json_length: str
    content: bytes


def infer_request(model: str, version: str, tensors: Sequence[WireTensor]) -> Request:
    """A request for an inference."""
    inputs, contents = list[str](), list[bytes]()
    for name, datatype, shape, data in tensors:
        inputs.append(_input(name, datatype, shape, data if isinstance(data, Place) else len(data)))
        if not isinstance(data, Place):
            contents.append(data)
    head = f'{{"inputs":[{",".join(inputs)}],"parameters":{{"binary_data_output":true}}}}'.encode()
    headers = {HEADER_LENGTH: str(len(head)), "Content-Type": "application/octet-stream"}
    path = f"{_path(model, version)}/infer"
    body = b"".join([head, *contents])
    return Request("POST", path, headers, body, is_inference=True)


@lru_cache(maxsize=4096)
def _input(name: str, datatype: str, shape: tuple[int, ...], data: Place | int) -> str:
    """The JSON of an input, whose bytes are in shared memory, or whose number is given."""
    parameters: dict[str, Any] = {"binary_data_size": data}
    if isinstance(data, Place):
        parameters = {
            "shared_memory_region": data.region,
            "shared_memory_byte_size": data.size,
            "shared_memory_offset": data.offset,
        }
    described = {"name": name, "datatype": datatype, "shape": shape}
    return json.dumps({**described, "parameters": parameters})


def config_request(model: str, version: str) -> Request:
    """A request for a model's config."""
    return Request("GET", f"{_path(model, version)}/config", {})


def register_request(region: str, key: str, size: int) -> Request:
    """A request to register a shared-memory region."""
    body = json.dumps({"key": key, "offset": 0, "byte_size": size}).encode()
    return Request("POST", f"/v2/systemsharedmemory/region/{region}/register", {}, body)


def unregister_request(region: str) -> Request:
    """A request to unregister a shared-memory region."""
    return Request("POST", f"/v2/systemsharedmemory/region/{region}/unregister", {}, b"")


def infer_response(answer: Answer) -> Inference:
    """The version and the tensors of an answer."""
    tensors, offset = {}, int(answer.json_length)
    head = json.loads(answer.content[:offset])
    for output in head["outputs"]:
        end = offset + output["parameters"]["binary_data_size"]
        data = answer.content[offset:end]
        tensors[output["name"]] = from_bytes(output["datatype"], output["shape"], data)
        offset = end
    return Inference(head["model_version"], tensors)


def config_response(answer: Answer) -> Any:
    """The `ModelConfig` of an answer.

    Raises:
        ValueError, ParseError: JSON that is none.
    """
    config = json_format.Parse(
        answer.content, model_config_pb2.ModelConfig(), ignore_unknown_fields=True
    )
    if not config.name:
        raise ValueError("a model without a name")
    return config


def expect_ok(answer: Answer, request: Request, url: str) -> None:
    """Check that the server accepted a request.

    Raises:
        ClientError: it refused.
    """
    if answer.status != HTTPStatus.OK:
        code = _CODES.get(answer.status, "INTERNAL")
        # A client has read the model's config before.
        raise refusal(code, _message(answer), url, was_served=request.is_inference)


def _message(answer: Answer) -> str:
    try:
        return str(json.loads(answer.content)["error"])
    except (ValueError, KeyError, TypeError):
        return answer.reason


class Attempts:
    """Limits for the attempts at one request: their number and duration.

    Args:
        retries: the greatest number of repetitions.
        timeout: seconds for all attempts and the pauses between them.
    """

    def __init__(self, retries: int, timeout: float) -> None:
        self._deadline = time.monotonic() + timeout
        self._pauses: Iterator[float] = (
            min(FIRST_PAUSE * 2**n, LONGEST_PAUSE) * random.uniform(0.8, 1.2)  # noqa: S311
            for n in range(retries)
        )

    @property
    def left(self) -> float:
        """The remaining seconds, with a minimum above 0."""
        return max(self._deadline - time.monotonic(), 1e-3)

    def pause(self, error: ServerUnavailableError) -> float:
        """The seconds to wait before the next attempt.

        Raises:
            ServerUnavailableError: `error`, if no attempt remains.
        """
        pause = next(self._pauses, None)
        if pause is None or pause > self._deadline - time.monotonic():
            raise error
        return pause


def _path(model: str, version: str) -> str:
    path = f"/v2/models/{quote(model, safe='')}"
    return f"{path}/versions/{quote(version, safe='')}" if version else path
