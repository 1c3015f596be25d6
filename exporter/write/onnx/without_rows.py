"""Operations that end the process, and so the server, for requests without rows, or fail.

Some are given a row. A network of which onnxruntime infers a shape from values that are not there is
given one as a whole, since only its later operations know the shape that they need.

They do so as late as in onnxruntime 1.31.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from exporter.write.onnx.model import OnnxModel, rename, subgraphs
from workflow.wire.request_rules import is_list_values

# RNN has no such defect. DynamicQuantizeLSTM is of onnxruntime's quantization.
ENDING = ("LSTM", "GRU", "DynamicQuantizeLSTM", "FeatureVectorizer")
# By which exporters join the sizes of a shape, some of them computed.
_JOINING = ("Concat", "Cast", "Identity", "Unsqueeze", "Squeeze")
# Dtypes that `Pad` of onnxruntime takes.
_PADDED = {
    getattr(TensorProto, name)
    for name in ("FLOAT", "DOUBLE", "INT8", "INT32", "INT64", "UINT8", "UINT32", "UINT64", "BOOL")
}
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
    if _infers(proto.graph):
        _give_a_row(proto.graph)
    return OnnxModel(proto, model.tables)


def _infers(graph: onnx.GraphProto) -> bool:
    """Whether a size is inferred beside others that are computed."""
    makers = {name: node for node in graph.node for name in node.output}
    negative = {t.name for t in graph.initializer if _is_negative(t)}

    def has(name: str) -> bool:
        node = makers.get(name)
        if node is None:
            return name in negative
        if node.op_type == "Constant":
            return node.attribute[0].HasField("t") and _is_negative(node.attribute[0].t)
        return node.op_type in _JOINING and any(map(has, node.input))

    shapes = [node.input[1] for node in graph.node if node.op_type == "Reshape"]
    return any(name in makers and makers[name].op_type in _JOINING and has(name) for name in shapes)


def _is_negative(tensor: TensorProto) -> bool:
    is_shape = tensor.data_type in (TensorProto.INT32, TensorProto.INT64) and len(tensor.dims) < 2
    return is_shape and bool((numpy_helper.to_array(tensor) < 0).any())


def _change(graph: onnx.GraphProto, ranks: Mapping[str, int]) -> None:
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for inner in subgraphs(node):
            _change(inner, ranks)
        if node.op_type in ENDING:
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


def _missing_row(
    prefix: str, tensor: str, axis: int
) -> tuple[str, str, list[str], list[onnx.NodeProto]]:
    """The names of a tensor's number of rows, its pads up to one row and three axes, and their nodes."""
    rows, none, more, pads = (f"{prefix}/{part}" for part in ("count", "none", "more", "pads"))
    axes = [f"{prefix}/{number}" for number in range(3)]
    nodes = [
        helper.make_node(
            "Constant", [], [name], name, value=numpy_helper.from_array(np.array([number]))
        )
        for number, name in enumerate(axes)
    ]
    nodes += [
        helper.make_node("Shape", [tensor], [rows], rows, start=axis, end=axis + 1),
        helper.make_node("Equal", [rows, axes[0]], [none], none),
        helper.make_node("Cast", [none], [more], more, to=TensorProto.INT64),
        helper.make_node("Concat", [axes[0], more], [pads], pads, axis=0),
    ]
    return rows, pads, axes, nodes


def _give_a_row(graph: onnx.GraphProto) -> None:
    """Pad the inputs of a network to one row, and take it from its outputs."""
    names = {tensor.name for tensor in graph.input}
    taken = [tensor for tensor in graph.input if not is_list_values(tensor.name, names)]
    if not {tensor.type.tensor_type.elem_type for tensor in taken} <= _PADDED:
        return
    outer = [tensor.name for tensor in taken], [tensor.name for tensor in graph.output]
    inner = {name: f"{name}/row" for side in outer for name in side}
    rows, pads, axes, before = _missing_row("/rows", outer[0][0], 0)
    before += [
        helper.make_node("Pad", [name, pads, "", axes[0]], [inner[name]], inner[name])
        for name in outer[0]
    ]
    after = [
        helper.make_node("Slice", [inner[name], axes[0], rows, axes[0]], [name], name)
        for name in outer[1]
    ]
    nodes = rename(graph, lambda name: inner.get(name, name)).node
    del graph.node[:]
    graph.node.extend([*before, *nodes, *after])
    del graph.value_info[:]


def _padded(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """The operation between those that add the row and take it away."""
    taken_axes, made_axes = _axes(node)
    node_name = f"{next(filter(None, node.output))}/rows"
    rows, pads, axes, nodes = _missing_row(node_name, node.input[0], taken_axes[0])
    yield from nodes
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
