"""Several tensors packed side by side into few, since each one that is sent costs time.

A row of a packed tensor contains the bytes of its members' rows in sequence, so that tensors of any
numeric dtypes are sent as one.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import numpy as np

from ..schema.column import Array
from ..schema.dtypes import DTYPES, SchemaError


@dataclass(frozen=True)
class Member:
    """A tensor [N, width] inside a packed one.

    Attributes:
        name: the tensor's name.
        dtype: its dtype, a name in the dtype table.
        width: its width; -1 of the last member takes the remainder.
    """

    name: str
    dtype: str
    width: int = 1


@dataclass(frozen=True)
class Packed:
    """A tensor that carries others.

    Attributes:
        dtype: its own dtype, with the members' smallest item size, or their common dtype.
        members: its members in order, equal dtypes beside each other.
    """

    dtype: str
    members: tuple[Member, ...]

    @property
    def width(self) -> int:
        """Its width; -1 if the last member may have any width."""
        if self.members[-1].width < 0:
            return -1
        return sum(member.width * self.items(member.dtype) for member in self.members)

    def items(self, dtype: str) -> int:
        """The number of its columns for one item of a dtype.

        Example:
            >>> Packed("int32", (Member("a", "int32"), Member("b", "int64"))).items("int64")
            2
        """
        return DTYPES[dtype].numpy.itemsize // DTYPES[self.dtype].numpy.itemsize

    def runs(self) -> Iterator[tuple[str, tuple[Member, ...]]]:
        """The members grouped by dtype, in order."""
        for dtype, members in groupby(self.members, lambda member: member.dtype):
            yield dtype, tuple(members)


Packing = Mapping[str, Packed]


def pack(tensors: dict[str, Array], packing: Packing) -> dict[str, Array]:
    """Replace the members of packed tensors by the packed tensors.

    Args:
        tensors: the packed tensors' members [N, width], and any others.
        packing: the packed tensors by name.

    Example:
        >>> both = Packed("int32", (Member("a", "int32"), Member("b", "int64")))
        >>> pack({"a": np.ones((3, 1), "int32"), "b": np.ones((3, 1), "int64")}, {"both": both})["both"]
        array([[1, 1, 0],
               [1, 1, 0],
               [1, 1, 0]], dtype=int32)
    """
    made = {}
    for name, packed in packing.items():
        dtype = DTYPES[packed.dtype].numpy
        parts = [_seen_as(tensors[member.name], dtype) for member in packed.members]
        made[name] = np.concatenate(parts, axis=1)
    inside = {member.name for packed in packing.values() for member in packed.members}
    return made | {name: tensor for name, tensor in tensors.items() if name not in inside}


def unpack(tensors: dict[str, Array], packing: Packing) -> dict[str, Array]:
    """The inverse of `pack`."""
    made = {}
    for name, packed in packing.items():
        begin = 0
        for member in packed.members:
            end = begin + member.width * packed.items(member.dtype)
            part = tensors[name][:, begin : end if member.width >= 0 else None]
            made[member.name] = _seen_as(part, DTYPES[member.dtype].numpy)
            begin = end
    return made | {name: tensor for name, tensor in tensors.items() if name not in packing}


def _seen_as(tensor: Array, dtype: np.dtype[Any]) -> Array:
    """Reinterpret the bytes of a tensor's rows as numbers of another dtype."""
    return tensor if tensor.dtype == dtype else np.ascontiguousarray(tensor).view(dtype)


def dump_packing(packing: Packing) -> str:
    """The packed tensors as one JSON text, for a config parameter."""
    described = {name: asdict(packed) for name, packed in packing.items()}
    return json.dumps(described, separators=(",", ":"))


def parse_packing(text: str) -> dict[str, Packed]:
    """The packed tensors in a text from `dump_packing`.

    Raises:
        SchemaError: the text does not describe packed tensors.

    Example:
        >>> packing = {"both": Packed("int64", (Member("a", "int64"), Member("b", "int64", -1)))}
        >>> parse_packing(dump_packing(packing)) == packing
        True
    """
    try:
        return {
            name: Packed(packed["dtype"], tuple(Member(**member) for member in packed["members"]))
            for name, packed in json.loads(text).items()
        }
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise SchemaError(f"Expected packed tensors. Received: {text:.200}.") from error
