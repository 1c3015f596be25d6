"""Tensors as bytes, as gRPC and the binary form of HTTP carry them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from tritonclient.utils import np_to_triton_dtype, triton_to_np_dtype

from serving.errors import DtypeError
from workflow.schema.column import Array
from workflow.schema.dtypes import DType

# One lookup for each tensor of a request: Triton's own functions are a chain of comparisons.
_datatype = cache(np_to_triton_dtype)
_numpy_dtype = cache(triton_to_np_dtype)
# What stands before the bytes of each string.
_LENGTH = Struct("<I")
# So many are made bytes of at once: on the way each takes a hundred bytes and more.
_STRINGS = 1 << 12
_FORMATS = {"bool": "?", "float32": "f", "float64": "d"} | {
    f"{sign}int{8 * size}": code.upper() if sign else code
    for size, code in ((1, "b"), (2, "h"), (4, "i"), (8, "q"))
    for sign in ("", "u")
}


@dataclass(frozen=True)
class Place:
    """Place of a tensor in a shared-memory region, in bytes."""

    region: str
    offset: int
    size: int


class Encoded(NamedTuple):
    """A tensor ready to be sent.

    Attributes:
        name: the input's name.
        datatype: Triton's name of the dtype.
        shape: the shape.
        data: the bytes, or where they lie.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes | Place


@dataclass(frozen=True, eq=False)
class RowLayout:
    """The scalars of one row, each a tensor of the shape (1, 1).

    What a request says of them is made once for each layout, and found by its identity.

    Attributes:
        dtypes: by input name, in the order in which they are sent; strings come last.
    """

    dtypes: Mapping[str, DType]

    @cached_property
    def formats(self) -> list[str]:
        """The dtypes of the numbers in the language of `struct`."""
        names = (dtype.name for dtype in self.dtypes.values())
        return [_FORMATS[name] for name in names if name != "string"]

    @cached_property
    def numbers(self) -> Struct:
        """Function that makes bytes of the numbers."""
        return Struct("<" + "".join(self.formats))


class Row(NamedTuple):
    """One row ready to be sent.

    Attributes:
        layout: what the values are.
        values: of each scalar one, which its dtype can hold; of strings their UTF-8.
        lists: the tensors of the others.
    """

    layout: RowLayout
    values: Sequence[Any]
    lists: Sequence[Encoded] = ()

    @property
    def numbers(self) -> Sequence[Any]:
        """The values that are no strings."""
        return self.values[: len(self.layout.formats)]

    @property
    def texts(self) -> list[bytes]:
        """The strings as they travel, each with its length before it."""
        texts = self.values[len(self.layout.formats) :]
        return [_LENGTH.pack(len(text)) + text for text in texts]


# What a request is made of.
Feed = Iterable[Encoded] | Row


def encode_tensors(tensors: Mapping[str, Array]) -> list[Encoded]:
    """Tensors as bytes, in their order.

    Raises:
        DtypeError: a dtype that Triton does not know.

    Example:
        >>> encode_tensors({"id": np.array([[7]])})[0].datatype
        'INT64'
    """
    return [
        Encoded(
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
        DtypeError: Triton has none.
    """
    datatype: str | None = _datatype(tensor.dtype)
    if datatype is None:
        raise DtypeError(
            "INVALID_INPUT",
            f"Input {name!r}: expected a dtype of Triton. Received: {tensor.dtype}.",
        )
    return datatype


def to_bytes(tensor: Array) -> bytes:
    """The bytes of a tensor; of strings each with its length before it."""
    if tensor.dtype.kind not in "OSU":
        return tensor.tobytes()
    values = tensor.reshape(-1)
    starts = range(0, len(values), _STRINGS)
    return b"".join([_string_bytes(values[start : start + _STRINGS]) for start in starts])


def _string_bytes(values: Array) -> bytes:
    texts = [value if type(value) is bytes else str(value).encode() for value in values.tolist()]
    lengths = map(_LENGTH.pack, map(len, texts))
    return b"".join(chain.from_iterable(zip(lengths, texts, strict=True)))


def from_bytes(datatype: str, shape: Sequence[int], data: bytes) -> Array:
    """The tensor that bytes carry; strings as an object array of `bytes`.

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
