"""Sums, means, products and extremes of rows by segment.

tf2onnx's own fail for no rows, add rows of a negative segment, which count for none, to the last one, and add whole
numbers in float64. Here the rows are scattered onto rows of a first value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from exporter.write.onnx.from_tensorflow.tf2onnx_graph import (
    add,
    cast,
    constant,
    numpy_dtype,
    replace,
)

_WHOLE = onnx.TensorProto.INT64
# What ONNX's scatter does with rows of one segment. A mean is a sum divided by their number, or by its root.
_REDUCTIONS = {
    "Sum": "add",
    "Mean": "add",
    "SqrtN": "add",
    "Prod": "mul",
    "Max": "max",
    "Min": "min",
}
# TensorFlow has an operation for segments in ascending order, one for any order, and one for rows of a table by
# their ids; a suffix tells that the number of segments is given.
SEGMENT_OPERATIONS = (
    *(f"Segment{name}" for name in _REDUCTIONS if name != "SqrtN"),
    *(f"UnsortedSegment{name}" for name in ("Sum", "Prod", "Max", "Min")),
    *(
        f"SparseSegment{name}{suffix}"
        for name in ("Sum", "Mean", "SqrtN")
        for suffix in ("", "WithNumSegments")
    ),
)


def reduce_segments(graph: Any, node: Any, name: str, _: Any) -> None:
    """The rows of each segment as one."""
    kind = node.type.removesuffix("WithNumSegments")
    reduction, is_unsorted = kind.partition("Segment")[2], kind.startswith("Unsorted")
    data, *further = node.input
    if kind.startswith("Sparse"):
        data = add(graph, "Gather", data, cast(graph, further.pop(0), _WHOLE))
    segments, *count = further

    def number(label: str, *values: int) -> str:
        return constant(graph, f"{name}/{label}", values, _WHOLE)

    zero, one = number("zero", 0), number("one", 1)
    rank, end = graph.get_rank(segments), number("end", np.iinfo(np.int32).max)
    width = add(graph, "Slice", add(graph, "Shape", data), number("axis", rank), end)
    places = cast(graph, segments, _WHOLE)
    if rank != 1:
        flat = number("flat", -1)
        data = add(graph, "Reshape", data, add(graph, "Concat", flat, width, axis=0))
        places = add(graph, "Reshape", places, flat)
    if count:
        rows = add(graph, "Reshape", cast(graph, count[0], _WHOLE), one)
    else:  # up to the last segment, which is not the last of tf2onnx' SparseFillEmptyRows
        counts = add(graph, "Concat", zero, add(graph, "Add", places, one), axis=0)
        rows = add(graph, "ReduceMax", counts, zero)
    if is_unsorted:  # a row before the first takes what counts for no segment
        is_none = add(graph, "Less", places, zero)
        places = add(graph, "Where", is_none, zero, add(graph, "Add", places, one))
        rows = add(graph, "Add", rows, one)
    places = add(graph, "Unsqueeze", places, one)

    def scatter(reduction: str, value: str, shape: str, added: str) -> str:
        start = add(graph, "Expand", value, shape)
        return add(graph, "ScatterND", start, places, added, reduction=reduction)

    dtype = graph.get_dtype(node.input[0])
    first = constant(graph, f"{name}/first", [_first(reduction, dtype, is_unsorted)], dtype)
    result = scatter(_REDUCTIONS[reduction], first, add(graph, "Concat", rows, width, axis=0), data)
    if is_unsorted:
        result = add(graph, "Slice", result, one, end, zero)
    elif reduction not in ("Sum", "Prod"):
        each = add(graph, "Expand", one, add(graph, "Shape", places))
        counts = scatter("add", zero, add(graph, "Concat", rows, one, axis=0), each)
        ones = add(graph, "Expand", one, add(graph, "Shape", width))
        counts = add(graph, "Reshape", counts, add(graph, "Concat", rows, ones, axis=0))
        result = _with_counts(graph, name, reduction, result, counts)
    replace(graph, node, "Identity", [result])


def _with_counts(graph: Any, name: str, reduction: str, result: str, counts: str) -> str:
    """A sum as a mean, or an extreme of no rows as 0."""
    dtype = graph.get_dtype(result)
    is_empty = add(graph, "Equal", counts, constant(graph, f"{name}/none", 0, _WHOLE))
    if reduction in ("Max", "Min"):
        return add(graph, "Where", is_empty, constant(graph, f"{name}/0", 0, dtype), result)
    counts = add(graph, "Where", is_empty, constant(graph, f"{name}/1", 1, _WHOLE), counts)
    divisor = cast(graph, counts, dtype)
    divisor = add(graph, "Sqrt", divisor) if reduction == "SqrtN" else divisor
    return add(graph, "Div", result, divisor)


def _first(reduction: str, dtype: int, is_unsorted: bool) -> Any:
    """The value of a segment before its rows."""
    if reduction not in ("Max", "Min"):
        return int(reduction == "Prod")
    numpy = numpy_dtype(dtype)
    if numpy.kind == "f" and not is_unsorted:
        return -np.inf if reduction == "Max" else np.inf
    limits: Any = np.finfo(numpy) if numpy.kind == "f" else np.iinfo(numpy)
    return limits.min if reduction == "Max" else limits.max
