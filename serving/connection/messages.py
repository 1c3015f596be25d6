"""gRPC's messages, for the connections with and without asyncio."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from serving.connection.address import Address
from serving.connection.tensors import Encoded, Place, from_bytes
from serving.errors import ClientError, refusal
from workflow.expressions.column import Array

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


def infer_method(channel: Any) -> Any:
    """The call of an inference, whose request is bytes as `infer_request` makes them."""
    return channel.unary_unary(
        "/inference.GRPCInferenceService/ModelInfer",
        response_deserializer=service_pb2.ModelInferResponse.FromString,
    )


def infer_request(model: str, version: str, tensors: Iterable[Encoded]) -> bytes:
    """A `ModelInferRequest` as it travels.

    The bytes of a message are those of its fields, one after another, so that what is the same in
    each request of a model is made once, and tensors are copied once.
    https://protobuf.dev/programming-guides/encoding/#last-one-wins
    """
    heads, contents = [_model_field(model, version)], []
    for name, datatype, shape, data in tensors:
        if isinstance(data, Place):
            heads.append(_input_field(name, datatype, shape, data))
        else:
            heads.append(_input_field(name, datatype, shape, None))
            contents += [_content_head(len(data)), data]
    return b"".join([*heads, *contents])


@lru_cache(maxsize=64)
def _model_field(model: str, version: str) -> bytes:
    request = service_pb2.ModelInferRequest(model_name=model, model_version=version)
    return bytes(request.SerializeToString())


@lru_cache(maxsize=4096)
def _input_field(name: str, datatype: str, shape: tuple[int, ...], place: Place | None) -> bytes:
    request = service_pb2.ModelInferRequest()
    made = request.inputs.add(name=name, datatype=datatype, shape=shape)
    if place is not None:
        made.parameters["shared_memory_region"].string_param = place.region
        made.parameters["shared_memory_byte_size"].int64_param = place.size
        made.parameters["shared_memory_offset"].int64_param = place.offset
    return bytes(request.SerializeToString())


@lru_cache(maxsize=1024)
def _content_head(length: int) -> bytes:
    """What stands before a tensor's bytes: the field `raw_input_contents`, and how many."""
    field = service_pb2.ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER
    head = bytearray([field << 3 | 2])  # Its wire type, of a length and so many bytes.
    while length >= 128:
        head.append(length & 127 | 128)
        length >>= 7
    return bytes([*head, length])


def infer_response(response: Any) -> dict[str, Array]:
    """The tensors of an answer."""
    pairs = zip(response.outputs, response.raw_output_contents, strict=True)
    return {out.name: from_bytes(out.datatype, out.shape, data) for out, data in pairs}


def refused(error: grpc.RpcError, url: str) -> ClientError:
    """The error of a call, to be raised by the caller."""
    text = str(error.details())
    # Triton's word for a missing key; over HTTP it says 403.
    code = "UNAUTHENTICATED" if "is restricted" in text else error.code().name
    return refusal(code, text, url)
