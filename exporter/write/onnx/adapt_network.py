"""A user's ONNX network with the inputs and outputs that are served.

Matrices become columns, and numbers without columns become one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from exporter.errors import ExportError
from exporter.write.onnx.model import OnnxModel, Table, rename
from exporter.write.onnx.opsets import opsets_of, with_opsets
from training.network.onnx_network import OnnxNetwork
from training.signature import TensorSpec
from workflow.errors import in_a_line
from workflow.expressions.onnx import IR_VERSION, OPSET
from workflow.schema.dtypes import DTYPES
from workflow.wire.request_rules import VALUES

# Weights with more bytes stay outside of the graph until it is written.
LARGE = 100_000
_ROWS = "rows"
# Shapes for Reshape.
_FLAT, _COLUMN = "/ flat", "/ column"


def adapt_network(network: OnnxNetwork) -> OnnxModel:
    """The network, its inputs and outputs named and shaped as in its signature.

    Raises:
        ExportError: its operations are older than those of the preprocessing, and cannot be raised.
    """
    file = network.model.file
    proto = _raised(_with_constants(file.proto, file.folder), file.folder)
    tables = _take_tables(proto.graph, file.folder)
    names = _public_names(network, proto.graph)

    def renamed(name: str) -> str:
        return names.get(name) or (name and f"/{name}")

    graph = rename(proto.graph, renamed)
    before, after = [*_packed(network, renamed)], [*_columns(network, renamed)]
    constants = [*graph.initializer]
    shapes = {_FLAT: [-1], _COLUMN: [-1, 1]}
    inputs = {name for node in (*before, *after) for name in node.input}
    constants += [numpy_helper.from_array(np.array(s), n) for n, s in shapes.items() if n in inputs]
    proto.graph.CopyFrom(
        helper.make_graph(
            [*before, *graph.node, *after],
            "network",
            [*map(_info, network.signature.inputs)],
            [*map(_info, network.signature.outputs)],
            constants,
        )
    )
    # Converters write the newest version, which an older server refuses whatever the operations are.
    least = helper.find_min_ir_version_for(proto.opset_import, ignore_unknown=True)
    proto.ir_version = max(least, IR_VERSION)
    return OnnxModel(proto, {renamed(name): table for name, table in tables.items()})


def _with_constants(proto: onnx.ModelProto, folder: Path | None) -> onnx.ModelProto:
    """The model with the constants of its operations inside, which a graph has no table for."""
    if not any(_is_outside(a.t) for node in proto.graph.node for a in node.attribute):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for node in copy.graph.node:
        for attribute in node.attribute:
            if _is_outside(attribute.t):
                attribute.t.CopyFrom(_inside(attribute.t, folder))
    return copy


def _is_outside(tensor: TensorProto) -> bool:
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def _raised(proto: onnx.ModelProto, folder: Path | None) -> onnx.ModelProto:
    have = opsets_of(proto).get("", OPSET)
    outside = [t for t in proto.graph.initializer if _is_outside(t)]
    if have < OPSET and outside:
        raise ExportError(
            f"Expected a network of opset {OPSET} or a newer one, since its weights lie in other "
            f"files, so that onnx cannot raise it. Received: opset {have}, and weights in {folder}. "
            f"Export it for opset {OPSET}, as with torch.onnx.export(..., opset_version={OPSET})."
        )
    return with_opsets(proto, {"": OPSET})


def _public_names(network: OnnxNetwork, graph: onnx.GraphProto) -> dict[str, str]:
    """The network's own names of tensors that become inputs and outputs as they are."""
    model = network.model
    names = {
        spec.name: network.columns_of(spec.name)[0]
        for spec in model.inputs
        if spec.name not in model.flat and not isinstance(network.columns.get(spec.name), tuple)
    }
    results = {name for node in graph.node for name in node.output}
    return names | {name: name for name in model.outputs if name in results - network.columnar}


def _packed(network: OnnxNetwork, renamed: Callable[[str], str]) -> Iterable[onnx.NodeProto]:
    """Operations that make the network's own inputs of columns."""
    for spec in network.model.inputs:
        inner, columns = renamed(spec.name), network.columns_of(spec.name)
        if spec.name in network.model.flat:
            yield helper.make_node("Reshape", [columns[0], _FLAT], [inner], inner)
        elif isinstance(network.columns.get(spec.name), tuple):
            yield helper.make_node("Concat", columns, [inner], inner, axis=1)


def _columns(network: OnnxNetwork, renamed: Callable[[str], str]) -> Iterable[onnx.NodeProto]:
    """Operations that make the served outputs from the network's own."""
    for name in network.model.outputs:
        inner = renamed(name)
        if name in network.columnar:
            yield helper.make_node("Reshape", [inner, _COLUMN], [name], name)
        elif inner != name:
            yield helper.make_node("Identity", [inner], [name], name)


def _info(spec: TensorSpec) -> onnx.ValueInfoProto:
    dtype = TensorProto.DataType.Value(DTYPES[spec.dtype].onnx)
    # onnxruntime reuses memory for another tensor whose sizes have the same names.
    rows = f"elements of {spec.name}" if spec.name.endswith(VALUES) else _ROWS
    return helper.make_tensor_value_info(spec.name, dtype, [rows, spec.shape[1]])


def _take_tables(graph: onnx.GraphProto, folder: Path | None) -> dict[str, Table]:
    """Remove large weights from a graph; small ones in other files get inside, as shapes have to be."""
    tables, small = {}, []
    for tensor in graph.initializer:
        if _size(tensor) > LARGE:
            tables[tensor.name] = Table(tuple(tensor.dims), partial(_array, tensor, folder))
        else:
            small.append(_inside(tensor, folder))
    del graph.initializer[:]
    graph.initializer.extend(small)
    return tables


def _size(tensor: TensorProto) -> int:
    if tensor.data_type == TensorProto.STRING:
        return 0
    width = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(np.prod(tensor.dims)) * width


def _inside(tensor: TensorProto, folder: Path | None) -> TensorProto:
    """The tensor with its values."""
    if not _is_outside(tensor):
        return tensor
    copy = TensorProto()
    copy.CopyFrom(tensor)
    try:
        onnx.external_data_helper.load_external_data_for_tensor(copy, str(folder))
    except Exception as error:  # onnx raises errors of several types
        raise ExportError(
            f"Expected the weights {tensor.name!r} in {folder}. Received: {in_a_line(error)}"
        ) from error
    copy.ClearField("external_data")
    copy.data_location = TensorProto.DEFAULT
    return copy


def _array(tensor: TensorProto, folder: Path | None) -> Any:
    return numpy_helper.to_array(_inside(tensor, folder))
