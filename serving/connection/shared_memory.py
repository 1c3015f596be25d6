"""Tensors in memory that the client shares with a server on the same machine."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from multiprocessing.shared_memory import SharedMemory
from typing import Any, Protocol

import numpy as np

from serving.connection.tensors import Encoded, Place, datatype_of, to_bytes
from serving.errors import ClientError, DeadlineExceededError
from workflow.schema.column import Array

PREFIX = "ensemble_client_"
# Tensors are aligned to cache lines; a region is never smaller than this.
_ALIGNMENT, _SMALLEST = 64, 1 << 16
_CLOSE_TIMEOUT = 5.0


class Registry(Protocol):
    """The calls that register regions with a server."""

    def register(self, region: str, key: str, size: int, timeout: float) -> None:
        """Register a region."""

    def unregister(self, region: str, timeout: float) -> None:
        """Unregister a region."""


class AsyncRegistry(Protocol):
    """The same calls for asyncio."""

    async def register(self, region: str, key: str, size: int, timeout: float) -> None:  # noqa: ASYNC109
        """Register a region."""

    async def unregister(self, region: str, timeout: float) -> None:  # noqa: ASYNC109
        """Unregister a region."""


class Regions:
    """Registered regions of shared memory, one for each running request.

    They are reused, and freed by `close`. If this process is killed, Python's resource tracker
    frees them. The server is told so by `close` at the latest: the end of a call that has used up
    its time does not wait for that.

    Args:
        registry: the connection to the server.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._idle: deque[SharedMemory] = deque()
        # Names of freed regions that the server may still have.
        self._unclear: list[str] = []

    @contextmanager
    def holding(self, tensors: Mapping[str, Array], deadline: float) -> Iterator[list[Encoded]]:
        """Write tensors to a region, reserved for the duration of a request.

        Args:
            tensors: by name.
            deadline: the end of the request's time, in `time.monotonic()`.

        Raises:
            ClientError: no shared memory is left, or the server refuses it.
        """
        layout = _Layout(tensors)
        region = self._take(layout.size, deadline)
        try:
            yield layout.laid_into(region)
        except BaseException:
            # The server may still read it, so no other request can have it.
            self._free(region, deadline)
            raise
        self._idle.append(region)

    def close(self) -> None:
        """Free all regions."""
        deadline = time.monotonic() + _CLOSE_TIMEOUT
        while self._idle:
            self._free(self._idle.pop(), deadline)
        unclear, self._unclear = self._unclear, []
        for name in unclear:
            self._unregister(name, deadline)

    def _take(self, size: int, deadline: float) -> SharedMemory:
        with suppress(IndexError):  # Another thread may have taken the last one.
            region = self._idle.pop()
            if region.size >= size:
                return region
            self._free(region, deadline)
        region = _create(size)
        try:
            self._registry.register(
                region.name, f"/{region.name}", region.size, time_left(deadline)
            )
        except BaseException:
            self._free(
                region, deadline
            )  # The server may have registered it without answering in time.
            raise
        return region

    def _free(self, region: SharedMemory, deadline: float) -> None:
        try:
            self._unregister(region.name, deadline)
        finally:
            _remove(region)

    def _unregister(self, name: str, deadline: float) -> None:
        try:
            self._registry.unregister(name, min(time_left(deadline), _CLOSE_TIMEOUT))
        except DeadlineExceededError:
            self._unclear.append(name)
        except ClientError:
            pass  # A server that has stopped has lost its registrations.


