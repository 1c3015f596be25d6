"""Reductions along axes that are counted from the front.

onnxruntime, as late as in version 1.31, does not reduce values without elements, such as those of a
request without rows, along an axis that is counted from the back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from exporter.write.onnx.facts import attributes
from exporter.write.onnx.model import OnnxModel, prune
from training.network.onnx_session import call_session, open_session
from workflow.schema.column import Array
from workflow.wire.request_rules import NNZS


def with_axes_from_the_front(model: OnnxModel) -> OnnxModel:
    """An equal model whose reductions name no axis from the back, where the number of axes is known."""
    nodes = model.proto.graph.node
    inputs = {name for node in nodes if _reduces(node) for name in node.input[1:]}
    constants = constants_of(model.proto.graph, inputs)
    places = [
        place
        for place, node in enumerate(nodes)
        if _reduces(node) and min(_axes(node, constants)) < 0
    ]
    if not places:
        return model
    ranks = _ranks(model, {nodes[place].input[0] for place in places})
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    graph = proto.graph
    for node in (graph.node[place] for place in places):
        if not (rank := ranks.get(node.input[0], 0)):
            continue
        for attribute in node.attribute:
            if attribute.name == "axis":
                attribute.i %= rank
            elif attribute.name == "axes":
                attribute.ints[:] = [axis % rank for axis in attribute.ints]
        if (axes := constants.get(node.input[1]) if node.input[1:] else None) is not None:
            node.input[1] = f"{node.output[0]}/axes"
            graph.initializer.append(numpy_helper.from_array(axes % rank, node.input[1]))
    return prune(OnnxModel(proto, model.tables))


def _axes(node: onnx.NodeProto, constants: Mapping[str, Array]) -> list[int]:
    """The axes that a reduction names, as far as they are known."""
    own = attributes(node)
    given = [constants[name] for name in node.input[1:] if name in constants]
    return [*own.get("axes", ()), own.get("axis", 0), *(int(n) for a in given for n in a.flat)]


def _reduces(node: onnx.NodeProto) -> bool:
    is_reduction = node.op_type.startswith("Reduce") or node.op_type in ("ArgMax", "ArgMin")
    return is_reduction and not node.domain


def constants_of(graph: onnx.GraphProto, names: Collection[str]) -> dict[str, Array]:
    """The constants among some tensors."""
    arrays = {t.name: numpy_helper.to_array(t) for t in graph.initializer if t.name in names}
    for node in graph.node:
        if node.op_type == "Constant" and node.output[0] in names:
            (value,) = attributes(node).values()
            is_tensor = isinstance(value, onnx.TensorProto)
            arrays[node.output[0]] = numpy_helper.to_array(value) if is_tensor else np.array(value)
    return arrays


def _ranks(model: OnnxModel, names: Collection[str]) -> dict[str, int]:
    """The numbers of axes of some tensors: onnx infers most, and onnxruntime tells those of trees."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    proto.graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, table.shape)
        for name, table in model.tables.items()
    )
    graph = onnx.shape_inference.infer_shapes(proto).graph
    tensors = {t.name: t.type.tensor_type for t in (*graph.input, *graph.value_info, *graph.output)}
    known = {name: len(t.shape.dim) for name, t in tensors.items() if t.HasField("shape")}
    unknown = [name for name in names if not known.get(name)]
    return known | (_ranks_in_a_run(model, unknown) if unknown else {})


def _ranks_in_a_run(model: OnnxModel, names: Sequence[str]) -> dict[str, int]:
    """The numbers of axes of tensors for two rows of zeros; none if these cannot be answered."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    part = prune(OnnxModel(proto, model.tables))
    graph = part.proto.graph
    graph.initializer.extend(numpy_helper.from_array(t.read(), n) for n, t in part.tables.items())
    fed = {}
    for info in graph.input:
        kind = info.type.tensor_type
        shape = [size.dim_value or 2 for size in kind.shape.dim]
        # Each list has one element.
        value: Any = b"" if kind.elem_type == TensorProto.STRING else int(info.name.endswith(NNZS))
        fed[info.name] = np.full(shape, value, helper.tensor_dtype_to_np_dtype(kind.elem_type))
    try:
        made = call_session(open_session(part.proto.SerializeToString()), names, fed)
    except Exception:  # noqa: BLE001 - onnxruntime raises errors of several types
        return {}
    return {name: array.ndim for name, array in made.items()}
