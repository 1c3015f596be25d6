"""A connection over HTTP, with tensors in Triton's binary form. Thread-safe."""

from __future__ import annotations

import http.client
import select
import socket
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress

from serving.connection import http_messages
from serving.connection.address import Address, tls_context
from serving.connection.calls import Connection, expect_open
from serving.connection.http_messages import (
    HEADER_LENGTH,
    Answer,
    Attempts,
    Request,
    expect_ok,
)
from serving.connection.idle import Idle
from serving.errors import ServerUnavailableError, refusal

# Bytes of an answer that are read at once.
_PART = 1 << 20
# The format of zlib's data is read from its header.
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


class HttpConnection(Connection):
    """A pool of connections, as many as there were concurrent calls."""

    messages = http_messages

    def __init__(self, address: Address, headers: Mapping[str, str], retries: int) -> None:
        self.address = address
        self._headers = dict(headers)
        self._retries = retries
        self._tls = None if address.tls is None else tls_context(address.tls)
        self._idle = Idle(http.client.HTTPConnection.close)
        self._closed = False

    def close(self) -> None:  # noqa: D102 - see Connection
        self._closed = True
        with suppress(IndexError):  # A call may have taken the last one.
            while True:
                self._idle.pop().close()

    def _call(self, request: Request, timeout: float) -> Answer:
        expect_open(self._closed)
        attempts = Attempts(self._retries, timeout)
        while True:
            try:
                answer = self._once(request, attempts.left)
                expect_ok(answer, request, self.address.url)
            except ServerUnavailableError as error:
                time.sleep(attempts.pause(error))
            else:
                return answer

    def _once(self, request: Request, timeout: float) -> Answer:
        connection = self._take()
        deadline = time.monotonic() + timeout
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        headers = {**self._headers, **request.headers}
        try:
            connection.request(
                request.method, self.address.path + request.path, request.body, headers
            )
            # None after an answer that ends the connection.
            connected = connection.sock
            response = connection.getresponse()
            content = _read(response, connected, deadline)
            if response.headers.get("Content-Encoding") in ("gzip", "deflate"):
                content = zlib.decompress(content, _GZIP_OR_ZLIB)
        except TimeoutError as error:
            connection.close()
            raise refusal("DEADLINE_EXCEEDED", "Deadline exceeded", self.address.url) from error
        except (OSError, http.client.HTTPException, zlib.error) as error:
            connection.close()
            text = f"{error}"
            if not text.isprintable():
                text = (
                    "The answer is not HTTP, as from a port of gRPC, whose address has no http://"
                )
            raise refusal("UNAVAILABLE", text, self.address.url) from error
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)
        length = response.headers.get(HEADER_LENGTH, "0")
        return Answer(response.status, response.reason, length, content)

    def _take(self) -> http.client.HTTPConnection:
        """An idle connection that the other side has not ended, or a new one."""
        with suppress(IndexError):  # All are busy.
            while _has_ended(connection := self._idle.pop()):
                connection.close()
            return connection
        return self._connect()

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self.address.host, self.address.port
        if self._tls is None:
            return http.client.HTTPConnection(host, port)
        return http.client.HTTPSConnection(host, port, context=self._tls)


def _has_ended(connection: http.client.HTTPConnection) -> bool:
    """Whether the other side has ended an idle connection: nothing else is there to read."""
    if connection.sock is None:  # It connects again by itself.
        return False
    readable = select.poll()
    readable.register(connection.sock, select.POLLIN)
    return bool(readable.poll(0))


def _read(
    response: http.client.HTTPResponse, connection: socket.socket | None, deadline: float
) -> bytes:
    """The body of an answer; its parts share one deadline.

    Raises:
        TimeoutError: the deadline has passed.
        HTTPException: the answer is incomplete.
    """
    parts = []
    while part := response.read1(_PART):
        parts.append(part)
        # Of an answer in chunks, as proxies send it, the length is None.
        if response.length != 0 and connection is not None:
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                raise TimeoutError
            connection.settimeout(seconds)
    if response.length:
        raise http.client.IncompleteRead(b"".join(parts), response.length)
    response.close()
    return b"".join(parts)
