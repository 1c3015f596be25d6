"""An inference's request and answer as gRPC carries them.

The bytes of a message are those of its fields, one after another, so that what is the same in
each request of a model is made once, and tensors are copied once.
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from struct import Struct, calcsize
from typing import Any

from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from serving.connection.tensors import Feed, Place, Row, RowLayout, from_bytes
from serving.errors import ClientError
from workflow.schema.column import Array

_REQUEST, _RESPONSE = service_pb2.ModelInferRequest, service_pb2.ModelInferResponse
# Kinds of fields; and how many bytes one has that is of neither.
_VARINT, _LENGTH_DELIMITED = 0, 2
_FIXED = {1: 8, 5: 4}


def infer_method(channel: Any) -> Any:
    """The call of an inference: bytes as `infer_request` makes them, and `infer_response` reads."""
    return channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")


def infer_request(model: str, version: str, tensors: Feed) -> bytes:
    """A `ModelInferRequest`."""
    heads, contents = list[bytes](), list[bytes]()
    if isinstance(tensors, Row):
        heads.append(_scalars(model, version, tensors))
        tensors = tensors.lists
    else:
        heads.append(_model_field(model, version))
    for name, datatype, shape, data in tensors:
        if isinstance(data, Place):
            heads.append(_input_field(name, datatype, shape, data))
        else:
            heads.append(_input_field(name, datatype, shape, None))
            contents += [_content_head(len(data)), data]
    return b"".join([*heads, *contents])


def _scalars(model: str, version: str, row: Row) -> bytes:
    """A request for a row, up to its lists."""
    form, same = _row_form(model, version, row.layout)
    fields = same.copy()
    fields[2::2] = row.numbers
    parts = [form.pack(*fields)]
    for text in row.texts:
        parts += [_content_head(len(text)), text]
    return b"".join(parts)


@lru_cache(maxsize=64)
def _row_form(model: str, version: str, layout: RowLayout) -> tuple[Struct, list[Any]]:
    """A request for a row, up to its strings.

    Returns:
        How its fields travel, and the fields: what is the same in each request, and in every
        second place from the third a number.
    """
    inputs = (
        _input_field(name, dtype.triton, (1, 1), None) for name, dtype in layout.dtypes.items()
    )
    head = b"".join([_model_field(model, version), *inputs])
    code, fields = f"<{len(head)}s", list[Any]([head])
    for number in layout.formats:
        before = _content_head(calcsize(f"<{number}"))
        code += f"{len(before)}s{number}"
        fields += [before, 0]
    return Struct(code), fields


@lru_cache(maxsize=64)
def _model_field(model: str, version: str) -> bytes:
    request = _REQUEST(model_name=model, model_version=version)
    return bytes(request.SerializeToString())


@lru_cache(maxsize=4096)
def _input_field(name: str, datatype: str, shape: tuple[int, ...], place: Place | None) -> bytes:
    request = _REQUEST()
    made = request.inputs.add(name=name, datatype=datatype, shape=shape)
    if place is not None:
        made.parameters["shared_memory_region"].string_param = place.region
        made.parameters["shared_memory_byte_size"].int64_param = place.size
        made.parameters["shared_memory_offset"].int64_param = place.offset
    return bytes(request.SerializeToString())


@lru_cache(maxsize=1024)
def _content_head(length: int) -> bytes:
    """Bytes before a tensor's own: the tag of `raw_input_contents`, and the length."""
    head = bytearray([_REQUEST.RAW_INPUT_CONTENTS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED])
    while length >= 128:
        head.append(length & 127 | 128)
        length >>= 7
    return bytes([*head, length])


def infer_response(message: bytes) -> dict[str, Array]:
    """The tensors of a `ModelInferResponse`.

    Raises:
        ClientError: it is something else.
    """
    heads, contents = [], []
    try:
        for number, content in _fields(message):
            if number == _RESPONSE.OUTPUTS_FIELD_NUMBER:
                heads.append(_output(content))
            elif number == _RESPONSE.RAW_OUTPUT_CONTENTS_FIELD_NUMBER:
                contents.append(content)
        pairs = zip(heads, contents, strict=True)
        return {name: from_bytes(datatype, shape, data) for (name, datatype, shape), data in pairs}
    except (LookupError, ValueError, DecodeError) as error:
        raise ClientError(
            "INTERNAL", f"Expected the answer of an inference. Received: {message!r:.200}."
        ) from error


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The numbers and contents of those fields of a message that are of so many bytes."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            length, place = _varint(message, place)
            yield tag >> 3, message[place : place + length]
            place += length
        elif kind == _VARINT:
            _, place = _varint(message, place)
        else:
            place += _FIXED[kind]


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """The number that begins at a place, and where it ends."""
    value = message[place] & 127
    shift = 7
    while message[place] > 127:
        place += 1
        value |= (message[place] & 127) << shift
        shift += 7
    return value, place + 1


@lru_cache(maxsize=1024)
def _output(field: bytes) -> tuple[str, str, tuple[int, ...]]:
    """The name, the datatype and the shape of an output."""
    output = _RESPONSE.InferOutputTensor.FromString(field)
    return output.name, output.datatype, tuple(output.shape)
