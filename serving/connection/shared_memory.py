"""Tensors in memory that the client shares with a server on the same machine."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from mmap import MADV_REMOVE
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np

from serving.connection.calls import AsyncConnection, Connection, expect_open
from serving.connection.idle import Idle
from serving.connection.tensors import Place, WireTensor, datatype_of, to_bytes
from serving.errors import ClientError, DeadlineExceededError
from workflow.schema.column import Array

PREFIX = "ensemble_client_"
# Linux's folder for it, as in the supervisor, which imports nothing of ours.
_FOLDER = Path("/dev/shm")  # noqa: S108
# Tensors are aligned to cache lines; a region is never smaller than this.
_ALIGNMENT, _SMALLEST = 64, 1 << 16
# Seconds that `close` takes at most, and between its questions for a region that is in use.
CLOSE_TIMEOUT, _CLOSE_PAUSE = 5.0, 0.01
# A part of Triton's message for a region that a running request reads.
_IN_USE = "currently in use"
# And for one that it does not know, as after a restart.
_UNKNOWN = "Unable to find shared memory region"


class Regions:
    """Registered regions of shared memory, one for each running request.

    They are reused, and freed by `close`; a forked process makes its own. If nothing refers to them
    any more, or this process ends, their memory is freed without asking the server, which keeps the
    names. If the process is killed, Python's resource tracker frees them. A server refuses to give up
    a region while a request reads it, also one whose caller has stopped waiting. It is asked again
    when the next region is made, and by `close`.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._idle = Idle(SharedMemory.close)
        # An entry for each request under way, in this process.
        self._busy = Idle[None](lambda _: None)
        self._closed = False
        weakref.finalize(self, _drop, self._idle)
        # Names of freed regions that the server may still have.
        self._unclear: deque[str] = deque()

    @contextmanager
    def holding(self, tensors: Mapping[str, Array], deadline: float) -> Iterator[list[WireTensor]]:
        """Write tensors to a region, reserved for the duration of a request.

        Args:
            tensors: by name.
            deadline: the end of the request's time, in `time.monotonic()`.

        Raises:
            ClientError: no shared memory is left, or the server refuses it.
        """
        expect_open(self._closed)
        self._busy.append(None)
        try:
            layout = _Positions(tensors)
            region = self._take(layout.size, deadline)
            try:
                yield layout.laid_into(region)
            except BaseException as error:
                # The server may still read it, so no other request can have it.
                self._free(region, deadline)
                if is_forgotten(error):
                    self._free_idle(deadline)
                raise
            self._idle.append(region)
            if self._closed:
                self._free_idle(deadline)
        finally:
            self._busy.pop()

    def close(self) -> None:
        """Free all regions, when the requests under way are answered."""
        self._closed = True
        deadline = time.monotonic() + CLOSE_TIMEOUT
        self._free_idle(deadline)
        while (self._busy or self._unclear) and time.monotonic() < deadline:
            if not self._unregister_unclear(deadline) or self._busy:
                time.sleep(_CLOSE_PAUSE)

    def _take(self, size: int, deadline: float) -> SharedMemory:
        with suppress(IndexError):  # Another thread may have taken the last one.
            region = self._idle.pop()
            if region.size >= size:
                return region
            self._free(region, deadline)
        self._unregister_unclear(deadline)
        region = _create(size)
        try:
            self._connection.register(
                region.name, f"/{region.name}", region.size, time_left(deadline)
            )
        except BaseException:
            self._free(
                region, deadline
            )  # The server may have registered it without answering in time.
            raise
        return region

    def _free_idle(self, deadline: float) -> None:
        with suppress(IndexError):  # Another thread may have taken the last one.
            while True:
                self._free(self._idle.pop(), deadline)

    def _free(self, region: SharedMemory, deadline: float) -> None:
        # First, so that a registration that the server carries out late finds no memory.
        _remove(region)
        self._unregister(region.name, deadline)

    def _unregister_unclear(self, deadline: float) -> bool:
        """Unregister the regions that the server may still have.

        Returns:
            Whether the server has none of them any more; it is not asked past its first refusal.
        """
        with suppress(IndexError):  # None is left, or another thread has taken the last one.
            while self._unregister(self._unclear.popleft(), deadline):
                pass
        return not self._unclear

    def _unregister(self, name: str, deadline: float) -> bool:
        """Unregister a region.

        Returns:
            Whether the server has certainly given it up; if not, its name is kept.
        """
        try:
            self._connection.unregister(name, min(time_left(deadline), CLOSE_TIMEOUT))
        except ClientError as error:
            if _may_remain(error):
                self._unclear.append(name)
                return False
        return True


