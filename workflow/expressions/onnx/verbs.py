"""Each verb in ONNX: a function from a step to nodes. A new verb is one entry of EMIT.

Uses only operators and types that onnxruntime has on the CPU in opset 18, from version 1.20 on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from workflow.expressions.language.types import Type, promote, table_dtype
from workflow.expressions.language.verbs import of_every_verb
from workflow.expressions.numpy.verbs import bounds
from workflow.expressions.program.program import Step
from workflow.schema.column import Array, Column
from workflow.schema.dtypes import DTYPES

from .casts import SIGN_BIT, cast, choose, convert, flip, joint, wrap
from .graph import Graph, Tensor, carrier
from .integers import concatenate, fingerprint, hash_value, whole_division
from .lists import list_length, list_pad, list_slice, repeat_as
from .tables import gather, look_up

Emit = Callable[[Graph, Step, Sequence[Type], Sequence[Tensor]], Tensor]
_LARGEST = 2**63 - 1
# From here on a binary search is faster than a comparison with each boundary.
MANY_BOUNDARIES = 32


def _converted(
    graph: Graph, operands: Sequence[Tensor], types: Sequence[Type], want: str
) -> list[str]:
    return [convert(graph, o.values, t.dtype, want) for o, t in zip(operands, types, strict=True)]


def _arithmetic(operator: str) -> Emit:
    def emit(graph: Graph, step: Step, types: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
        dtype = step.type.dtype
        values = graph.add(operator, *_converted(graph, operands, types, dtype))
        return joint(graph, operands, wrap(graph, values, dtype))

    return emit


def _absolute(graph: Graph, step: Step, _: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
    if step.type.kind == "uint":
        return operands[0]
    values = graph.add("Abs", operands[0].values)
    return joint(graph, operands, wrap(graph, values, step.type.dtype))


def _extreme(operator: str) -> Emit:
    def emit(graph: Graph, step: Step, types: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
        a, b = _converted(graph, operands, types, step.type.dtype)
        return joint(graph, operands, choose(graph, operator, a, b, step.type.dtype))

    return emit


def _real(operator: str) -> Emit:
    return lambda graph, step, types, operands: joint(
        graph, operands, graph.add(operator, *_converted(graph, operands, types, step.type.dtype))
    )


def _transcendental(function: Callable[..., str]) -> Emit:
    """Computed in float64 and rounded once: libraries differ by several ulp in float32."""

    def emit(graph: Graph, step: Step, types: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
        arguments = _converted(graph, operands, types, "float64")
        values = convert(graph, function(graph, *arguments), "float64", step.type.dtype)
        return joint(graph, operands, values)

    return emit


def _log1p(graph: Graph, step: Step, types: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
    """log(1 + x), which ONNX lacks."""
    one, (x,) = graph.constant(1.0, "float64"), _converted(graph, operands, types, "float64")
    added = graph.add("Add", x, one)
    logarithm = graph.add("Log", added)
    if step.type.dtype == "float32":
        # The sum is rounded: by less than 2**-27 of the result, unless x itself is nearer to it.
        limits = operands[0].limits
        size = x if limits is not None and limits[0] >= 0 else graph.add("Abs", x)
        tiny = graph.add("Less", size, graph.constant(2.0**-26, "float64"))
        logarithm = graph.add("Where", tiny, x, logarithm)
    else:
        logarithm = graph.add("Add", logarithm, _lost(graph, x, one))
    return joint(graph, operands, convert(graph, logarithm, "float64", step.type.dtype))


def _lost(graph: Graph, x: str, one: str) -> str:
    """The loss of log(u) by rounding the sum u of 1 and x, to first order: (x - (u - 1)) / u.

    At both ends of the logarithm's range that would be NaN from infinities; there x is moved inwards,
    and the result is 0.
    """
    low, high = (graph.constant(v, "float64") for v in (np.nextafter(-1.0, 0.0), 2.0**60))
    inner = graph.add("Min", graph.add("Max", x, low), high)
    u = graph.add("Add", inner, one)
    return graph.add("Div", graph.add("Sub", inner, graph.add("Sub", u, one)), u)


def _cos(graph: Graph, x: str) -> str:
    """cos(x) as 1 - 2 sin(x / 2)**2: onnxruntime 1.20 has no cosine for float64."""
    one, two = graph.constant(1.0, "float64"), graph.constant(2.0, "float64")
    half = graph.add("Sin", graph.add("Div", x, two))
    return graph.add("Sub", one, graph.add("Mul", two, graph.add("Mul", half, half)))


def _ranks(graph: Graph, *texts: str) -> tuple[str, str]:
    """Numbers that compare like two columns of strings, which ONNX cannot compare.

    They are ranks by bytes, which for UTF-8 equals the order by characters. A row's text that is repeated
    for the elements of a list is ranked once, and not copied.
    """
    (a, a_rows), (b, b_rows) = (graph.repeated.get(text, (text, None)) for text in texts)
    first, second = (graph.add("Reshape", text, graph.vector(-1)) for text in (a, b))
    ranks = graph.ranks(graph.add("Concat", first, second, axis=0))
    size = graph.add("Shape", first)
    head = graph.add("Slice", ranks, graph.vector(0), size)
    tail = graph.add("Slice", ranks, size, graph.vector(_LARGEST))
    return _shaped(graph, head, a, a_rows), _shaped(graph, tail, b, b_rows)


def _shaped(graph: Graph, ranks: str, like: str, rows: str | None) -> str:
    shaped = graph.add("Reshape", ranks, graph.add("Shape", like), allowzero=1)
    return shaped if rows is None else graph.add("Gather", shaped, rows)


def _comparison(operator: str, *, negate: bool = False) -> Emit:
    def emit(graph: Graph, step: Step, types: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
        dtype = promote(step.verb, types)
        a, b = _converted(graph, operands, types, dtype)
        if dtype == "string":
            a, b = _ranks(graph, a, b)
        elif dtype == "bool":
            a, b = graph.cast(a, "int64"), graph.cast(b, "int64")
        elif dtype == "uint64":
            a, b = flip(graph, a), flip(graph, b)
        values = graph.add(operator, a, b)
        return joint(graph, operands, graph.add("Not", values) if negate else values)

    return emit


def _logical(*, stops: bool) -> Emit:
    """Kleene's `and` (an operand that is False decides) and `or` (one that is True decides)."""

    def emit(graph: Graph, _: Step, __: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
        values = [_neutral_null(graph, o, stops=stops) for o in operands]
        result = joint(graph, operands, graph.add("Or" if stops else "And", *values))
        if result.valid is None:
            return result
        decided = result.values if stops else graph.add("Not", result.values)
        return replace(result, valid=graph.add("Or", result.valid, decided))

    return emit


def _neutral_null(graph: Graph, operand: Tensor, *, stops: bool) -> str:
    """The operand with its nulls replaced by the value that does not decide."""
    if operand.valid is None:
        return operand.values
    if stops:
        return graph.add("And", operand.values, operand.valid)
    return graph.add("Or", operand.values, graph.add("Not", operand.valid))


def _bool(operator: str) -> Emit:
    return lambda graph, _, __, operands: joint(
        graph, operands, graph.add(operator, *(o.values for o in operands))
    )


def _is_null(graph: Graph, _: Step, __: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
    (a,) = operands
    if a.valid is not None:
        return Tensor(graph.add("Not", a.valid), None, a.lengths, a.constant)
    no = graph.constant(value=False, dtype="bool")
    return Tensor(
        graph.add("Expand", no, graph.add("Shape", a.values)), None, a.lengths, a.constant
    )


def _fill_null(
    graph: Graph, step: Step, types: Sequence[Type], operands: Sequence[Tensor]
) -> Tensor:
    a, b = operands
    first, second = _converted(graph, operands, types, step.type.dtype)
    if a.valid is None:
        return replace(a, values=first, null_code=None, lookup=None)
    values, limits = "", None
    if a.limits is not None and b.limits is not None:
        limits = min(a.limits[0], b.limits[0]), max(a.limits[1], b.limits[1])
        same = first == a.values  # and no float
        if a.lookup is not None and same and b.constant and b.valid is None:
            values = a.lookup.make(int(b.limits[0]), a.lookup.missing)
    values = values or graph.select(a.valid, first, second, step.type.dtype)
    valid = None if b.valid is None else graph.add("Or", a.valid, b.valid)
    return replace(joint(graph, operands, values), valid=valid, limits=limits)


def _where(graph: Graph, step: Step, types: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
    condition, a, b = operands
    first, second = _converted(graph, [a, b], types[1:], step.type.dtype)
    values = graph.select(condition.values, first, second, step.type.dtype)
    chosen: str | None = None
    if a.valid is not None or b.valid is not None:
        yes = graph.constant(value=True, dtype="bool")
        masks = [yes if o.valid is None else o.valid for o in (a, b)]
        chosen = graph.select(condition.values, masks[0], masks[1], "bool")
    return replace(joint(graph, operands, values), valid=graph.every(condition.valid, chosen))


def _clip(graph: Graph, step: Step, _: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
    dtype, name = step.type.dtype, operands[0].values
    for operator, bound in zip(("Max", "Min"), bounds(step), strict=True):
        if bound is not None:
            name = choose(graph, operator, name, graph.constant(bound, dtype), dtype)
    least, most = bounds(step)
    limits = (-np.inf if least is None else least, np.inf if most is None else most)
    return replace(joint(graph, operands, name), limits=limits)


def _bucketize(
    graph: Graph, step: Step, types: Sequence[Type], operands: Sequence[Tensor]
) -> Tensor:
    boundaries: Column = step.parameters["boundaries"]
    dtype = promote("bucketize", [types[0], Type(table_dtype(boundaries).name)])
    value = convert(graph, operands[0].values, types[0].dtype, dtype)
    edges = boundaries.array.astype(DTYPES[dtype].numpy).astype(carrier(dtype))
    if dtype == "uint64":
        value, edges = flip(graph, value), edges ^ SIGN_BIT
    search = _by_halves if len(edges) > MANY_BOUNDARIES else _by_each
    return joint(graph, operands, search(graph, value, edges))


def _by_each(graph: Graph, value: str, edges: Array) -> str:
    if len(edges) == 0:  # onnxruntime does not sum over an empty axis
        return graph.add("Expand", graph.constant(0, "int64"), graph.add("Shape", value))
    last = graph.vector(2)  # not -1, which onnxruntime does not sum over where there are no values
    reached = graph.add("GreaterOrEqual", graph.add("Unsqueeze", value, last), graph.table(edges))
    return graph.add("ReduceSum", graph.cast(reached, "int64"), last, keepdims=0)


def _by_halves(graph: Graph, value: str, edges: Array) -> str:
    """A binary search, whose tensors have no more elements than the values or the boundaries."""
    half = 1 << (len(edges).bit_length() - 1)
    number = partial(graph.constant, dtype="int64")
    # Padded to equal halves with the last boundary, which is counted once.
    table = graph.table(np.pad(edges, (0, 2 * half - 1 - len(edges)), "edge"))
    count = graph.constant(0, "int64")
    while half:
        edge = graph.add("Gather", table, graph.add("Add", count, number(half - 1)))
        reached = graph.cast(graph.add("GreaterOrEqual", value, edge), "int64")
        count = graph.add("Add", count, graph.add("Mul", reached, number(half)))
        half //= 2
    return choose(graph, "Min", count, number(len(edges)), "int64")


EMIT: Mapping[str, Emit] = of_every_verb(
    "onnx",
    {
        "add": _arithmetic("Add"),
        "subtract": _arithmetic("Sub"),
        "multiply": _arithmetic("Mul"),
        "floor_divide": whole_division,
        "modulo": whole_division,
        "negate": _arithmetic("Neg"),
        "absolute": _absolute,
        "minimum": _extreme("Min"),
        "maximum": _extreme("Max"),
        "divide": _real("Div"),
        # Through float64, since onnxruntime 1.20 does not round a float32 root correctly.
        "sqrt": _transcendental(lambda graph, x: graph.add("Sqrt", x)),
        "floor": _real("Floor"),
        "ceil": _real("Ceil"),
        "round": _real("Round"),
        "log1p": _log1p,
        "log": _transcendental(lambda graph, x: graph.add("Log", x)),
        "exp": _transcendental(lambda graph, x: graph.add("Exp", x)),
        "sin": _transcendental(lambda graph, x: graph.add("Sin", x)),
        "cos": _transcendental(_cos),
        "tanh": _transcendental(lambda graph, x: graph.add("Tanh", x)),
        "power": _transcendental(lambda graph, x, y: graph.add("Pow", x, y)),
        "equal": _comparison("Equal"),
        "not_equal": _comparison("Equal", negate=True),
        "less": _comparison("Less"),
        "less_equal": _comparison("LessOrEqual"),
        "greater": _comparison("Greater"),
        "greater_equal": _comparison("GreaterOrEqual"),
        "logical_and": _logical(stops=False),
        "logical_or": _logical(stops=True),
        "logical_xor": _bool("Xor"),
        "logical_not": _bool("Not"),
        "is_null": _is_null,
        "fill_null": _fill_null,
        "where": _where,
        "cast": cast,
        "clip": _clip,
        "hash": hash_value,
        "fingerprint64": fingerprint,
        "fingerprint_cat64": concatenate,
        "lookup": look_up,
        "gather": gather,
        "bucketize": _bucketize,
        "list_length": list_length,
        "list_slice": list_slice,
        "list_pad": list_pad,
        "repeat_as": repeat_as,
    },
)
