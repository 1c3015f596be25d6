"""Operations that end the process, and so the server, for requests without rows, or fail.

They do so as late as in onnxruntime 1.31.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from exporter.write.onnx.model import OnnxModel, subgraphs

# RNN has no such defect. DynamicQuantizeLSTM is of onnxruntime's quantization.
_ENDING = ("LSTM", "GRU", "DynamicQuantizeLSTM", "FeatureVectorizer")
# By which scikit-learn's classifiers choose a row's label among the classes; it fails.
_CHOOSING = "ArrayFeatureExtractor"


def with_a_row(model: OnnxModel) -> OnnxModel:
    """An equal model in which these operations have one row of zeros where a request has none.

    An operation that chooses becomes another one, which takes no rows too.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    constants = [
        n for n in proto.graph.node if n.op_type == "Constant" and n.attribute[0].HasField("t")
    ]
    ranks = {name: len(table.shape) for name, table in model.tables.items()}
    ranks |= {tensor.name: len(tensor.dims) for tensor in proto.graph.initializer}
    _change(proto.graph, ranks | {n.output[0]: len(n.attribute[0].t.dims) for n in constants})
    return OnnxModel(proto, model.tables)


def _change(graph: onnx.GraphProto, ranks: Mapping[str, int]) -> None:
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for inner in subgraphs(node):
            _change(inner, ranks)
        if node.op_type in _ENDING:
            nodes += _padded(node)
        elif node.op_type == _CHOOSING and node.input[0] in ranks:
            nodes += _gathered(node, ranks[node.input[0]])
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _gathered(node: onnx.NodeProto, rank: int) -> Iterator[onnx.NodeProto]:
    """A choice among constants, which makes one row of them if they are a vector."""
    own, (values, positions) = node.output[0], node.input
    shape = numpy_helper.from_array(np.array([1, -1] if rank == 1 else [-1]))
    yield helper.make_node("Constant", [], [f"{own}/shape"], value=shape)
    yield helper.make_node("Reshape", [positions, f"{own}/shape"], [f"{own}/positions"])
    yield helper.make_node("Gather", [values, f"{own}/positions"], [own], own, axis=-1)


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
