"""Predictions of a served model from asyncio."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self, overload

from serving.client import expect_headers, expect_retries, expect_timeout, not_copied
from serving.connection.address import Address, Tls, parse_address
from serving.connection.channel import MOST_RETRIES
from serving.connection.grpc_async import AsyncGrpcConnection
from serving.connection.shared_memory import AsyncRegions, is_forgotten, time_left
from serving.connection.tensors import Inference, WireTensor, encode_tensors
from serving.contract import Contract, Contracts, read_contract
from serving.errors import ClientError
from serving.exchange import (
    MOST_ATTEMPTS,
    UNFIT,
    is_of_another,
    of_another_contract,
    of_one_version,
    of_other_versions,
    to_requests,
    to_table,
)
from workflow.schema.column import Array

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from serving.connection.http_async import AsyncHttpConnection


class _Open(NamedTuple):
    """Parts of an entered client."""

    connection: AsyncGrpcConnection | AsyncHttpConnection
    contracts: Contracts
    memory: AsyncRegions | None


class AsyncEnsembleClient:
    """`EnsembleClient` for asyncio: many concurrent requests in one thread.

    It connects on entry, and belongs to the event loop in which it was entered.

    Args:
        url: the server's address: "127.0.0.1:8001" or "grpc://127.0.0.1:8001" for gRPC,
            "http://127.0.0.1:8000" for HTTP, which requires the package aiohttp, "grpcs://" or
            "https://" for the same over TLS.
        model_name: the model.
        model_version: its version; "" lets the server choose, which takes the latest.
        timeout: seconds for each request, including its retries.
        headers: sent with every request.
        tls: the certificates, for "grpcs://" and "https://".
        retries: how often a request that the server did not accept is sent again, 0 to 4.
        shared_memory: whether tensors go to the server in shared memory, as in `EnsembleClient`.

    Raises:
        ClientError: invalid settings; on entry, as `EnsembleClient`.

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
        model_version: int | str = "",
        timeout: float = 60.0,
        headers: Mapping[str, str] | None = None,
        tls: Tls | None = None,
        retries: int = MOST_RETRIES,
        shared_memory: bool = False,
    ) -> None:
        expect_retries(retries)
        expect_headers(headers or {})
        self.url = url
        self.model_name = model_name
        self.model_version = str(model_version)
        self.timeout = expect_timeout(timeout)
        self._address = parse_address(url, tls)
        self._headers = dict(headers or {})
        self._retries = retries
        self._shared_memory = shared_memory
        self._open: _Open | None = None

    def __repr__(self) -> str:
        state = "" if self._open else ", not entered"
        return f"AsyncEnsembleClient({self.url!r}, {self.model_name!r}{state})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied, as `EnsembleClient.__reduce__`.

        Raises:
            ClientError: always.
        """
        raise not_copied(self)

    @property
    def contract(self) -> Contract:
        """The model's inputs, outputs, label columns and generation.

        Raises:
            ClientError: the client was not entered.
        """
        return self._entered().contracts.current

    @overload
    async def predict(
        self,
        data: pl.DataFrame,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> pl.DataFrame: ...
    @overload
    async def predict(
        self,
        data: Mapping[str, Any],
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> dict[str, Array]: ...
    @overload
    async def predict(
        self,
        data: pd.DataFrame,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> pd.DataFrame: ...

    async def predict(self, data: Any, *, timeout: float | None = None) -> Any:  # noqa: ASYNC109
        """Predict for every row of a table: see `EnsembleClient.predict`.

        Raises:
            ClientError: as `EnsembleClient.predict`.
        """
        for more in reversed(range(MOST_ATTEMPTS)):
            contract = self.contract
            try:
                answer, version = await self._predict(contract, data, timeout)
            except UNFIT:
                if not (await self._renewed(contract, timeout) and more):
                    raise
                continue
            if not is_of_another(version, contract, self.model_version):
                return answer
            await self._renewed(contract, timeout)
            known = self._entered().contracts.of(version)
            self._set(known)
            if known.current.version == version and known.current.is_read_as(contract):
                return answer
        raise of_another_contract(version, contract)

    async def raw(
        self,
        tensors: Mapping[str, Array],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the connection's own
    ) -> dict[str, Array]:
        """Send tensors unchanged, and return the output tensors unchanged.

        Raises:
            ClientError: as `EnsembleClient.raw`.
        """
        return (await self._ask(tensors, timeout)).tensors

    async def close(self) -> None:
        """Close the connection and free shared memory. Further calls do nothing.

        With shared memory requests under way are waited for, at most 5 seconds; otherwise over gRPC, and
        under asyncio, they raise a ClientError.
        """
        if self._open is not None:
            connection, _, memory = self._open
            self._open = None
            try:
                if memory is not None:
                    await memory.close()
            finally:
                await connection.close()

    async def _predict(
        self,
        contract: Contract,
        data: Any,
        timeout: float | None,  # noqa: ASYNC109
    ) -> tuple[Any, str]:
        requests = to_requests(contract, data)
        answers = [await self._ask(request, timeout) for request in requests]
        for place in of_other_versions(answers):
            answers[place] = await self._ask(requests[place], timeout)
        version = answers[-1].version if answers else ""
        return to_table(contract, data, of_one_version(answers)), version

    async def _ask(self, tensors: Mapping[str, Array], timeout: float | None) -> Inference:  # noqa: ASYNC109
        memory, seconds = self._entered().memory, self._seconds(timeout)
        if memory is None:
            return await self._infer(encode_tensors(tensors), seconds)
        deadline = time.monotonic() + seconds
        try:
            return await self._ask_in(memory, tensors, deadline)
        except ClientError as error:
            if not is_forgotten(error):
                raise
        return await self._ask_in(memory, tensors, deadline)

    async def _ask_in(
        self, memory: AsyncRegions, tensors: Mapping[str, Array], deadline: float
    ) -> Inference:
        async with memory.holding(tensors, deadline) as encoded:
            return await self._infer(encoded, time_left(deadline))

    async def _renewed(self, before: Contract, timeout: float | None) -> bool:  # noqa: ASYNC109
        """Read the contract again; whether it has changed. Errors are those of the request."""
        with suppress(ClientError):
            config = await self._entered().connection.config(
                self.model_name, self.model_version, self._seconds(timeout)
            )
            self._set(self._entered().contracts.with_current(read_contract(config)))
        return self.contract != before

    def _set(self, contracts: Contracts) -> None:
        self._open = self._entered()._replace(contracts=contracts)

    async def _infer(self, tensors: Sequence[WireTensor], timeout: float) -> Inference:  # noqa: ASYNC109
        return await self._entered().connection.infer(
            self.model_name, self.model_version, tensors, timeout
        )

    def _seconds(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else expect_timeout(timeout)

    def _entered(self) -> _Open:
        if self._open is None:
            raise ClientError(
                "CANCELLED", "Expected an open connection. Write `async with` before the client."
            )
        return self._open

    def _expect_closed(self) -> None:
        if self._open is not None:
            raise ClientError(
                "INVALID_INPUT",
                f"{self!r} has a connection already, which its tasks may share. Enter it once.",
            )

    async def __aenter__(self) -> Self:
        """Connect, and read the model's contract."""
        self._expect_closed()
        connection = _connection_class(self._address)(self._address, self._headers, self._retries)
        try:
            config = await connection.config(self.model_name, self.model_version, self.timeout)
            memory = AsyncRegions(connection) if self._shared_memory else None
            self._expect_closed()  # another task may have entered meanwhile
            self._open = _Open(connection, Contracts(read_contract(config)), memory)
        except BaseException:
            await connection.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection."""
        await self.close()


def _connection_class(address: Address) -> type[AsyncGrpcConnection | AsyncHttpConnection]:
    """The class that connects to an address."""
    if not address.scheme.startswith("http"):
        return AsyncGrpcConnection
    try:
        # Clients over gRPC should not wait for the import of aiohttp.
        from serving.connection.http_async import AsyncHttpConnection  # noqa: PLC0415
    except ImportError as error:
        raise ClientError(
            "INVALID_INPUT",
            f"Expected the package aiohttp, for HTTP from asyncio. Received: {error}. "
            "Install tritonclient[http], or give the server's gRPC address.",
        ) from error
    return AsyncHttpConnection
