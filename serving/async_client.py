"""Asking a served model for predictions from asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from serving.client import expect_retries
from serving.connection.address import Tls, parse_address
from serving.connection.grpc_async import AsyncGrpcConnection
from serving.connection.messages import MOST_RETRIES
from serving.connection.tensors import encode_tensors
from serving.contract import Contract, read_contract
from serving.errors import ClientError
from serving.exchange import to_requests, to_table
from workflow.expressions.column import Array


class AsyncEnsembleClient:
    """What `EnsembleClient` is, for asyncio and over gRPC: many requests under way in one thread.

    It connects when it is entered, and belongs to the event loop that it was entered in.

    Args:
        url: the server's gRPC address: "127.0.0.1:8001" or "grpc://...", and "grpcs://" with TLS.
        model_name: the model.
        model_version: its version; "" lets the server choose, which is the latest.
        timeout: seconds for each request, its retries included.
        headers: sent with every request.
        tls: the certificates, for "grpcs://".
        retries: how often a request is sent again that the server did not take, 0 to 4.

    Raises:
        ClientError: settings that make no sense; and when it is entered, as `EnsembleClient`.

    Example:
        >>> async def score(rows):
        ...     async with AsyncEnsembleClient("127.0.0.1:8001", "movielens") as client:
        ...         return await asyncio.gather(*(client.predict(part) for part in rows))
    """

    def __init__(
        self,
        url: str,
        model_name: str,
        *,
        model_version: str = "",
        timeout: float = 60.0,
        headers: Mapping[str, str] | None = None,
        tls: Tls | None = None,
        retries: int = MOST_RETRIES,
    ) -> None:
        expect_retries(retries)
        self.url = url
        self.model_name = model_name
        self.model_version = model_version
        self.timeout = timeout
        self._address = parse_address(url, tls)
        if self._address.scheme.startswith("http"):
            raise ClientError(
                "INVALID_INPUT",
                f"Expected a gRPC address, for example 127.0.0.1:8001. Received: {url!r}. "
                "For HTTP take EnsembleClient.",
            )
        self._headers = dict(headers or {})
        self._retries = retries
        self._open: tuple[AsyncGrpcConnection, Contract] | None = None

    @property
    def contract(self) -> Contract:
        """The model's inputs, outputs, label columns and generation.

        Raises:
            ClientError: the client was not entered.
        """
        return self._entered()[1]

    async def predict(self, data: Any, *, timeout: float | None = None) -> Any:  # noqa: ASYNC109
        """Predict for every row of a table: see `EnsembleClient.predict`.

        Raises:
            ClientError: as `EnsembleClient.predict`.
        """
        contract = self.contract
        answers = [
            await self.raw(request, timeout=timeout) for request in to_requests(contract, data)
        ]
        return to_table(contract, data, answers)

    async def raw(
        self,
        tensors: Mapping[str, Array],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - gRPC's own deadline, known to the server
    ) -> dict[str, Array]:
        """Send tensors as they are, and return the output tensors as they come.

        Raises:
            ClientError: as `EnsembleClient.raw`.
        """
        connection, _ = self._entered()
        seconds = self.timeout if timeout is None else timeout
        return await connection.infer(
            self.model_name, self.model_version, encode_tensors(tensors), seconds
        )

    async def close(self) -> None:
        """Close the connection. Closing it twice does nothing."""
        if self._open is not None:
            await self._open[0].close()
            self._open = None

    def _entered(self) -> tuple[AsyncGrpcConnection, Contract]:
        if self._open is None:
            raise ClientError(
                "CANCELLED", "Expected an open connection. Write `async with` before the client."
            )
        return self._open

    async def __aenter__(self) -> Self:
        """Connect, and read the model's contract."""
        connection = AsyncGrpcConnection(self._address, self._headers, self._retries)
        try:
            config = await connection.config(self.model_name, self.model_version, self.timeout)
            self._open = connection, read_contract(config)
        except BaseException:
            await connection.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        await self.close()
