"""gRPC channels, for the connections with and without asyncio."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from serving.connection.address import Address, tls_context
from serving.errors import ClientError, refusal

# Triton's own limit; gRPC's default of 4 MiB is a batch of a few thousand rows.
MAX_MESSAGE = 2**31 - 1
CLOSED_MEANWHILE = "Expected an open connection. It was closed before the answer came."
# gRPC's own maximum.
MOST_RETRIES = 4
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
# A client has read the config before it asks, so a model that is not found was unloaded since. A
# server that stops cancels calls.
_INFER = {"service": "inference.GRPCInferenceService", "method": "ModelInfer"}


def _channel_options(address: Address, retries: int) -> list[tuple[str, Any]]:
    """The options of a channel.

    gRPC itself repeats a call that the server did not accept, which is safe because an inference
    has no side effects. While most calls fail, gRPC stops retrying, so that an overloaded server is
    spared.

    Args:
        address: the server's address.
        retries: the greatest number of repetitions of a call.
    """
    options: list[tuple[str, Any]] = [
        ("grpc.max_send_message_length", MAX_MESSAGE),
        ("grpc.max_receive_message_length", MAX_MESSAGE),
        # A restarted server should be found within the retries.
        ("grpc.initial_reconnect_backoff_ms", int(FIRST_PAUSE * 1e3)),
        ("grpc.max_reconnect_backoff_ms", int(LONGEST_PAUSE * 1e3)),
        ("grpc.enable_retries", int(retries > 0)),
    ]
    if address.is_local:
        # Proxies in the environment are for remote servers.
        options.append(("grpc.enable_http_proxy", 0))
    if retries:
        config = {
            "methodConfig": [
                _retried(_INFER, ["UNAVAILABLE", "NOT_FOUND", "CANCELLED"], retries),
                _retried({}, ["UNAVAILABLE"], retries),
            ],
            "retryThrottling": {"maxTokens": 100, "tokenRatio": 0.5},
        }
        options.append(("grpc.service_config", json.dumps(config)))
        # A larger request could not be repeated; the buffer refers to the request itself.
        options.append(("grpc.per_rpc_retry_buffer_size", MAX_MESSAGE))
    return options


def _retried(method: dict[str, str], codes: list[str], retries: int) -> dict[str, Any]:
    policy = {
        "maxAttempts": retries + 1,
        "initialBackoff": f"{FIRST_PAUSE}s",
        "maxBackoff": f"{LONGEST_PAUSE}s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": codes,
    }
    return {"name": [method], "retryPolicy": policy}


def _credentials(address: Address) -> grpc.ChannelCredentials | None:
    """The certificates of a channel, or None without TLS.

    Raises:
        ClientError: a file that cannot be read.
    """
    if address.tls is None:
        return None
    tls_context(address.tls)  # Its errors name what is wrong.
    root, key, chain = address.tls.contents()
    return grpc.ssl_channel_credentials(root, key or chain, chain)


def open_channel(module: Any, address: Address, retries: int) -> Any:
    """Open a channel, with TLS if the address says so.

    Args:
        module: `grpc`, or `grpc.aio` for asyncio.
        address: the server's address.
        retries: the greatest number of repetitions of a call.

    Raises:
        ClientError: a certificate that cannot be read.
    """
    options = _channel_options(address, retries)
    certificates = _credentials(address)
    if certificates is None:
        return module.insecure_channel(address.target, options)
    return module.secure_channel(address.target, certificates, options)


def metadata(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Headers in gRPC's form, with lower-case names, so that each has one spelling."""
    return tuple((name.lower(), value) for name, value in headers.items())


def method_for(stub: Any, request: Any) -> Any:
    """The method of a stub that takes a request."""
    return getattr(stub, type(request).__name__.removesuffix("Request"))


def refused(error: grpc.RpcError, url: str, request: Any) -> ClientError:
    """The error for a failed call, see `refusal`; the caller raises it."""
    was_served = isinstance(request, service_pb2.ModelInferRequest)
    text = str(error.details())
    if text == "Channel closed!":  # by this process
        text = CLOSED_MEANWHILE
    # Triton's message for a missing key; over HTTP it is status 403.
    code = "UNAUTHENTICATED" if "is restricted" in text else error.code().name
    return refusal(code, text, url, was_served=was_served)
