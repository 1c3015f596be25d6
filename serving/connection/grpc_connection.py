"""A connection over gRPC. Thread-safe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
from tritonclient.grpc import service_pb2_grpc

from serving.connection import grpc_messages
from serving.connection.address import Address
from serving.connection.calls import Connection
from serving.connection.channel import metadata, method_for, open_channel, refused
from serving.errors import ClientError


class GrpcConnection(Connection):
    """One channel to a server, used for all calls."""

    messages = grpc_messages

    def __init__(self, address: Address, headers: Mapping[str, str], retries: int) -> None:
        self.address = address
        self._metadata = metadata(headers)
        self._channel = open_channel(grpc, address, retries)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def close(self) -> None:  # noqa: D102 - see Connection
        self._channel.close()

    def _call(self, request: Any, timeout: float) -> Any:
        try:
            method = method_for(self._stub, request)
            return method(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            refusal = refused(error, self.address.url, request)
        except ValueError as error:  # gRPC's error for a closed channel.
            raise ClientError("CANCELLED", f"Expected an open connection. {error}") from error
        # Without gRPC's error, which cannot be pickled; Dask pickles a task's error with its causes.
        raise refusal
