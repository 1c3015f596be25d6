"""Reductions along axes that are counted from the front.

onnxruntime, as late as in version 1.31, does not reduce values without elements, such as those of a
request without rows, along an axis that is counted from the back.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from exporter.write.onnx.facts import attributes
from exporter.write.onnx.model import OnnxModel, prune
from workflow.schema.column import Array


def with_axes_from_the_front(model: OnnxModel) -> OnnxModel:
    """An equal model whose reductions name no axis from the back, where the number of axes is known."""
    if not any(map(_reduces, model.proto.graph.node)):
        return model
    proto, ranks = onnx.ModelProto(), _ranks(model)
    proto.CopyFrom(model.proto)
    graph = proto.graph
    reducing = [node for node in graph.node if _reduces(node)]
    constants = _constants(graph, {name for node in reducing for name in node.input[1:]})
    for node in reducing:
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


def _reduces(node: onnx.NodeProto) -> bool:
    is_reduction = node.op_type.startswith("Reduce") or node.op_type in ("ArgMax", "ArgMin")
    return is_reduction and not node.domain


def _constants(graph: onnx.GraphProto, names: Collection[str]) -> dict[str, Array]:
    """The constants among some tensors."""
    arrays = {t.name: numpy_helper.to_array(t) for t in graph.initializer if t.name in names}
    for node in graph.node:
        if node.op_type == "Constant" and node.output[0] in names:
            (value,) = attributes(node).values()
            is_tensor = isinstance(value, onnx.TensorProto)
            arrays[node.output[0]] = numpy_helper.to_array(value) if is_tensor else np.array(value)
    return arrays


def _ranks(model: OnnxModel) -> dict[str, int]:
    """The numbers of axes of a graph's tensors, as far as they follow from those of the inputs."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    proto.graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, table.shape)
        for name, table in model.tables.items()
    )
    graph = onnx.shape_inference.infer_shapes(proto).graph
    tensors = {info.name: info.type.tensor_type for info in (*graph.input, *graph.value_info)}
    return {name: len(t.shape.dim) for name, t in tensors.items() if t.HasField("shape")}
