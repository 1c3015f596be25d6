"""The calls of a connection, the same over gRPC and HTTP, with and without asyncio."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from google.protobuf.json_format import ParseError

from serving.connection.tensors import Inference, WireTensor
from serving.errors import ClientError

_Read = TypeVar("_Read")


class Messages(Protocol):
    """The requests and answers of a protocol: the modules `grpc_messages` and `http_messages`."""

    def infer_request(self, model: str, version: str, tensors: Sequence[WireTensor]) -> Any:
        """A request for an inference."""

    def infer_response(self, answer: Any) -> Inference:
        """The version and the tensors of an answer."""

    def config_request(self, model: str, version: str) -> Any:
        """A request for a model's config."""

    def config_response(self, answer: Any) -> Any:
        """The `ModelConfig` of an answer."""

    def register_request(self, region: str, key: str, size: int) -> Any:
        """A request to register a shared-memory region."""

    def unregister_request(self, region: str) -> Any:
        """A request to unregister a shared-memory region."""


def read_answer(read: Callable[[Any], _Read], answer: Any) -> _Read:
    """The content of an answer.

    Raises:
        ClientError: an incomplete or inconsistent answer, or one of another server than Triton.
    """
    try:
        return read(answer)
    # gRPC for asyncio returns None in place of an invalid message.
    except (AttributeError, LookupError, TypeError, ValueError, ParseError) as error:
        raise ClientError(
            "INTERNAL",
            f"Expected the answer of a Triton server. Received: {answer!r:.200}. Check the address, and "
            "proxies on the way to it.",
        ) from error


def expect_open(closed: bool) -> None:
    """Check that a connection was not closed.

    Raises:
        ClientError: it was.
    """
    if closed:
        raise ClientError("CANCELLED", "Expected an open connection. Received: a closed one.")


class Connection(ABC):
    """A connection to a server.

    Each protocol's is made of the server's address, the headers that are sent with every call, and how
    often a call that the server did not accept is repeated. A certificate that cannot be read raises
    ClientError.

    Attributes:
        messages: the requests and answers of its protocol.
    """

    messages: Messages

    def infer(
        self, model: str, version: str, tensors: Sequence[WireTensor], timeout: float
    ) -> Inference:
        """The outputs of a model.

        Raises:
            ClientError: no answer, or a refusal.
        """
        request = self.messages.infer_request(model, version, tensors)
        return read_answer(self.messages.infer_response, self._call(request, timeout))

    def config(self, model: str, version: str, timeout: float) -> Any:
        """A model's `ModelConfig`.

        Raises:
            ClientError: no answer, or no such model.
        """
        request = self.messages.config_request(model, version)
        return read_answer(self.messages.config_response, self._call(request, timeout))

    def register(self, region: str, key: str, size: int, timeout: float) -> None:
        """Register a shared-memory region with the server.

        Raises:
            ClientError: no answer, or the server does not allow shared memory.
        """
        self._call(self.messages.register_request(region, key, size), timeout)

    def unregister(self, region: str, timeout: float) -> None:
        """Unregister a shared-memory region.

        Raises:
            ClientError: no answer, or a refusal.
        """
        self._call(self.messages.unregister_request(region), timeout)

    @abstractmethod
    def close(self) -> None:
        """Close it. Further calls do nothing."""

    @abstractmethod
    def _call(self, request: Any, timeout: float) -> Any:
        """The answer to a request."""


class AsyncConnection(ABC):
    """`Connection` for asyncio. It belongs to the event loop in which it is made."""

    messages: Messages

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    async def infer(
        self,
        model: str,
        version: str,
        tensors: Sequence[WireTensor],
        timeout: float,  # noqa: ASYNC109 - over gRPC the deadline, which the server knows
    ) -> Inference:
        """See `Connection.infer`."""
        request = self.messages.infer_request(model, version, tensors)
        return read_answer(self.messages.infer_response, await self._answer(request, timeout))

    async def config(self, model: str, version: str, timeout: float) -> Any:  # noqa: ASYNC109
        """See `Connection.config`."""
        request = self.messages.config_request(model, version)
        return read_answer(self.messages.config_response, await self._answer(request, timeout))

    async def register(self, region: str, key: str, size: int, timeout: float) -> None:  # noqa: ASYNC109
        """See `Connection.register`."""
        await self._answer(self.messages.register_request(region, key, size), timeout)

    async def unregister(self, region: str, timeout: float) -> None:  # noqa: ASYNC109
        """See `Connection.unregister`."""
        await self._answer(self.messages.unregister_request(region), timeout)

    async def _answer(self, request: Any, timeout: float) -> Any:  # noqa: ASYNC109
        if asyncio.get_running_loop() is not self._loop:
            raise ClientError(
                "CANCELLED",
                "Expected the event loop in which the client was entered. Received: another one. "
                "Enter a client in each event loop, so in each call of asyncio.run.",
            )
        return await self._call(request, timeout)

    @abstractmethod
    async def close(self) -> None:
        """Close it. Further calls do nothing."""

    @abstractmethod
    async def _call(self, request: Any, timeout: float) -> Any:  # noqa: ASYNC109
        """The answer to a request."""
