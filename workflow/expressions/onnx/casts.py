"""Conversions between dtypes in ONNX, where integers are carried as int64, and `cast`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workflow.expressions.language.types import Type
from workflow.expressions.program.program import Step
from workflow.schema.dtypes import DTYPES

from .graph import Graph, Tensor, carrier

SIGN_BIT = -(2**63)
_TAKES_FIRST = {"Min": "Less", "Max": "Greater"}


def joint(graph: Graph, operands: Sequence[Tensor], values: str) -> Tensor:
    """A result that is null where an operand is null."""
    lengths = next((o.lengths for o in operands if o.lengths is not None), None)
    valid = graph.every(*(o.valid for o in operands))
    return Tensor(values, valid, lengths, all(o.constant for o in operands))


def convert(graph: Graph, name: str, have: str, want: str) -> str:
    """Convert a tensor from one dtype to the carrier of another that holds its values, or of a float."""
    if carrier(have) == carrier(want):
        return name
    return graph.cast(graph.cast(name, have) if have == "uint64" else name, carrier(want))


def wrap(graph: Graph, name: str, dtype: str) -> str:
    """Wrap an integer around at the limits of its dtype."""
    if DTYPES[dtype].is_integer and DTYPES[dtype].numpy.itemsize < 8:
        return graph.cast(graph.cast(name, dtype), "int64")
    return name


def flip(graph: Graph, name: str) -> str:
    """Map a uint64 to the int64 with the same rank, and back."""
    return graph.add("Add", name, graph.constant(SIGN_BIT, "int64"))


def choose(graph: Graph, operator: str, a: str, b: str, dtype: str) -> str:
    """`Min` or `Max` of two numbers; NaN with anything is NaN.

    Not by the kernels of these names for integers: onnxruntime 1.23 to 1.31 compares int64 by the
    lower halves if the processor has AVX-512.
    """
    if DTYPES[dtype].kind == "float":
        return graph.add(operator, a, b)
    first, second = (flip(graph, a), flip(graph, b)) if dtype == "uint64" else (a, b)
    return graph.add("Where", graph.add(_TAKES_FIRST[operator], first, second), a, b)


def cast(graph: Graph, step: Step, types: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
    """`cast`: saturating, NaN to 0."""
    have, want, name = types[0].dtype, step.type.dtype, operands[0].values
    if have == want:
        return operands[0]
    if DTYPES[want].is_integer and DTYPES[have].is_integer:
        return _fit(graph, operands[0], have, want)
    if want == "bool":
        name = _truth(graph, name, have)
    elif not DTYPES[want].is_integer or have == "bool":
        name = convert(graph, name, have, want)
    else:
        name = _saturate(graph, convert(graph, name, have, "float64"), want)
    return joint(graph, operands, name)


def _truth(graph: Graph, name: str, have: str) -> str:
    zero = graph.constant(0, have)
    if DTYPES[have].is_integer:
        return graph.add("Not", graph.add("Equal", name, zero))
    return graph.add("Greater", graph.add("Abs", name), zero)  # False for NaN


def _fit(graph: Graph, operand: Tensor, have: str, want: str) -> Tensor:
    """An integer at the nearest value that another integer type has."""
    input_limits, limits = np.iinfo(DTYPES[have].numpy), np.iinfo(DTYPES[want].numpy)
    least, most = operand.limits or (-np.inf, np.inf)
    least, most = max(least, int(input_limits.min)), min(most, int(input_limits.max))
    name = operand.values
    if limits.min > least:
        name = choose(graph, "Max", name, graph.constant(limits.min, have), have)
    if limits.max < most:
        name = choose(graph, "Min", name, graph.constant(limits.max, have), have)
    return operand if name == operand.values else joint(graph, [operand], name)


def _saturate(graph: Graph, name: str, want: str) -> str:
    """Floats as integers; a float64 cannot hold the largest int64: that limit is treated separately."""
    limits = np.iinfo(DTYPES[want].numpy)
    zero = graph.constant(0.0, "float64")
    name = graph.add("Where", graph.add("Equal", name, name), name, zero)  # NaN is 0
    name = graph.add("Max", name, graph.constant(float(limits.min), "float64"))
    inside = graph.add("Less", name, graph.constant(float(limits.max), "float64"))
    name = graph.add("Where", inside, name, zero)
    if want == "uint64":
        name = graph.cast(name, want)
    return graph.add("Where", inside, graph.cast(name, "int64"), graph.constant(limits.max, want))
