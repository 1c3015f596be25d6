"""A connection over HTTP for asyncio, with tensors in Triton's binary form."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from serving.connection.address import Address
from serving.connection.http_messages import (
    HEADER_LENGTH,
    Answer,
    Attempts,
    Request,
    config_request,
    config_response,
    expect_ok,
    infer_request,
    infer_response,
    register_request,
    tls_context,
    unregister_request,
)
from serving.connection.tensors import WireTensor
from serving.errors import ClientError, ServerUnavailableError, refusal
from workflow.schema.column import Array


class AsyncHttpConnection:
    """Up to a hundred connections, bound to the event loop in which they were made.

    Args:
        address: the server's address.
        headers: sent with every call.
        retries: how often a call that the server did not accept is repeated.

    Raises:
        ClientError: a certificate that cannot be read.
    """

    def __init__(self, address: Address, headers: Mapping[str, str], retries: int) -> None:
        self.address = address
        self._retries = retries
        self._root = f"{address.scheme}://{address.target}{address.path}"
        secured = True if address.tls is None else tls_context(address.tls)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=secured),
            headers={"Accept-Encoding": "identity", **headers},
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def infer(
        self,
        model: str,
        version: str,
        tensors: Sequence[WireTensor],
        timeout: float,  # noqa: ASYNC109 - as over gRPC
    ) -> dict[str, Array]:
        """The outputs of a model.

        Raises:
            ClientError: no answer, or a refusal.
        """
        return infer_response(await self._call(infer_request(model, version, tensors), timeout))

    async def config(self, model: str, version: str, timeout: float) -> Any:  # noqa: ASYNC109
        """A model's `ModelConfig`.

        Raises:
            ClientError: no answer, or no such model.
        """
        return config_response(await self._call(config_request(model, version), timeout))

    async def register(self, region: str, key: str, size: int, timeout: float) -> None:  # noqa: ASYNC109
        """Register a shared-memory region with the server.

        Raises:
            ClientError: no answer, or the server does not allow shared memory.
        """
        await self._call(register_request(region, key, size), timeout)

    async def unregister(self, region: str, timeout: float) -> None:  # noqa: ASYNC109
        """Unregister a shared-memory region.

        Raises:
            ClientError: no answer, or a refusal.
        """
        await self._call(unregister_request(region), timeout)

    async def close(self) -> None:
        """Close the connections. Further calls do nothing."""
        await self._session.close()

    async def _call(self, request: Request, timeout: float) -> Answer:  # noqa: ASYNC109
        if self._session.closed:
            raise ClientError("CANCELLED", "Expected an open connection. Received: a closed one.")
        attempts = Attempts(self._retries, timeout)
        while True:
            try:
                answer = await self._once(request, attempts.left)
                expect_ok(answer, request, self.address.url)
            except ServerUnavailableError as error:
                await asyncio.sleep(attempts.pause(error))
            else:
                return answer

    async def _once(self, request: Request, timeout: float) -> Answer:  # noqa: ASYNC109
        try:
            async with self._session.request(
                request.method,
                self._root + request.path,
                data=request.body,
                headers=request.headers,
                timeout=aiohttp.ClientTimeout(total=timeout),
                allow_redirects=False,
            ) as response:
                length = int(response.headers.get(HEADER_LENGTH, 0))
                reason, content = response.reason or "", await response.read()
                return Answer(response.status, reason, length, content)
        except TimeoutError as error:
            raise refusal("DEADLINE_EXCEEDED", "Deadline exceeded", self.address.url) from error
        except (OSError, aiohttp.ClientError) as error:
            raise refusal("UNAVAILABLE", f"{error}", self.address.url) from error
