"""Requests and answers over gRPC, by protobuf's own classes.

Parts of an inference that are equal in all requests of a model and shape are made once, and copied by
protobuf. A request of one row took 489 µs of processor time so and 600 with tritonclient, both from tensors
made in advance (`python -m benchmarks.client`, 2 cores at a load of 9, 2026-11-23).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tritonclient.grpc import service_pb2

from serving.connection.tensors import Inference, Place, WireTensor, from_bytes

# The name, the datatype and the shape of a tensor, and its position in shared memory, if it has one.
_Head = tuple[Any, ...]


def infer_request(model: str, version: str, tensors: Sequence[WireTensor]) -> Any:
    """A `ModelInferRequest`."""
    heads = tuple([t if type(t.data) is Place else t[:3] for t in tensors])
    request = service_pb2.ModelInferRequest()
    request.CopyFrom(_without_contents(model, version, heads))
    request.raw_input_contents.extend([t.data for t in tensors if type(t.data) is not Place])
    return request


@lru_cache(maxsize=64)
def _without_contents(model: str, version: str, heads: tuple[_Head, ...]) -> Any:
    """A request without the bytes of its tensors."""
    request = service_pb2.ModelInferRequest(model_name=model, model_version=version)
    for name, datatype, shape, *places in heads:
        tensor = request.inputs.add(name=name, datatype=datatype, shape=shape)
        for place in places:
            tensor.parameters["shared_memory_region"].string_param = place.region
            tensor.parameters["shared_memory_byte_size"].int64_param = place.size
            tensor.parameters["shared_memory_offset"].int64_param = place.offset
    return request


def infer_response(answer: Any) -> Inference:
    """The version and the tensors of a `ModelInferResponse`."""
    pairs = zip(answer.outputs, answer.raw_output_contents, strict=True)
    tensors = {o.name: from_bytes(o.datatype, o.shape, data) for o, data in pairs}
    return Inference(answer.model_version, tensors)


def config_request(model: str, version: str) -> Any:
    """A request for a model's config."""
    return service_pb2.ModelConfigRequest(name=model, version=version)


def config_response(answer: Any) -> Any:
    """The `ModelConfig` of an answer."""
    return answer.config


def register_request(region: str, key: str, size: int) -> Any:
    """A request to register a shared-memory region."""
    return service_pb2.SystemSharedMemoryRegisterRequest(name=region, key=key, byte_size=size)


def unregister_request(region: str) -> Any:
    """A request to unregister a shared-memory region."""
    return service_pb2.SystemSharedMemoryUnregisterRequest(name=region)