class AsyncRegions:
    """`Regions` for asyncio."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        # The number of requests under way.
        self._busy = 0
        self._closed = False
        self._idle = Idle(SharedMemory.close)
        weakref.finalize(self, _drop, self._idle)
        # Names of freed regions that the server may still have.
        self._unclear: deque[str] = deque()

    @asynccontextmanager
    async def holding(
        self, tensors: Mapping[str, Array], deadline: float
    ) -> AsyncIterator[list[WireTensor]]:
        """See `Regions.holding`."""
        expect_open(self._closed)
        self._busy += 1
        try:
            layout = _Positions(tensors)
            region = await self._take(layout.size, deadline)
            try:
                yield layout.laid_into(region)
            except BaseException as error:
                # The server may still read it, so no other request can have it.
                await self._free(region, deadline)
                if is_forgotten(error):
                    await self._free_idle(deadline)
                raise
            self._idle.append(region)
            if self._closed:
                await self._free_idle(deadline)
        finally:
            self._busy -= 1

    async def close(self) -> None:
        """Free all regions, when the requests under way are answered."""
        self._closed = True
        deadline = time.monotonic() + CLOSE_TIMEOUT
        await self._free_idle(deadline)
        while (self._busy or self._unclear) and time.monotonic() < deadline:
            if not await self._unregister_unclear(deadline) or self._busy:
                await asyncio.sleep(_CLOSE_PAUSE)

    async def _take(self, size: int, deadline: float) -> SharedMemory:
        if self._idle:
            region = self._idle.pop()
            if region.size >= size:
                return region
            await self._free(region, deadline)
        await self._unregister_unclear(deadline)
        region = _create(size)
        try:
            await _to_the_end(
                self._connection.register(
                    region.name, f"/{region.name}", region.size, time_left(deadline)
                )
            )
        except BaseException:
            await self._free(region, deadline)
            raise
        return region

    async def _free_idle(self, deadline: float) -> None:
        while self._idle:
            await self._free(self._idle.pop(), deadline)

    async def _free(self, region: SharedMemory, deadline: float) -> None:
        _remove(region)  # As in `Regions._free`.
        await self._unregister(region.name, deadline)

    async def _unregister_unclear(self, deadline: float) -> bool:
        while self._unclear:
            if not await self._unregister(self._unclear.popleft(), deadline):
                return False
        return True

    async def _unregister(self, name: str, deadline: float) -> bool:
        timeout = min(time_left(deadline), CLOSE_TIMEOUT)
        try:
            await _to_the_end(self._connection.unregister(name, timeout))
        except asyncio.CancelledError:
            self._unclear.append(name)
            raise
        except ClientError as error:
            if _may_remain(error):
                self._unclear.append(name)
                return False
        return True


def time_left(deadline: float) -> float:
    """The seconds until a deadline in `time.monotonic()`, with a minimum above 0."""
    return max(deadline - time.monotonic(), 1e-3)


def is_forgotten(error: BaseException) -> bool:
    """Whether a server has refused a request since it does not know its region, as after a restart."""
    return isinstance(error, ClientError) and _UNKNOWN in error.message


def _may_remain(error: ClientError) -> bool:
    """Whether a server that answered so to `unregister` may still have the region.

    One that has stopped has lost its registrations.
    """
    return isinstance(error, DeadlineExceededError) or _IN_USE in error.message


async def _to_the_end(call: Coroutine[Any, Any, None]) -> None:
    """Await a call even if the caller is cancelled, so that the server's state stays known."""
    task = asyncio.ensure_future(call)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(ClientError):
            await task
        raise


class _Positions:
    """Positions of a request's tensors in a region."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        self._tensors = tensors
        self._datatypes = {name: datatype_of(name, tensor) for name, tensor in tensors.items()}
        self._contents = {name: _content(tensor) for name, tensor in tensors.items()}
        self._offsets, self.size = {}, 0
        for name, content in self._contents.items():
            self._offsets[name] = self.size
            self.size += -(-len(content) // _ALIGNMENT) * _ALIGNMENT

    def laid_into(self, region: SharedMemory) -> list[WireTensor]:
        """Write the tensors to a region, and return their encoded form."""
        view: Any = region.buf  # None only after close.
        encoded = []
        for name, tensor in self._tensors.items():
            offset, content = self._offsets[name], self._contents[name]
            view[offset : offset + len(content)] = content
            # A request must not refer to an empty part of a region: an empty tensor is sent
            # directly.
            data = Place(region.name, offset, len(content)) if len(content) else b""
            encoded.append(WireTensor(name, self._datatypes[name], tensor.shape, data))
        return encoded


def _create(size: int) -> SharedMemory:
    """A new region whose memory is reserved: a process that writes to memory that is not there is killed."""
    try:
        name = f"{PREFIX}{os.getpid()}_{secrets.token_hex(8)}"
        region = SharedMemory(name, create=True, size=max(_SMALLEST, 1 << (size - 1).bit_length()))
        try:
            with (_FOLDER / name).open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, region.size)
        except BaseException:
            _remove(region)
            raise
    except OSError as error:
        raise ClientError(
            "RESOURCE_EXHAUSTED",
            f"Expected {size:,} bytes of shared memory. Received: {error}. Predict fewer rows at a time, "
            f"or give {_FOLDER} more room, as with --shm-size of a container.",
        ) from error
    return region


def _drop(idle: Idle[SharedMemory]) -> None:
    """Free the memory of regions that no request uses, also where a server still maps it."""
    while idle:
        region = idle.pop()
        mapped: Any = region.buf  # None only after close.
        mapped.obj.madvise(MADV_REMOVE)
        _remove(region)


def _remove(region: SharedMemory) -> None:
    region.close()
    region.unlink()


def _content(tensor: Array) -> bytes | memoryview:
    """The bytes of a tensor; numbers are not copied."""
    if tensor.dtype.kind in "OSU" or not tensor.size:
        return to_bytes(tensor)
    return np.ascontiguousarray(tensor).data.cast("B")
