"""Few tensors in the place of many: each one that a step hands on costs time in every request."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.model_spec import Tensor
from exporter.specs import tensors_of
from workflow.wire import WireColumn

# With so many tensors of one dtype it is faster to join them, and to cut them apart again.
PACKED_FROM = 2


def pack_columns(
    columns: Sequence[WireColumn],
) -> tuple[tuple[Tensor, ...], dict[str, list[str]]]:
    """Tensors of one value a row side by side in one tensor for each dtype.

    Args:
        columns: what a step hands on.

    Returns:
        the tensors that travel, and the names of those that each packed one is made of.

    Example:
        >>> many = [WireColumn(f"x{number}", "int64") for number in range(9)]
        >>> travelling, packing = pack_columns(many)
        >>> str(travelling[0]), packing["packed_int64"][:2]
        ('packed_int64 int64[N, 9]', ['x0', 'x1'])
    """
    tensors = tensors_of(columns)
    # The values of a flat list have other rows than the rest.
    elements = {column.values_name for column in columns if column.layout == "flat"}
    by_dtype: dict[str, list[str]] = {}
    for tensor in tensors:
        if tensor.dims == (-1, 1) and tensor.name not in elements:
            by_dtype.setdefault(tensor.dtype, []).append(tensor.name)
    names = {tensor.name for tensor in tensors}
    packing = {}
    for dtype, members in by_dtype.items():
        name = f"packed_{dtype}"
        while name in names:
            name += "_"
        if len(members) >= PACKED_FROM:
            packing[name] = members
    packed = {member for members in packing.values() for member in members}
    dtypes = {tensor.name: tensor.dtype for tensor in tensors}
    joint = [
        Tensor(name, dtypes[members[0]], (-1, len(members))) for name, members in packing.items()
    ]
    return tuple(joint + [t for t in tensors if t.name not in packed]), packing
