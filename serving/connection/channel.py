"""Channels of gRPC, for the connections with and without asyncio."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import grpc

from serving.connection.address import Address
from serving.errors import ClientError, refusal

# Triton's own limit; gRPC's default of 4 MiB is a batch of a few thousand rows.
MAX_MESSAGE = 2**31 - 1
# gRPC itself allows no more.
MOST_RETRIES = 4
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0


def _channel_options(address: Address, retries: int) -> list[tuple[str, Any]]:
    """The options of a channel.

    gRPC itself repeats a call that the server did not take; what makes that safe is that an
    inference changes nothing. While most calls fail, none is repeated, so that a server under too
    much load is left alone.

    Args:
        address: where the channel leads.
        retries: how often a call is repeated at most.
    """
    options: list[tuple[str, Any]] = [
        ("grpc.max_send_message_length", MAX_MESSAGE),
        ("grpc.max_receive_message_length", MAX_MESSAGE),
        # A server that is started anew should be found within the retries.
        ("grpc.initial_reconnect_backoff_ms", int(FIRST_PAUSE * 1e3)),
        ("grpc.max_reconnect_backoff_ms", int(LONGEST_PAUSE * 1e3)),
        ("grpc.enable_retries", int(retries > 0)),
    ]
    if address.is_local:
        # A proxy of the environment is for the world outside.
        options.append(("grpc.enable_http_proxy", 0))
    if retries:
        policy = {
            "maxAttempts": retries + 1,
            "initialBackoff": f"{FIRST_PAUSE}s",
            "maxBackoff": f"{LONGEST_PAUSE}s",
            "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE"],
        }
        config = {
            "methodConfig": [{"name": [{}], "retryPolicy": policy}],
            "retryThrottling": {"maxTokens": 100, "tokenRatio": 0.5},
        }
        options.append(("grpc.service_config", json.dumps(config)))
        # A larger request could not be repeated; the memory is that of the request itself.
        options.append(("grpc.per_rpc_retry_buffer_size", MAX_MESSAGE))
    return options


def _credentials(address: Address) -> grpc.ChannelCredentials | None:
    """The certificates of a channel, or None without TLS.

    Raises:
        ClientError: a file that cannot be read.
    """
    if address.tls is None:
        return None
    return grpc.ssl_channel_credentials(*address.tls.contents())


def open_channel(module: Any, address: Address, retries: int) -> Any:
    """A channel, with TLS where the address says so.

    Args:
        module: `grpc`, or `grpc.aio` for asyncio.
        address: where the channel leads.
        retries: how often a call is repeated at most.

    Raises:
        ClientError: a certificate that cannot be read.
    """
    options = _channel_options(address, retries)
    certificates = _credentials(address)
    if certificates is None:
        return module.insecure_channel(address.target, options)
    return module.secure_channel(address.target, certificates, options)


def metadata(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Headers as gRPC wants them, which is in small letters."""
    return tuple((name.lower(), value) for name, value in headers.items())


def refused(error: grpc.RpcError, url: str) -> ClientError:
    """The error of a call, to be raised by the caller."""
    text = str(error.details())
    # Triton's word for a missing key; over HTTP it says 403.
    code = "UNAUTHENTICATED" if "is restricted" in text else error.code().name
    return refusal(code, text, url)