class AsyncRegions:
    """`Regions` for asyncio.

    Args:
        registry: the connection to the server.
    """

    def __init__(self, registry: AsyncRegistry) -> None:
        self._registry = registry
        self._idle: deque[SharedMemory] = deque()
        # Names of freed regions that the server may still have.
        self._unclear: list[str] = []

    @asynccontextmanager
    async def holding(
        self,
        tensors: Mapping[str, Array],
        deadline: float,
    ) -> AsyncIterator[list[Encoded]]:
        """Write tensors to a region, reserved for the duration of a request.

        Args:
            tensors: by name.
            deadline: the end of the request's time, in `time.monotonic()`.

        Raises:
            ClientError: no shared memory is left, or the server refuses it.
        """
        layout = _Layout(tensors)
        region = await self._take(layout.size, deadline)
        try:
            yield layout.laid_into(region)
        except BaseException:
            # The server may still read it, so no other request can have it.
            await self._free(region, deadline)
            raise
        self._idle.append(region)

    async def close(self) -> None:
        """Free all regions."""
        deadline = time.monotonic() + _CLOSE_TIMEOUT
        while self._idle:
            await self._free(self._idle.pop(), deadline)
        unclear, self._unclear = self._unclear, []
        for name in unclear:
            await self._unregister(name, deadline)

    async def _take(self, size: int, deadline: float) -> SharedMemory:
        if self._idle:
            region = self._idle.pop()
            if region.size >= size:
                return region
            await self._free(region, deadline)
        region = _create(size)
        try:
            await _to_the_end(
                self._registry.register(
                    region.name, f"/{region.name}", region.size, time_left(deadline)
                )
            )
        except BaseException:
            await self._free(region, deadline)
            raise
        return region

    async def _free(self, region: SharedMemory, deadline: float) -> None:
        try:
            await self._unregister(region.name, deadline)
        finally:
            _remove(region)

    async def _unregister(self, name: str, deadline: float) -> None:
        timeout = min(time_left(deadline), _CLOSE_TIMEOUT)
        try:
            await _to_the_end(self._registry.unregister(name, timeout))
        except DeadlineExceededError:
            self._unclear.append(name)
        except ClientError:
            pass


def time_left(deadline: float) -> float:
    """The seconds until a deadline in `time.monotonic()`, with a minimum above 0."""
    return max(deadline - time.monotonic(), 1e-3)


async def _to_the_end(call: Coroutine[Any, Any, None]) -> None:
    """Await a call even if the caller is cancelled, so that the server's state stays known."""
    task = asyncio.ensure_future(call)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(ClientError):
            await task
        raise


class _Layout:
    """Positions of a request's tensors in a region."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        self._tensors = tensors
        self._contents = {name: _content(tensor) for name, tensor in tensors.items()}
        self._offsets, self.size = {}, 0
        for name, content in self._contents.items():
            self._offsets[name] = self.size
            self.size += -(-len(content) // _ALIGNMENT) * _ALIGNMENT

    def laid_into(self, region: SharedMemory) -> list[Encoded]:
        """Write the tensors to a region, and return their encoded form."""
        view: Any = region.buf  # None only after close.
        encoded = []
        for name, tensor in self._tensors.items():
            offset, content = self._offsets[name], self._contents[name]
            view[offset : offset + len(content)] = content
            # A request must not refer to an empty part of a region: an empty tensor is sent
            # directly.
            data = Place(region.name, offset, len(content)) if len(content) else b""
            encoded.append(Encoded(name, datatype_of(name, tensor), tensor.shape, data))
        return encoded


def _create(size: int) -> SharedMemory:
    """A new region.

    Raises:
        ClientError: no shared memory is left.
    """
    try:
        name = f"{PREFIX}{os.getpid()}_{secrets.token_hex(8)}"
        return SharedMemory(name, create=True, size=max(_SMALLEST, 1 << (size - 1).bit_length()))
    except OSError as error:
        raise ClientError(
            "RESOURCE_EXHAUSTED",
            f"Expected {size:,} bytes of shared memory. Received: {error}.",
        ) from error


def _remove(region: SharedMemory) -> None:
    region.close()
    region.unlink()


def _content(tensor: Array) -> bytes | memoryview:
    """The bytes of a tensor; numbers are not copied."""
    if tensor.dtype.kind in "OSU" or not tensor.size:
        return to_bytes(tensor)
    return np.ascontiguousarray(tensor).data.cast("B")
