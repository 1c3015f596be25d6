"""A connection over gRPC for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from serving.connection.address import Address
from serving.connection.channel import metadata, open_channel, refused
from serving.connection.messages import infer_request, infer_response
from serving.connection.tensors import WireTensor
from serving.errors import ClientError
from workflow.schema.column import Array


class AsyncGrpcConnection:
    """One channel to a server, bound to the event loop in which it was made.

    Args:
        address: the server's address.
        headers: sent with every call.
        retries: how often a call that the server did not accept is repeated.

    Raises:
        ClientError: a certificate that cannot be read.
    """

    def __init__(self, address: Address, headers: Mapping[str, str], retries: int) -> None:
        self.address = address
        self._metadata = metadata(headers)
        self._channel = open_channel(grpc.aio, address, retries)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def infer(
        self,
        model: str,
        version: str,
        tensors: Sequence[WireTensor],
        timeout: float,  # noqa: ASYNC109 - gRPC's own deadline, known to the server
    ) -> dict[str, Array]:
        """The outputs of a model.

        Raises:
            ClientError: no answer, or a refusal.
        """
        request = infer_request(model, version, tensors)
        return infer_response(await self._call(self._stub.ModelInfer, request, timeout))

    async def config(self, model: str, version: str, timeout: float) -> Any:  # noqa: ASYNC109
        """A model's `ModelConfig`.

        Raises:
            ClientError: no answer, or no such model.
        """
        request = service_pb2.ModelConfigRequest(name=model, version=version)
        return (await self._call(self._stub.ModelConfig, request, timeout)).config

    async def register(self, region: str, key: str, size: int, timeout: float) -> None:  # noqa: ASYNC109
        """Register a shared-memory region with the server.

        Raises:
            ClientError: no answer, or the server does not allow shared memory.
        """
        request = service_pb2.SystemSharedMemoryRegisterRequest(
            name=region, key=key, byte_size=size
        )
        await self._call(self._stub.SystemSharedMemoryRegister, request, timeout)

    async def unregister(self, region: str, timeout: float) -> None:  # noqa: ASYNC109
        """Unregister a shared-memory region.

        Raises:
            ClientError: no answer, or a refusal.
        """
        request = service_pb2.SystemSharedMemoryUnregisterRequest(name=region)
        await self._call(self._stub.SystemSharedMemoryUnregister, request, timeout)

    async def close(self) -> None:
        """Close the channel. Further calls do nothing."""
        await self._channel.close()

    async def _call(self, method: Callable[..., Any], request: Any, timeout: float) -> Any:  # noqa: ASYNC109
        try:
            return await method(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            is_inference = method is self._stub.ModelInfer
            raise refused(error, self.address.url, was_served=is_inference) from error
        except (grpc.aio.UsageError, ValueError) as error:
            raise ClientError("CANCELLED", f"Expected an open connection. {error}") from error
