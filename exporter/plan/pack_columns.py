"""Packing of tensors, since each tensor that a step passes on costs time in every request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from exporter.plan.model_spec import ModelSpec, ModelTensor
from exporter.plan.pipeline import Pipeline
from exporter.plan.specs import tensors_of
from workflow.schema.dtypes import DTYPES
from workflow.wire.format import WireColumn
from workflow.wire.packed_tensor import Member, Packed, Packing

# From this many tensors on, joining and splitting them is faster.
PACKED_FROM = 2


def pack_columns(
    columns: Sequence[WireColumn], *, mixed: bool
) -> tuple[tuple[ModelTensor, ...], dict[str, Packed]]:
    """Pack tensors side by side into one for each dtype, or into one for all numbers.

    Args:
        columns: the columns that a step passes on.
        mixed: whether the next step can reinterpret numbers of one dtype as another. Then all
            numbers travel in one tensor, including lists, of which at most one has a width that
            requests choose. Else single values of one dtype share a tensor.

    Returns:
        The tensors that travel, and the packed ones among them by name.

    Example:
        >>> many = [WireColumn(f"x{number}", "int64") for number in range(9)]
        >>> many.append(WireColumn("tags", "int64", "padded"))
        >>> [str(tensor) for tensor in pack_columns(many, mixed=False)[0]]
        ['packed_int64 int64[N, 10]', 'tags int64[N, L]']
        >>> [str(tensor) for tensor in pack_columns(many, mixed=True)[0]]
        ['packed_int64 int64[N, L]']
    """
    tensors = tensors_of(columns)
    # The values of a flat list have another number of rows than the rest.
    elements = {column.values_name for column in columns if column.layout == "flat"}
    rows = [tensor for tensor in tensors if tensor.name not in elements]
    names, packing = {tensor.name for tensor in tensors}, {}
    for members in _mixed(rows) if mixed else _alike(rows):
        if len(members) >= PACKED_FROM:
            packed = _packed(members)
            name = f"packed_{packed.dtype}"
            while name in names:
                name += "_"
            packing[name] = packed
    inside = {member.name for packed in packing.values() for member in packed.members}
    joint = [
        ModelTensor(name, packed.dtype, (-1, packed.width), packed.width < 0)
        for name, packed in packing.items()
    ]
    return tuple(joint + [t for t in tensors if t.name not in inside]), packing


def pack_step(
    pipeline: Pipeline, *, mixed: bool
) -> tuple[tuple[ModelTensor, ...], dict[str, Packed]]:
    """The tensors between the steps of an ensemble, packed by `pack_columns` if the options say so."""
    if pipeline.options.pack:
        return pack_columns(pipeline.step_columns, mixed=mixed)
    return tensors_of(pipeline.step_columns), {}


def with_row_shapes(pipeline: Pipeline, network: ModelSpec, packing: Packing) -> ModelSpec:
    """The network's model; with a response cache it has the shapes of one row for the health check.

    `triton_models.healthcheck.one_row` then asks the steps of an ensemble, whose inputs do not say how
    wide a packed row is at least, nor that row lengths are packed, so that there are no elements.
    """
    if not pipeline.options.response_cache:
        return network
    shapes = {
        name: [1, sum(abs(member.width) * packed.items(member.dtype) for member in packed.members)]
        for name, packed in packing.items()
    }
    shapes |= {tensor.name: [0, 1] for tensor in network.inputs if tensor.elements}
    return replace(network, parameters={**network.parameters, "row_shapes": json.dumps(shapes)})


def _alike(tensors: Iterable[ModelTensor]) -> list[list[ModelTensor]]:
    """The tensors with one value a row, by dtype."""
    by_dtype: dict[str, list[ModelTensor]] = {}
    for tensor in tensors:
        if tensor.dims == (-1, 1):
            by_dtype.setdefault(tensor.dtype, []).append(tensor)
    return list(by_dtype.values())


def _mixed(tensors: Sequence[ModelTensor]) -> list[list[ModelTensor]]:
    """The numbers, with a dynamic width last; and the groups of `_alike` for other tensors."""
    numbers = [t for t in tensors if DTYPES[t.dtype].kind in ("int", "uint", "float")]
    last = [tensor for tensor in numbers if tensor.dims[1] < 0][:1]
    first = [tensor for tensor in numbers if tensor.dims[1] >= 0]
    # Adjacent tensors of equal dtype are split off together.
    of_last = {tensor.dtype for tensor in last}
    first.sort(key=lambda tensor: (tensor.dtype in of_last, tensor.dtype))
    names = {tensor.name for tensor in numbers}
    return [first + last, *_alike(t for t in tensors if t.name not in names)]


def _packed(members: Sequence[ModelTensor]) -> Packed:
    dtypes = {member.dtype for member in members}
    size = min(DTYPES[dtype].numpy.itemsize for dtype in dtypes)
    dtype = dtypes.pop() if len(dtypes) == 1 else f"int{8 * size}"
    return Packed(dtype, tuple(Member(m.name, m.dtype, m.dims[1]) for m in members))
