"""Packed tensors between two ONNX models: one packs its outputs, the other unpacks its inputs."""

from __future__ import annotations

import onnx
from onnx import helper

from exporter.write.onnx.model import OnnxModel, fuse
from workflow.expressions.onnx import OUTPUT_SUFFIX
from workflow.wire.packed_tensor import Packing

_ROWS = "rows"


def pack_outputs(model: onnx.ModelProto, packing: Packing) -> onnx.ModelProto:
    """The model with some of its outputs packed side by side.

    Args:
        model: its outputs are named as those of `to_onnx`; outputs to pack are [N, 1].
        packing: the packed tensors by name, each with one dtype, and members under columns' names.
    """
    joined = onnx.ModelProto()
    joined.CopyFrom(model)
    outputs = {output.name: output for output in model.graph.output}
    for name, packed in packing.items():
        parts = [outputs.pop(member.name + OUTPUT_SUFFIX) for member in packed.members]
        joint = name + OUTPUT_SUFFIX
        names = [part.name for part in parts]
        joined.graph.node.append(helper.make_node("Concat", names, [joint], name=joint, axis=1))
        outputs[joint] = _matrix(joint, parts[0], len(parts))
    del joined.graph.output[:]
    joined.graph.output.extend(outputs.values())
    return joined


def unpack_inputs(network: OnnxModel, packing: Packing) -> OnnxModel:
    """The network with packed tensors as inputs, in place of their members."""
    if not packing:
        return network
    by_name = {tensor.name: tensor for tensor in network.proto.graph.input}
    inputs, outputs, nodes = [], [], []
    for name, packed in packing.items():
        kind = by_name[packed.members[0].name]
        parts = [member.name + OUTPUT_SUFFIX for member in packed.members]
        inputs.append(_matrix(name, kind, len(parts)))
        outputs += [_matrix(part, kind, 1) for part in parts]
        nodes.append(
            helper.make_node("Split", [name], parts, name=name, axis=1, num_outputs=len(parts))
        )
    graph = helper.make_graph(nodes, "packed", inputs, outputs)
    opsets = [opset for opset in network.proto.opset_import if not opset.domain]
    apart = helper.make_model(graph, opset_imports=opsets, ir_version=network.proto.ir_version)
    return fuse(apart, network)


def _matrix(name: str, like: onnx.ValueInfoProto, width: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, like.type.tensor_type.elem_type, [_ROWS, width])
