"""Conversion of lists between padded and flat form; see `workflow.wire.format`."""

from __future__ import annotations

import numpy as np

from .graph import Graph
from .tables import rows_of_elements


def flatten(graph: Graph, values: str, lengths: str, widths: str | int) -> tuple[str, str]:
    """The values of padded rows in sequence, [sum of lengths, 1], and the lengths, [rows, 1].

    A length that is negative or greater than the row's width counts as 0 or as the width: a failure
    would be that of all requests that the server has joined.

    Args:
        graph: the graph to extend.
        values: the rows; [rows, width] if all have one width, else in sequence, [elements].
        lengths: [rows, 1].
        widths: the width of all rows, or int64 [rows] with the width of each.
    """
    lengths = graph.add("Reshape", lengths, graph.vector(-1))
    if isinstance(widths, int):
        width, values = graph.vector(widths), graph.add("Reshape", values, graph.vector(-1))
        lengths = _clamped(graph, lengths, width)
        length = graph.add("Unsqueeze", lengths, graph.vector(1))
        inside = graph.add("Less", graph.table(np.arange(widths).reshape(1, -1)), length)
        elements = graph.add("Compress", values, graph.add("Reshape", inside, graph.vector(-1)))
        return graph.add("Reshape", elements, graph.vector(-1, 1)), length
    lengths = _clamped(graph, lengths, widths)
    row, begins, total = rows_of_elements(graph, widths)
    # A value is kept if its position is before the end of its row.
    last = graph.add("Gather", graph.add("Add", begins, lengths), row)
    inside = graph.add("Less", _range(graph, total), last)
    elements = graph.add("Compress", values, inside)
    elements = graph.add("Reshape", elements, graph.vector(-1, 1))
    return elements, graph.add("Unsqueeze", lengths, graph.vector(1))


def pad(
    graph: Graph,
    values: str,
    lengths: str,
    dtype: str,
    width: int | None,
    filling: str | None = None,
) -> str:
    """Rows of one width, padded, or cut if they are longer.

    Args:
        graph: the graph to extend.
        values: the rows in sequence, [elements, 1].
        lengths: [rows, 1].
        dtype: dtype of the values.
        width: None for the length of the longest row, but at least 1.
        filling: the padding, [1, 1]; None for 0 or "".
    """
    lengths = graph.add("Reshape", lengths, graph.vector(-1))
    zero, one = graph.vector(0), graph.vector(1)
    longest = graph.vector(0 if width is None else width)
    if width is None:
        longest = graph.add("ReduceMax", graph.add("Concat", one, lengths, axis=0), keepdims=1)
    begins = graph.add("Sub", graph.add("CumSum", lengths, zero), lengths)
    place = graph.add("Unsqueeze", _range(graph, longest), zero)
    inside = graph.add("Less", place, graph.add("Unsqueeze", lengths, one))
    values = graph.add("Reshape", values, graph.vector(-1))
    # The padding follows the values.
    end = graph.add("Shape", values)
    filling = filling or graph.constant("" if dtype == "string" else 0, dtype)
    filling = graph.add("Reshape", filling, graph.vector(-1))
    position = graph.add("Add", graph.add("Unsqueeze", begins, one), place)
    chosen = graph.add("Where", inside, position, end)
    return graph.add("Gather", graph.add("Concat", values, filling, axis=0), chosen)


def _clamped(graph: Graph, lengths: str, widths: str) -> str:
    """The lengths, each from 0 to its row's width."""
    zero = graph.vector(0)
    lengths = graph.add("Where", graph.add("Less", lengths, zero), zero, lengths)
    return graph.add("Where", graph.add("Less", widths, lengths), widths, lengths)


def _range(graph: Graph, end: str) -> str:
    begin, step = (graph.add("Squeeze", graph.vector(number)) for number in (0, 1))
    return graph.add("Range", begin, graph.add("Squeeze", end), step)
