"""A connection over HTTP, with tensors in Triton's binary form. Threads may share it."""

from __future__ import annotations

import http.client
import json
import random
import ssl
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from google.protobuf import json_format
from tritonclient.grpc import model_config_pb2

from serving.connection.address import Address, Tls
from serving.connection.messages import FIRST_PAUSE, LONGEST_PAUSE
from serving.connection.tensors import Encoded, Place, from_bytes
from serving.errors import ClientError, ServerUnavailableError, refusal
from workflow.expressions.column import Array

_HEADER_LENGTH = "Inference-Header-Content-Length"
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


class HttpConnection:
    """Keeps as many connections open as calls were under way at once.

    Args:
        address: where the server is.
        headers: sent with every call.
        retries: how often a call is repeated that the server did not take.

    Raises:
        ClientError: a certificate that cannot be read.
    """

    def __init__(self, address: Address, headers: Mapping[str, str], retries: int) -> None:
        self.address = address
        self._headers = dict(headers)
        self._retries = retries
        self._tls = None if address.tls is None else _context(address.tls)
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._closed = False

    def infer(
        self, model: str, version: str, tensors: Iterable[Encoded], timeout: float
    ) -> dict[str, Array]:
        """The outputs of a model.

        Raises:
            ClientError: no answer, or a refusal.
        """
        head, body = _body(tensors)
        headers = {_HEADER_LENGTH: str(head), "Content-Type": "application/octet-stream"}
        answer = self._call("POST", f"{_path(model, version)}/infer", timeout, body, headers)
        return _outputs(*answer)

    def config(self, model: str, version: str, timeout: float) -> Any:
        """A model's `ModelConfig`.

        Raises:
            ClientError: no answer, or no such model.
        """
        _, content = self._call("GET", f"{_path(model, version)}/config", timeout)
        return json_format.Parse(
            content, model_config_pb2.ModelConfig(), ignore_unknown_fields=True
        )

    def register(self, region: str, key: str, size: int, timeout: float) -> None:
        """Tell the server of a shared-memory region.

        Raises:
            ClientError: no answer, or the server allows no shared memory.
        """
        body = json.dumps({"key": key, "offset": 0, "byte_size": size}).encode()
        self._call("POST", f"/v2/systemsharedmemory/region/{region}/register", timeout, body)

    def unregister(self, region: str, timeout: float) -> None:
        """Let the server forget a shared-memory region.

        Raises:
            ClientError: no answer, or a refusal.
        """
        self._call("POST", f"/v2/systemsharedmemory/region/{region}/unregister", timeout, b"")

    def close(self) -> None:
        """Close the connections. Closing them twice does nothing."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _call(
        self,
        method: str,
        path: str,
        timeout: float,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """The length of the answer's JSON, 0 where it is all of it, and the answer."""
        if self._closed:
            raise ClientError("CANCELLED", "Expected an open connection. Received: a closed one.")
        deadline = time.monotonic() + timeout
        for attempt in range(self._retries + 1):
            try:
                return self._once(
                    method, path, deadline, body, {**self._headers, **(headers or {})}
                )
            except ServerUnavailableError:
                pause = min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE) * random.uniform(0.8, 1.2)  # noqa: S311
                if attempt == self._retries or time.monotonic() + pause > deadline:
                    raise
                time.sleep(pause)
        raise AssertionError  # The last attempt returns or raises.

    def _once(
        self, method: str, path: str, deadline: float, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        try:
            connection = self._idle.pop()
        except IndexError:  # All are busy.
            connection = self._connect()
        left = max(deadline - time.monotonic(), 1e-3)
        connection.timeout = left
        if connection.sock is not None:
            connection.sock.settimeout(left)
        try:
            connection.request(method, self.address.path + path, body, headers)
            response = connection.getresponse()
            content = response.read()
        except TimeoutError as error:
            connection.close()
            raise refusal("DEADLINE_EXCEEDED", "Deadline exceeded", self.address.url) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise refusal("UNAVAILABLE", f"{error}", self.address.url) from error
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)
        if response.status != http.client.OK:
            code = _CODES.get(response.status, "INTERNAL")
            raise refusal(code, _message(content, response.reason), self.address.url)
        return int(response.headers.get(_HEADER_LENGTH, 0)), content

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self.address.host, self.address.port
        if self._tls is None:
            return http.client.HTTPConnection(host, port)
        return http.client.HTTPSConnection(host, port, context=self._tls)


def _context(tls: Tls) -> ssl.SSLContext:
    tls.contents()  # Its error names the file.
    try:
        context = ssl.create_default_context(cafile=tls.root_certificates)
        if tls.certificate_chain is not None:
            context.load_cert_chain(tls.certificate_chain, tls.private_key)
    except ssl.SSLError as error:
        raise ClientError(
            "INVALID_INPUT", f"Expected certificates in PEM. Received: {tls}: {error}."
        ) from error
    return context


def _path(model: str, version: str) -> str:
    path = f"/v2/models/{quote(model, safe='')}"
    return f"{path}/versions/{quote(version, safe='')}" if version else path


def _body(tensors: Iterable[Encoded]) -> tuple[int, bytes]:
    """A request, and the length of the JSON that begins it."""
    inputs, contents = [], []
    for tensor in tensors:
        if isinstance(tensor.data, Place):
            parameters: dict[str, Any] = {
                "shared_memory_region": tensor.data.region,
                "shared_memory_byte_size": tensor.data.size,
                "shared_memory_offset": tensor.data.offset,
            }
        else:
            parameters = {"binary_data_size": len(tensor.data)}
            contents.append(tensor.data)
        described = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
        inputs.append({**described, "parameters": parameters})
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return len(head), b"".join([head, *contents])


def _outputs(head: int, content: bytes) -> dict[str, Array]:
    """The tensors of an answer."""
    tensors, offset = {}, head
    for output in json.loads(content[:head])["outputs"]:
        end = offset + output["parameters"]["binary_data_size"]
        data = content[offset:end]
        tensors[output["name"]] = from_bytes(output["datatype"], output["shape"], data)
        offset = end
    return tensors


def _message(content: bytes, reason: str) -> str:
    try:
        return str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        return reason
