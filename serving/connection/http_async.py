"""A connection over HTTP for asyncio, with tensors in Triton's binary form."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aiohttp

from serving.connection import http_messages
from serving.connection.address import Address, tls_context
from serving.connection.calls import AsyncConnection, expect_open
from serving.connection.channel import metadata
from serving.connection.http_messages import (
    HEADER_LENGTH,
    Answer,
    Attempts,
    Request,
    expect_ok,
)
from serving.errors import ServerUnavailableError, refusal


class AsyncHttpConnection(AsyncConnection):
    """Up to a hundred connections, bound to the event loop in which they were made."""

    messages = http_messages

    def __init__(self, address: Address, headers: Mapping[str, str], retries: int) -> None:
        super().__init__()
        self.address = address
        self._retries = retries
        self._root = f"{address.scheme}://{address.target}{address.path}"
        secured = True if address.tls is None else tls_context(address.tls)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=secured),
            headers={"accept-encoding": "identity", **dict(metadata(headers))},
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:  # noqa: D102 - see AsyncConnection
        await self._session.close()

    async def _call(self, request: Request, timeout: float) -> Answer:  # noqa: ASYNC109
        attempts = Attempts(self._retries, timeout)
        while True:
            expect_open(self._session.closed)
            try:
                answer = await self._once(request, attempts.left)
                expect_ok(answer, request, self.address.url)
            except ServerUnavailableError as error:
                if not self._session.closed:
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
                length = response.headers.get(HEADER_LENGTH, "0")
                reason, content = response.reason or "", await response.read()
                return Answer(response.status, reason, length, content)
        except TimeoutError as error:
            raise refusal("DEADLINE_EXCEEDED", "Deadline exceeded", self.address.url) from error
        except (OSError, aiohttp.ClientError) as error:
            raise refusal("UNAVAILABLE", f"{error}", self.address.url) from error
