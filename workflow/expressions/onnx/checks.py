"""Checks of a request: a graph fails if columns differ in their rows, or for a NaN that is no null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Literal

from workflow.schema.dtypes import DTYPES
from workflow.wire.format import WireColumn

from .graph import Graph, Tensor, carrier

# With more inputs, opening a graph takes longer for their `Shape`s than for everything else.
MANY_INPUTS = 200
# Fewer are compared one by one, in a node each.
FEW_INPUTS = 8
Rows = Literal["unknown", "agree unless empty", "agree"]


def _counted(
    graph: Graph, wires: Mapping[str, WireColumn], sources: Mapping[str, Tensor], axis: int
) -> list[str]:
    """Tensors with the number of rows of every input; inputs of equal type are concatenated first.

    Strings are not, since they would be copied one by one.
    """
    alike: dict[str, list[str]] = {}
    for name, source in sources.items():
        dtype = "int64" if wires[name].is_list else carrier(wires[name].dtype)
        alike.setdefault(dtype, []).append(source.lengths or source.values)
    strings = alike.pop("string", [])
    return [graph.add("Concat", *group, axis=axis) for group in alike.values()] + strings


def checked(
    graph: Graph,
    wires: Mapping[str, WireColumn],
    sources: dict[str, Tensor],
    used: Sequence[str],
    rows: Rows,
) -> dict[str, Tensor]:
    """The inputs, if they agree in their rows and have no forbidden NaN; else the run fails.

    Args:
        graph: the graph to extend.
        wires: the wire form of the inputs.
        sources: the inputs.
        used: inputs that the outputs depend on.
        rows: what is checked elsewhere.
    """
    faults = _nan_counts(graph, wires, sources)
    if rows != "agree" and len(sources) > 1:
        if len(sources) == len(used) <= FEW_INPUTS:
            first, *rest = used
            shape = graph.add("Shape", _rowwise(sources[first]))
            sources = sources | {n: _reshaped(graph, sources[n], shape) for n in rest}
        else:
            faults.append(_rows_apart(graph, wires, sources, rows))
    if not faults:
        return sources
    count = reduce(partial(graph.add, "Add"), faults)
    # No tensor has -2 rows, so the Reshape fails.
    fits = graph.add("Equal", count, graph.vector(0))
    shape = graph.add("Where", fits, graph.vector(-1, 1), graph.vector(-2, 1))
    return sources | {used[0]: _reshaped(graph, sources[used[0]], shape)}


def _rowwise(source: Tensor) -> str:
    """The tensor of an input that has a row for each of the request."""
    return source.lengths or source.values


def _reshaped(graph: Graph, source: Tensor, shape: str) -> Tensor:
    """The input, if it has the shape; else the run fails."""
    same = graph.add("Reshape", _rowwise(source), shape, allowzero=1)
    return replace(source, values=same) if source.lengths is None else replace(source, lengths=same)


def _rows_apart(
    graph: Graph, wires: Mapping[str, WireColumn], sources: Mapping[str, Tensor], rows: Rows
) -> str:
    """A number that is 0 if the inputs agree in their rows.

    onnxruntime opens a graph in a time quadratic in the number of its `Shape`s, 3 s more for a
    thousand, so many inputs are counted together. Side by side they fail if their rows differ, unless
    some are empty: then the result has rows that are not filled. One below the other they are counted.
    """
    tensors = [_rowwise(source) for source in sources.values()]
    if rows == "unknown" and len(tensors) <= MANY_INPUTS:
        return _distance(graph, tensors)
    below = [graph.add("Shape", t, end=1) for t in _counted(graph, wires, sources, axis=0)]
    first = graph.add("Shape", tensors[0], end=1)
    total = graph.add("Mul", first, graph.vector(len(tensors)))
    lost = graph.add("Abs", graph.add("Sub", reduce(partial(graph.add, "Add"), below), total))
    if rows == "agree unless empty":
        return lost
    beside = _counted(graph, wires, sources, axis=1)
    return graph.add("Add", lost, _distance(graph, beside)) if len(beside) > 1 else lost


def _distance(graph: Graph, tensors: Sequence[str]) -> str:
    """The number of rows by which tensors differ from the first."""
    shapes = [graph.add("Shape", tensor, end=1) for tensor in tensors]
    apart = graph.add("Sub", graph.add("Concat", *shapes, axis=0), shapes[0])
    return graph.add("ReduceSum", graph.add("Abs", apart))


def _nan_counts(
    graph: Graph, wires: Mapping[str, WireColumn], sources: Mapping[str, Tensor]
) -> list[str]:
    """The number of NaN in the columns that take no null, for each dtype of floats."""
    of_dtype: dict[str, list[str]] = {}
    for name, column in wires.items():
        if DTYPES[column.dtype].kind == "float" and not column.nullable:
            of_dtype.setdefault(column.dtype, []).append(sources[name].values)
    counts = []
    for tensors in of_dtype.values():
        joint = graph.add("Concat", *tensors, axis=0) if len(tensors) > 1 else tensors[0]
        nans = graph.cast(graph.add("IsNaN", joint), "int64")
        counts.append(graph.add("ReduceSum", nans, keepdims=0))
    return counts
