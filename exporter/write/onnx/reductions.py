"""Reductions along axes that are counted from the front.

onnxruntime, as late as in version 1.31, does not reduce values without elements, such as those of a
request without rows, along an axis that is counted from the back.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper, numpy_helper

from exporter.write.onnx.model import OnnxModel, prune


def with_axes_from_the_front(model: OnnxModel) -> OnnxModel:
    """An equal model whose reductions name no axis from the back, where the number of axes is known."""
    if not any(map(_reduces, model.proto.graph.node)):
        return model
    proto, ranks = onnx.ModelProto(), _ranks(model)
    proto.CopyFrom(model.proto)
    graph = proto.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    constants |= {n.output[0]: a.t for n in graph.node for a in n.attribute if a.name == "value"}
    for node in filter(_reduces, graph.node):
        if (rank := ranks.get(node.input[0])) is None:
            continue
        for attribute in node.attribute:
            if attribute.name == "axis":
                attribute.i %= rank
            elif attribute.name == "axes":
                attribute.ints[:] = [axis % rank for axis in attribute.ints]
        if (axes := constants.get(node.input[1]) if node.input[1:] else None) is not None:
            node.input[1] = f"{node.output[0]}/axes"
            positive = numpy_helper.to_array(axes) % rank
            graph.initializer.append(numpy_helper.from_array(positive, node.input[1]))
    return prune(OnnxModel(proto, model.tables))


def _reduces(node: onnx.NodeProto) -> bool:
    own = node.op_type.startswith("Reduce") or node.op_type in ("ArgMax", "ArgMin")
    return own and not node.domain


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
