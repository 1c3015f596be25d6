"""Tensors side by side in few packed ones, since each that travels costs time.

A row of a packed tensor holds the bytes of its members' rows, one after another, so that tensors of
any number dtypes travel as one.

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
        dtype: its dtype, a name of the dtype table.
        width: its columns; -1 of the last member takes what is left.
    """

    name: str
    dtype: str
    width: int = 1


@dataclass(frozen=True)
class Packed:
    """A tensor that carries others.

    Attributes:
        dtype: its own dtype, of the members' smallest item, or the one that all of them have.
        members: those it carries, in their order, equal dtypes beside each other.
    """

    dtype: str
    members: tuple[Member, ...]

    @property
    def width(self) -> int:
        """Its columns; -1 where the last member may be of any width."""
        if self.members[-1].width < 0:
            return -1
        return sum(member.width * self.items(member.dtype) for member in self.members)

    def items(self, dtype: str) -> int:
        """How many columns of it one item of a dtype takes.

        Example:
            >>> Packed("int32", (Member("a", "int32"), Member("b", "int64"))).items("int64")
            2
        """
        return DTYPES[dtype].numpy.itemsize // DTYPES[self.dtype].numpy.itemsize

    def runs(self) -> Iterator[tuple[str, tuple[Member, ...]]]:
        """The members of one dtype after those of another."""
        for dtype, members in groupby(self.members, lambda member: member.dtype):
            yield dtype, tuple(members)


Packing = Mapping[str, Packed]


def pack(tensors: dict[str, Array], packing: Packing) -> dict[str, Array]:
    """The tensors, the members of packed ones replaced by those.

    Args:
        tensors: the packed ones' members [N, width], and any others.
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
    """The tensors that `pack` was given."""
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
    """The bytes of a tensor's rows as numbers of another dtype."""
    return tensor if tensor.dtype == dtype else np.ascontiguousarray(tensor).view(dtype)


def dump_packing(packing: Packing) -> str:
    """The packed tensors as one JSON text, for a config parameter."""
    described = {name: asdict(packed) for name, packed in packing.items()}
    return json.dumps(described, separators=(",", ":"))


def parse_packing(text: str) -> dict[str, Packed]:
    """The packed tensors that `dump_packing` wrote.

    Raises:
        SchemaError: the text describes no packed tensors.

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
