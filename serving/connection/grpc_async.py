"""A connection over gRPC for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
from tritonclient.grpc import service_pb2_grpc

from serving.connection import grpc_messages
from serving.connection.address import Address
from serving.connection.calls import AsyncConnection
from serving.connection.channel import CLOSED_MEANWHILE, metadata, method_for, open_channel, refused
from serving.errors import ClientError


class AsyncGrpcConnection(AsyncConnection):
    """One channel to a server, bound to the event loop in which it was made."""

    messages = grpc_messages

    def __init__(self, address: Address, headers: Mapping[str, str], retries: int) -> None:
        super().__init__()
        self.address = address
        self._metadata = metadata(headers)
        self._channel = open_channel(grpc.aio, address, retries)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def close(self) -> None:  # noqa: D102 - see AsyncConnection
        await self._channel.close()

    async def _call(self, request: Any, timeout: float) -> Any:  # noqa: ASYNC109
        try:
            method = method_for(self._stub, request)
            return await method(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            refusal = refused(error, self.address.url, request)
        except asyncio.CancelledError as error:
            # gRPC cancels the calls of a channel that is closed, as if their caller had.
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            raise ClientError("CANCELLED", CLOSED_MEANWHILE) from error
        except (grpc.aio.UsageError, ValueError) as error:
            raise ClientError("CANCELLED", f"Expected an open connection. {error}") from error
        raise refusal  # as in `GrpcConnection._call`
