"""Computation on every result of a lookup in advance, instead of on those of each request.

A joined list becomes one vector of an embedding layer by some seventy operations, though its row of
the joined table determines the vector. So it is with a joined number that is filled, cast and scaled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from exporter.write.onnx.facts import Facts
from exporter.write.onnx.model import OnnxModel, Table, prune, taken_inside
from training.network.onnx_session import open_session

# Larger tables are not made.
MOST_BYTES = 64_000_000
# The fewest operations that a table replaces; of a large table of the network it has a copy of some rows.
_FEWEST_NODES = 3
_FEWEST_OF_LARGE = 20
# Operations whose results have the same bits on every processor: no sums in any order, no functions
# that libraries approximate.
_EXACT = {
    *(
        "Abs",
        "Add",
        "And",
        "Cast",
        "Compress",
        "Concat",
        "CumSum",
        "Div",
        "Equal",
        "Expand",
        "Gather",
    ),
    *("Greater", "GreaterOrEqual", "Identity", "IsNaN", "Less", "LessOrEqual", "Max", "Min", "Mul"),
    *("Neg", "Not", "Or", "Range", "ReduceMax", "Reshape", "ScatterElements", "ScatterND", "Shape"),
    *("Size", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where", "Xor"),
}
_ALONE = 32

Results = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class _Region:
    """Operations on the results of one lookup alone.

    Attributes:
        source: the tensor of the results, int64 [rows, 1].
        limits: the smallest and the largest result.
        nodes: the operations, in order.
        exits: the tensors that other operations take.
    """

    source: str
    limits: tuple[int, int]
    nodes: tuple[onnx.NodeProto, ...]
    exits: tuple[str, ...]


def tabulate(model: OnnxModel) -> OnnxModel:
    """An equal model with tables in place of operations on the results of one lookup.

    Only where a row's values are bit for bit the same whichever other rows a request has.
    """
    lookups: dict[str, tuple[str, Any]] = {}
    for region in _regions(model):
        try:
            results = _results(model, region)
        except Exception:  # noqa: BLE001, S112 - onnxruntime may raise any type
            # A result that the network cannot take, such as an id beyond its table: the proof names it.
            continue
        lookups |= {name: (region.source, table) for name, table in results.items()}
    if not lookups:
        return model
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    del proto.graph.node[:]
    for node in model.proto.graph.node:
        replaced = lookups.get(node.output[0])
        proto.graph.node.extend([node] if replaced is None else _gather(node.output[0], *replaced))
    widths = {table.shape[1] for _, table in lookups.values()}
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.array([-1, width]), f"/tabulated/{width}")
        for width in sorted(widths)
    )
    tables = {
        _table_of(name): Table(table.shape, partial(np.asarray, table))
        for name, (_, table) in lookups.items()
    }
    return prune(OnnxModel(proto, {**model.tables, **tables}))


def _table_of(name: str) -> str:
    return f"{name}/table"


def _gather(name: str, source: str, table: Any) -> list[onnx.NodeProto]:
    """The rows of a table, [rows, width]."""
    rows = f"{name}/rows"
    return [
        helper.make_node("Gather", [_table_of(name), source], [rows], rows),
        helper.make_node("Reshape", [rows, f"/tabulated/{table.shape[1]}"], [name], name),
    ]


def _regions(model: OnnxModel) -> Iterator[_Region]:
    graph = model.proto.graph
    facts = Facts(graph, {name: table.shape for name, table in model.tables.items()})
    for node in graph.node:
        facts.learn(node)
    constants = {tensor.name for tensor in graph.initializer} | {""}
    large = _readable_tables(model)
    kept = taken_inside(graph.node) | {tensor.name for tensor in graph.output}
    for node in graph.node:
        fact = facts[node.output[0]] if node.op_type == "LabelEncoder" else None
        if fact is None or fact.limits is None:
            continue
        if fact.width == 1 and fact.dtype == TensorProto.INT64:
            region = _region(graph, constants, large, kept, node.output[0], fact.limits[0])
            if region is not None:
                yield region


def _readable_tables(model: OnnxModel) -> set[str]:
    """Large tables of the network that are small enough to compute with here."""
    size = np.dtype(np.float32).itemsize
    return {n for n, table in model.tables.items() if math.prod(table.shape) * size <= MOST_BYTES}


def _region(
    graph: onnx.GraphProto,
    constants: set[str],
    large: set[str],
    kept: set[str],
    source: str,
    limits: tuple[int, int],
) -> _Region | None:
    inside, available, nodes = {source}, constants | large | {source}, []
    for node in graph.node:
        if node.op_type in _EXACT and available.issuperset(node.input):
            nodes.append(node)
            available.update(node.output)
            if not inside.isdisjoint(node.input):
                inside.update(node.output)
    node_ids = {id(node) for node in nodes}
    outside = {name for node in graph.node if id(node) not in node_ids for name in node.input}
    outside |= kept
    leaving = [node for node in nodes if not outside.isdisjoint(inside.intersection(node.output))]
    exits = tuple(node.output[0] for node in leaving)
    saved = [node for node in nodes if not inside.isdisjoint(node.output)]
    copies = any(not large.isdisjoint(node.input) for node in saved)
    fewest = _FEWEST_OF_LARGE if copies else _FEWEST_NODES
    whole = all(len(node.output) == 1 for node in leaving)
    if not exits or len(saved) < fewest * len(exits) or not whole or limits[0] < 0:
        return None
    return _Region(source, limits, tuple(nodes), exits)


def _results(model: OnnxModel, region: _Region) -> Results:
    """The exits for each result of the lookup, by its number; none unless they are tables."""
    least, most = region.limits
    count = most + 1 - least
    if most * np.dtype(np.int64).itemsize > MOST_BYTES:
        return {}
    run = _session(model, region)
    every = np.arange(least, most + 1)
    random = np.random.default_rng(0)
    probe = random.choice(every, min(_ALONE, count), replace=False)
    alone = [run(probe[n : n + 1]) for n in range(len(probe))]
    width = sum(a.nbytes for a in alone[0].values())
    if width * (most + 1) > MOST_BYTES:
        return {}
    tables, other = run(every), random.permutation(count)
    shuffled = run(every[other])
    for name, table in tables.items():
        if table.shape != (count, alone[0][name].size):
            return {}
        same = [
            table[number - least].tobytes() == a[name].tobytes()
            for number, a in zip(probe, alone, strict=True)
        ]
        if not all(same) or table[other].tobytes() != shuffled[name].tobytes():
            return {}
    return {n: np.pad(table, ((least, 0), (0, 0))) for n, table in tables.items()}


def _session(model: OnnxModel, region: _Region) -> Any:
    """A function from results of the lookup to the exits."""
    operands = {name for node in region.nodes for name in node.input}
    graph = helper.make_graph(
        region.nodes,
        "region",
        [helper.make_tensor_value_info(region.source, TensorProto.INT64, ["rows", 1])],
        [onnx.ValueInfoProto(name=name) for name in region.exits],
        [
            *(tensor for tensor in model.proto.graph.initializer if tensor.name in operands),
            *(
                numpy_helper.from_array(np.asarray(table.read()), name)
                for name, table in model.tables.items()
                if name in operands
            ),
        ],
    )
    proto = helper.make_model(
        graph, opset_imports=model.proto.opset_import, ir_version=model.proto.ir_version
    )
    session = open_session(proto.SerializeToString())
    return lambda rows: dict(
        zip(region.exits, session.run(None, {region.source: rows.reshape(-1, 1)}), strict=True)
    )
