"""Tensors as bytes, for gRPC and the binary form of HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from tritonclient.utils import np_to_triton_dtype, triton_to_np_dtype

from serving.errors import DtypeError
from workflow.schema.column import Array

# Cached, since Triton's own function is a chain of comparisons.
_numpy_dtype = cache(triton_to_np_dtype)
# The prefix of each string's bytes.
_LENGTH = Struct("<I")
# The number of strings converted at once: each takes a hundred bytes and more meanwhile.
_STRINGS = 1 << 12


@dataclass(frozen=True)
class Place:
    """Position of a tensor in a shared-memory region, in bytes."""

    region: str
    offset: int
    size: int


class WireTensor(NamedTuple):
    """A tensor ready to be sent.

    Attributes:
        name: the input's name.
        datatype: Triton's name of the dtype.
        shape: the shape.
        data: the bytes, or their position.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes | Place


class Inference(NamedTuple):
    """The answer of a model.

    Attributes:
        version: the model's version that has answered.
        tensors: its outputs by name.
    """

    version: str
    tensors: dict[str, Array]


def encode_tensors(tensors: Mapping[str, Array]) -> list[WireTensor]:
    """Tensors as bytes, in their order.

    Raises:
        DtypeError: a dtype that Triton does not know, or an object that is no string.

    Example:
        >>> encode_tensors({"id": np.array([[7]])})[0].datatype
        'INT64'
    """
    return [
        WireTensor(
            name,
            datatype := datatype_of(name, tensor),
            tensor.shape,
            to_bytes(tensor) if datatype == "BYTES" else tensor.tobytes(),
        )
        for name, tensor in tensors.items()
    ]


def datatype_of(name: str, tensor: Array) -> str:
    """Triton's name of a tensor's dtype.

    Raises:
        DtypeError: Triton has none, or would read the bytes in another order.
    """
    datatype = _datatype(tensor.dtype.char) if tensor.dtype.isnative else None
    if datatype is None:
        raise DtypeError(
            "INVALID_INPUT",
            f"Input {name!r}: expected a dtype of Triton, in this machine's byte order. "
            f"Received: {tensor.dtype}. Convert it with `astype`.",
        )
    return datatype


@cache
def _datatype(char: str) -> str | None:
    # By the character, since hashing a dtype takes longer than everything else.
    datatype: str | None = np_to_triton_dtype(np.dtype(char))
    return datatype


def to_bytes(tensor: Array) -> bytes:
    """The bytes of a tensor; each string is preceded by its length.

    Raises:
        DtypeError: an object that is neither bytes nor a string in UTF-8.
    """
    if tensor.dtype.kind not in "OSU":
        return tensor.tobytes()
    values = tensor.reshape(-1)
    if len(values) <= _STRINGS:
        return _string_bytes(values)
    starts = range(0, len(values), _STRINGS)
    return b"".join([_string_bytes(values[start : start + _STRINGS]) for start in starts])


def _string_bytes(values: Array) -> bytes:
    try:
        texts = [v if isinstance(v, bytes) else v.encode() for v in values.tolist()]
    except (AttributeError, UnicodeEncodeError) as error:
        value = error.obj if isinstance(error, AttributeError) else error.object
        raise DtypeError(
            "INVALID_INPUT",
            "Expected strings as bytes, or as str that UTF-8 can encode. "
            f"Received: {value!r:.100}. Convert it, a null to the code that the model takes.",
        ) from error
    lengths = map(_LENGTH.pack, map(len, texts))
    return b"".join(chain.from_iterable(zip(lengths, texts, strict=True)))


def from_bytes(datatype: str, shape: Sequence[int], data: bytes) -> Array:
    """The tensor in some bytes; strings as an object array of `bytes`.

    Example:
        >>> from_bytes("INT64", [2, 1], np.array([3, 4]).tobytes()).tolist()
        [[3], [4]]
    """
    if datatype != "BYTES":
        numbers: Array = np.frombuffer(data, _numpy_dtype(datatype)).reshape(shape)
        return numbers
    texts: list[Any] = []
    offset = 0
    while offset < len(data):
        start = offset + 4
        offset = start + int.from_bytes(data[offset:start], "little")
        texts.append(data[start:offset])
    tensor = np.empty(len(texts), object)
    tensor[:] = texts
    return tensor.reshape(shape)
