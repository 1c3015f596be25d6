"""Arithmetic of integers in ONNX: division, the hash and fingerprints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np

from workflow.expressions.language.fingerprints import CAT_MULTIPLIER, SHIFT
from workflow.expressions.language.hashing import MULTIPLIERS, SHIFTS, seed_offset
from workflow.expressions.language.types import ExpressionError, Type
from workflow.expressions.program.program import Step

from .casts import convert, flip, joint, wrap
from .graph import Graph, Tensor


def whole_division(
    graph: Graph, step: Step, types: Sequence[Type], operands: Sequence[Tensor]
) -> Tensor:
    """`floor_divide` and `modulo`.

    A division by 0, or of the least integer by -1, would abort the process.
    """
    dtype, divisor = step.type.dtype, types[1].value
    a, b = (convert(graph, o.values, t.dtype, dtype) for o, t in zip(operands, types, strict=True))
    nonzero = None
    if not divisor:
        nonzero = graph.add("Not", graph.add("Equal", b, graph.constant(0, "int64")))
        b = graph.add("Where", nonzero, b, graph.constant(1, "int64"))
        if operands[1].constant:
            nonzero = graph.add("Expand", nonzero, graph.add("Shape", a))
    if dtype == "uint64":
        divide = _unsigned_quotient if step.verb == "floor_divide" else _unsigned_rest
        values = divide(graph, a, b)
    elif step.verb == "modulo":
        values = graph.add("Mod", a, b if divisor and divisor > 0 else _not_minus_one(graph, b)[1])
    else:
        values = _quotient(graph, a, b, positive=bool(divisor) and divisor > 0)
        values = values if step.type.kind == "uint" else wrap(graph, values, dtype)
    result = joint(graph, operands, values)
    return replace(result, valid=graph.every(result.valid, nonzero))


def _quotient(graph: Graph, a: str, b: str, *, positive: bool) -> str:
    """Div truncates the quotient, which for a negative one is too large by one."""
    zero = graph.constant(0, "int64")
    below = graph.add("Less", a, zero)
    if positive:
        rest, whole = graph.add("Mod", a, b), graph.add("Div", a, b)
    else:
        below = graph.add("Xor", below, graph.add("Less", b, zero))
        minus, divisor = _not_minus_one(graph, b)
        rest = graph.add("Mod", a, divisor)
        whole = graph.add("Where", minus, graph.add("Neg", a), graph.add("Div", a, divisor))
    inexact = graph.add("Not", graph.add("Equal", rest, zero))
    return graph.add("Sub", whole, graph.cast(graph.add("And", inexact, below), "int64"))


def _not_minus_one(graph: Graph, b: str) -> tuple[str, str]:
    """Whether a divisor is -1, and the divisor with 1 in place of -1."""
    minus = graph.add("Equal", b, graph.constant(-1, "int64"))
    return minus, graph.add("Where", minus, graph.constant(1, "int64"), b)


def _unsigned_rest(graph: Graph, a: str, b: str) -> str:
    rest = graph.add("Mod", graph.cast(a, "uint64"), graph.cast(b, "uint64"))
    return graph.cast(rest, "int64")


def _unsigned_quotient(graph: Graph, a: str, b: str) -> str:
    """The quotient of unsigned 64-bit integers, by signed division.

    Source: Warren, "Hacker's Delight", 2nd edition, section 9-3.
    """
    zero, one = graph.constant(0, "int64"), graph.constant(1, "int64")
    half = graph.add("Div", _shifted(graph, a, 1), b)
    near = graph.add("Add", half, half)
    rest = graph.add("Sub", a, graph.add("Mul", near, b))
    more = graph.add("GreaterOrEqual", flip(graph, rest), flip(graph, b))
    quotient = graph.add("Add", near, graph.cast(more, "int64"))
    # A divisor from 2**63 on, carried as a negative number, fits at most once.
    once = graph.add("GreaterOrEqual", flip(graph, a), flip(graph, b))
    large = graph.add("Where", once, one, zero)
    return graph.add("Where", graph.add("Less", b, zero), large, quotient)


def hash_value(
    graph: Graph, step: Step, types: Sequence[Type], operands: Sequence[Tensor]
) -> Tensor:
    """`hash` of integers and booleans, in int64, whose products wrap around as in uint64.

    Raises:
        ExpressionError: a column of strings.
    """
    if types[0].kind == "string":
        raise ExpressionError(
            "ONNX has no operator for the bytes of a string, so it cannot hash one. Pass the strings to "
            "Categorify first."
        )
    bits = convert(graph, operands[0].values, types[0].dtype, "int64")
    bits = graph.add("Add", bits, _constant(graph, seed_offset(step.parameters["seed"])))
    for shift, multiplier in zip(SHIFTS, (*MULTIPLIERS, None), strict=True):
        bits = graph.add("BitwiseXor", bits, _shifted(graph, bits, shift))
        if multiplier is not None:
            bits = graph.add("Mul", bits, _constant(graph, multiplier))
    return joint(graph, operands, _shifted(graph, bits, 1))


def fingerprint(_: Graph, __: Step, types: Sequence[Type], ___: Sequence[Tensor]) -> NoReturn:
    """`fingerprint64`.

    Raises:
        ExpressionError: always.
    """
    raise ExpressionError(
        "ONNX has no operator for the bytes of a string or the digits of an integer, so it cannot "
        f"make TensorFlow's fingerprint of {types[0]}. Use Categorify without num_buckets in its place."
    )


def concatenate(graph: Graph, _: Step, types: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
    """`fingerprint_cat64`, the formula of `fingerprints.concatenate` in int64."""
    first, second = (
        convert(graph, o.values, t.dtype, "int64") for o, t in zip(operands, types, strict=True)
    )
    factor = _constant(graph, CAT_MULTIPLIER)

    def mixed(bits: str) -> str:
        return graph.add("BitwiseXor", bits, _shifted(graph, bits, SHIFT))

    def times(bits: str) -> str:
        return graph.add("Mul", bits, factor)

    both = graph.add("BitwiseXor", first, factor)
    both = graph.add("BitwiseXor", both, times(mixed(times(second))))
    return joint(graph, operands, mixed(times(mixed(times(both)))))


def _constant(graph: Graph, bits: int) -> str:
    return graph.constant(int(np.uint64(bits).astype(np.int64)), "int64")


def _shifted(graph: Graph, name: str, places: int) -> str:
    """Bits shifted to the right with zeros filled in; onnxruntime shifts uint64 only."""
    by = graph.table(np.array([[places]], np.uint64))
    return graph.cast(
        graph.add("BitShift", graph.cast(name, "uint64"), by, direction="RIGHT"), "int64"
    )
