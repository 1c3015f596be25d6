"""Tensors in memory that the client and a server on the same machine share."""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.shared_memory import SharedMemory
from typing import Any, Protocol

import numpy as np

from serving.connection.tensors import Encoded, Place, datatype_of, to_bytes
from serving.errors import ClientError
from workflow.expressions.column import Array

PREFIX = "ensemble_client_"
# Tensors begin where a cache line does; a region is never smaller than this.
_ALIGNMENT, _SMALLEST = 64, 1 << 16
_CLOSE_TIMEOUT = 5.0


class Registry(Protocol):
    """The calls by which a server learns of a region and forgets it."""

    def register(self, region: str, key: str, size: int, timeout: float) -> None:
        """Tell the server of a region."""

    def unregister(self, region: str, timeout: float) -> None:
        """Let the server forget a region."""


class Regions:
    """Regions of shared memory that the server knows, one for each request that is under way.

    They are used again, and freed by `close`. When this process is killed, Python's resource
    tracker frees them.

    Args:
        registry: the connection to the server.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._idle: deque[SharedMemory] = deque()

    @contextmanager
    def holding(self, tensors: Mapping[str, Array], timeout: float) -> Iterator[list[Encoded]]:
        """Tensors laid into a region, for the time of a request.

        Raises:
            ClientError: no shared memory is left, or the server does not take it.
        """
        contents = {name: _content(tensor) for name, tensor in tensors.items()}
        places, size = {}, 0
        for name, content in contents.items():
            places[name] = size, len(content)
            size += -(-len(content) // _ALIGNMENT) * _ALIGNMENT
        region = self._take(size, timeout)
        try:
            view: Any = region.buf  # None only after close.
            encoded = []
            for name, tensor in tensors.items():
                offset, length = places[name]
                view[offset : offset + length] = contents[name]
                # A region may not be named for nothing: a tensor without bytes is sent as it is.
                data = Place(region.name, offset, length) if length else b""
                encoded.append(Encoded(name, datatype_of(name, tensor), tensor.shape, data))
            yield encoded
        except BaseException:
            # The server may still read it, so no other request can have it.
            self._free(region)
            raise
        self._idle.append(region)

    def close(self) -> None:
        """Free all regions."""
        while self._idle:
            self._free(self._idle.pop())

    def _take(self, size: int, timeout: float) -> SharedMemory:
        with suppress(IndexError):  # Another thread may have taken the last one.
            region = self._idle.pop()
            if region.size >= size:
                return region
            self._free(region)
        try:
            name = f"{PREFIX}{os.getpid()}_{secrets.token_hex(8)}"
            size = max(_SMALLEST, 1 << (size - 1).bit_length())
            region = SharedMemory(name, create=True, size=size)
        except OSError as error:
            raise ClientError(
                "RESOURCE_EXHAUSTED",
                f"Expected {size:,} bytes of shared memory. Received: {error}.",
            ) from error
        try:
            self._registry.register(region.name, f"/{region.name}", region.size, timeout)
        except BaseException:
            _remove(region)
            raise
        return region

    def _free(self, region: SharedMemory) -> None:
        try:
            # A server that has gone has forgotten it as well.
            with suppress(ClientError):
                self._registry.unregister(region.name, _CLOSE_TIMEOUT)
        finally:
            _remove(region)


def _remove(region: SharedMemory) -> None:
    region.close()
    region.unlink()


def _content(tensor: Array) -> bytes | memoryview:
    """The bytes of a tensor, numbers without a copy."""
    if tensor.dtype.kind in "OSU" or not tensor.size:
        return to_bytes(tensor)
    return np.ascontiguousarray(tensor).data.cast("B")
