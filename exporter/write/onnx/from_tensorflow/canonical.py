"""Converted graphs whose names and order do not depend on the process that converted them.

tf2onnx numbers its operations for the whole process, iterates over sets, and merges equal constants
under the name of any of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from exporter.write.onnx.model import OnnxModel, rename, subgraphs

Names = dict[str, str]


def canonical(model: OnnxModel) -> OnnxModel:
    """An equal model, whose operations and constants are in the order of their use, and named by it.

    Args:
        model: its inputs and outputs keep their names and order; operations that no output depends
            on are dropped.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    named = (*proto.graph.input, *proto.graph.output)
    names = {"": ""} | {info.name: info.name for info in named}
    _arrange(proto.graph, names)
    proto.graph.CopyFrom(rename(proto.graph, names.__getitem__))
    tables = {new: model.tables[name] for name, new in names.items() if name in model.tables}
    return OnnxModel(proto, tables)


def _arrange(graph: onnx.GraphProto, names: Names) -> None:
    """Sort a graph and its subgraphs, and find a name for each of their tensors."""
    nodes = _in_order(graph)
    for node in nodes:
        for name in node.input:
            names.setdefault(name, f"/constant/{len(names)}")
        for inner in subgraphs(node):
            for info in inner.input:
                names.setdefault(info.name, f"/input/{len(names)}")
            _put_copies_last(inner)
            _arrange(inner, names)
        for name in node.output:
            names.setdefault(name, f"/{node.op_type}/{len(names)}")
        _strip(node)
    for info in graph.output:
        names.setdefault(info.name, f"/constant/{len(names)}")
    places = {name: place for place, name in enumerate(names)}
    constants = [tensor for tensor in graph.initializer if tensor.name in names]
    constants.sort(key=lambda tensor: places[tensor.name])
    sized = [_without_sizes(info) for info in (*graph.input, *graph.output)]
    graph.CopyFrom(
        onnx.GraphProto(
            name="network",
            node=nodes,
            initializer=constants,
            input=sized[: len(graph.input)],
            output=sized[len(graph.input) :],
        )
    )


def _strip(node: onnx.NodeProto) -> None:
    """Name an operation by its output, and leave out what does not matter."""
    node.name = node.output[0]
    # Absent in some, and empty in others.
    node.ClearField("domain")
    node.attribute.sort(key=lambda attribute: attribute.name)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            attribute.t.ClearField("name")


def _without_sizes(info: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """An input or output whose unknown sizes have no names."""
    for size in info.type.tensor_type.shape.dim:
        size.ClearField("dim_param")
    return info


def _put_copies_last(graph: onnx.GraphProto) -> None:
    """Let the first of several outputs of one value be the value, and the others copies of it."""
    sources = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "Identity"}
    for place, info in enumerate(graph.output):
        for other in graph.output[place + 1 :]:
            if sources.get(info.name) == other.name:
                info.name, other.name = other.name, info.name


def _in_order(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The operations that the outputs depend on, each after those that it depends on.

    The order is that of the inputs of each operation, not that of the graph.
    """
    makers = {name: node for node in graph.node for name in node.output if name}
    ordered, seen = [], set()
    waiting = [(info.name, False) for info in reversed(graph.output)]
    while waiting:
        name, is_next = waiting.pop()
        if name not in makers:
            continue
        node = makers[name]
        if is_next:
            ordered.append(node)
        elif node.output[0] not in seen:
            seen.add(node.output[0])
            waiting += [(name, True), *((operand, False) for operand in reversed([*_used(node)]))]
    return ordered


def _used(node: onnx.NodeProto) -> Iterator[str]:
    """The tensors that an operation and its subgraphs use."""
    yield from node.input
    for inner in subgraphs(node):
        for part in _in_order(inner):
            yield from _used(part)
        yield from (info.name for info in inner.output)
