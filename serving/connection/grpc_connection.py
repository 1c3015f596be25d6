"""A connection over gRPC. Thread-safe."""

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


class GrpcConnection:
    """One channel to a server, used for all calls.

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
        self._channel = open_channel(grpc, address, retries)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def infer(
        self, model: str, version: str, tensors: Sequence[WireTensor], timeout: float
    ) -> dict[str, Array]:
        """The outputs of a model.

        Raises:
            ClientError: no answer, or a refusal.
        """
        request = infer_request(model, version, tensors)
        return infer_response(self._call(self._stub.ModelInfer, request, timeout))

    def config(self, model: str, version: str, timeout: float) -> Any:
        """A model's `ModelConfig`.

        Raises:
            ClientError: no answer, or no such model.
        """
        request = service_pb2.ModelConfigRequest(name=model, version=version)
        return self._call(self._stub.ModelConfig, request, timeout).config

    def register(self, region: str, key: str, size: int, timeout: float) -> None:
        """Register a shared-memory region with the server.

        Raises:
            ClientError: no answer, or the server does not allow shared memory.
        """
        request = service_pb2.SystemSharedMemoryRegisterRequest(
            name=region, key=key, byte_size=size
        )
        self._call(self._stub.SystemSharedMemoryRegister, request, timeout)

    def unregister(self, region: str, timeout: float) -> None:
        """Unregister a shared-memory region.

        Raises:
            ClientError: no answer, or a refusal.
        """
        request = service_pb2.SystemSharedMemoryUnregisterRequest(name=region)
        self._call(self._stub.SystemSharedMemoryUnregister, request, timeout)

    def close(self) -> None:
        """Close the channel. Further calls do nothing."""
        self._channel.close()

    def _call(self, method: Callable[..., Any], request: Any, timeout: float) -> Any:
        try:
            return method(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            is_inference = method is self._stub.ModelInfer
            raise refused(error, self.address.url, was_served=is_inference) from error
        except ValueError as error:  # gRPC's error for a closed channel.
            raise ClientError("CANCELLED", f"Expected an open connection. {error}") from error
