"""Verbs over whole lists, in ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from workflow.expressions.language.types import Type
from workflow.expressions.program.program import Step

from .casts import choose, convert
from .graph import Graph, Tensor
from .padding import pad
from .tables import elements_of_rows, rows_of_elements


def list_length(_: Graph, __: Step, ___: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
    """`list_length`: the lengths beside the values."""
    return Tensor(str(operands[0].lengths))


def list_slice(graph: Graph, step: Step, _: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
    """`list_slice`."""
    (a,), end = operands, step.parameters["end"]
    size = graph.add("Reshape", str(a.lengths), graph.vector(-1))
    begin = _place(graph, step.parameters["start"], size)
    stop = size if end is None else _place(graph, end, size)
    stop = choose(graph, "Max", begin, stop, "int64")
    lengths = graph.add("Sub", stop, begin)
    first = graph.add("Sub", graph.add("CumSum", size, graph.vector(0)), size)
    element = elements_of_rows(graph, graph.add("Add", first, begin), lengths)
    values, valid = (
        None if name is None else graph.add("Gather", _flat(graph, name), element)
        for name in (a.values, a.valid)
    )
    return Tensor(str(values), valid, graph.add("Reshape", lengths, graph.vector(-1, 1)))


def _place(graph: Graph, bound: int, size: str) -> str:
    """Position of a slice's bound in lists of these lengths."""
    number = graph.vector(bound)
    if bound < 0:
        return choose(graph, "Max", graph.add("Add", size, number), graph.vector(0), "int64")
    return choose(graph, "Min", size, number, "int64")


def list_pad(graph: Graph, step: Step, types: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
    """`list_pad`."""
    dtype, length, lengths = step.type.dtype, step.parameters["length"], str(operands[0].lengths)
    values, filling = (
        convert(graph, o.values, t.dtype, dtype) for o, t in zip(operands, types, strict=True)
    )
    rows, valid = pad(graph, values, lengths, dtype, length, filling), operands[0].valid
    if valid is not None:
        yes = graph.constant(value=True, dtype="bool")
        valid = _flat(graph, pad(graph, valid, lengths, "bool", length, yes))
        valid = graph.add("Reshape", valid, graph.vector(-1, 1))
    counts = graph.add("Expand", graph.constant(length, "int64"), graph.add("Shape", lengths))
    return Tensor(graph.add("Reshape", rows, graph.vector(-1, 1)), valid, counts)


def repeat_as(graph: Graph, _: Step, __: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
    """`repeat_as`."""
    a, lists = operands
    row = rows_of_elements(graph, _flat(graph, str(lists.lengths)))[0]
    values = graph.add("Gather", a.values, row)
    graph.repeated[values] = a.values, row
    valid = None if a.valid is None else graph.add("Gather", a.valid, row)
    return replace(a, values=values, valid=valid, lengths=lists.lengths, lookup=None)


def _flat(graph: Graph, name: str) -> str:
    return graph.add("Reshape", name, graph.vector(-1))
