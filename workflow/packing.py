"""Tensors of one value a row side by side in few packed ones, since each that travels costs time.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .expressions.column import Array


def pack(tensors: dict[str, Array], packing: Mapping[str, Sequence[str]]) -> dict[str, Array]:
    """The tensors, those of one column each side by side in packed ones.

    Args:
        tensors: shape [N, 1] where they are packed.
        packing: the names of the tensors that each packed one is made of.

    Example:
        >>> pack({"a": np.ones((3, 1)), "b": np.ones((3, 1))}, {"both": ["a", "b"]})["both"].shape
        (3, 2)
    """
    packed = {
        name: np.concatenate([tensors[member] for member in members], axis=1)
        for name, members in packing.items()
    }
    inside = {member for members in packing.values() for member in members}
    return packed | {name: tensor for name, tensor in tensors.items() if name not in inside}


def unpack(tensors: dict[str, Array], packing: Mapping[str, Sequence[str]]) -> dict[str, Array]:
    """The tensors that `pack` was given."""
    parts = {
        member: tensors[name][:, place : place + 1]
        for name, members in packing.items()
        for place, member in enumerate(members)
    }
    return parts | {name: tensor for name, tensor in tensors.items() if name not in packing}
