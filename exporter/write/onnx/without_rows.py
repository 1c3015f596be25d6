"""Operations that end the process, and so the server, for requests without rows.

They do so as late as in onnxruntime 1.31.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from exporter.write.onnx.model import OnnxModel, subgraphs

# RNN has no such defect. DynamicQuantizeLSTM is of onnxruntime's quantization.
_ENDING = ("LSTM", "GRU", "DynamicQuantizeLSTM", "FeatureVectorizer")


def with_a_row(model: OnnxModel) -> OnnxModel:
    """An equal model in which these operations have one row of zeros where a request has none."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    _change(proto.graph)
    return OnnxModel(proto, model.tables)


def _change(graph: onnx.GraphProto) -> None:
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for inner in subgraphs(node):
            _change(inner)
        nodes += _padded(node) if node.op_type in _ENDING else [node]
    del graph.node[:]
    graph.node.extend(nodes)


def _axes(node: onnx.NodeProto) -> tuple[dict[int, int], Sequence[int]]:
    """The axis of the rows in each input, by its place, and in each output, of those that have one."""
    if node.op_type == "FeatureVectorizer":
        return dict.fromkeys(range(len(node.input)), 0), (0,)
    # The values, their lengths and the states.
    return {0: 1, 4: 0, 5: 1, 6: 1}, (2, 1, 1)


def _padded(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """The operation between those that add the row and take it away."""
    taken_axes, made_axes = _axes(node)
    node_name = f"{next(filter(None, node.output))}/rows"
    rows, none, more, pads = (f"{node_name}/{part}" for part in ("count", "none", "more", "pads"))
    axes = [f"{node_name}/{axis}" for axis in range(3)]
    for number, name in enumerate(axes):
        value = numpy_helper.from_array(np.array([number]))
        yield helper.make_node("Constant", [], [name], name, value=value)
    yield helper.make_node(
        "Shape", [node.input[0]], [rows], rows, start=taken_axes[0], end=taken_axes[0] + 1
    )
    yield helper.make_node("Equal", [rows, axes[0]], [none], none)
    yield helper.make_node("Cast", [none], [more], more, to=TensorProto.INT64)
    yield helper.make_node("Concat", [axes[0], more], [pads], pads, axis=0)
    changed = onnx.NodeProto()
    changed.CopyFrom(node)
    changed.name = node_name
    for place, name in enumerate(node.input):
        if name and (axis := taken_axes.get(place)) is not None:
            changed.input[place] = inner = f"{node_name}/input {place}"
            yield helper.make_node("Pad", [name, pads, "", axes[axis]], [inner], inner)
    for place, name in enumerate(node.output):
        changed.output[place] = name and f"{node_name}/output {place}"
    yield changed
    for name, inner, number in zip(node.output, changed.output, made_axes, strict=False):
        if name:
            yield helper.make_node("Slice", [inner, axes[0], rows, axes[number]], [name], name)
