"""The verbs over tables in ONNX: `lookup` and `gather`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from workflow.expressions.language.types import Type, table_dtype
from workflow.expressions.program.program import Step
from workflow.schema.column import Array, Column, Strings
from workflow.schema.dtypes import DTYPES

from .graph import Graph, RepeatableLookup, Tensor, carrier

_LARGEST = 2**63 - 1


def look_up(graph: Graph, step: Step, types: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
    """`lookup`: a LabelEncoder, which is a hash table."""
    (operand,), dtype = operands, types[0].dtype
    first, missing = step.parameters["first"], step.parameters["missing"]
    keys, results = _keys(step.parameters["keys"], dtype)
    results += first
    name = graph.cast(operand.values, "int64") if dtype == "bool" else operand.values
    last = first + step.parameters["keys"].rows - 1
    make = _with_null(graph, replace(operand, values=name), dtype, keys, results)
    return Tensor(
        graph.look_up(name, keys, results, missing),
        operand.valid,
        operand.lengths,
        operand.constant,
        limits=(min(first, missing), max(last, missing)),
        lookup=None if make is None else RepeatableLookup((first, last), missing, make),
    )


def _keys(keys: Column, dtype: str) -> tuple[Array | Strings, Array]:
    """The keys that a value of the dtype can equal, in their carrier, and their positions."""
    positions = np.arange(keys.rows)
    if isinstance(keys.values, Strings):
        return keys.values, positions
    table = keys.values.astype(np.int64)
    if (dtype == "uint64") != (keys.values.dtype == np.uint64):
        # As 64 bits, -1 and the largest uint64 coincide; no value of the other type equals either.
        return table[table >= 0], positions[table >= 0]
    return table, positions


def _with_null(
    graph: Graph, operand: Tensor, dtype: str, keys: Array | Strings, results: Array
) -> Callable[[int, int], str] | None:
    """A lookup that also maps the null code: one node, where a mask and a choice take three."""
    code = operand.null_code
    if operand.valid is None:
        return lambda _, missing: graph.look_up(operand.values, keys, results, missing)
    if code is None:
        return None
    if isinstance(keys, Strings):
        more: Array | Strings = Strings(
            np.append(keys.data, np.frombuffer(code, np.uint8)),
            np.append(keys.offsets, keys.offsets[-1] + len(code)),
        )
        kept = results
    else:
        number = np.array([code], DTYPES[dtype].numpy).astype(np.int64)
        # Null is not a key, even if the vocabulary has that number.
        more, kept = np.append(keys[keys != number], number), results[keys != number]
    return lambda null, missing: graph.look_up(operand.values, more, np.append(kept, null), missing)


def gather(graph: Graph, step: Step, _: Sequence[Type], operands: Sequence[Tensor]) -> Tensor:
    """`gather`: positions outside the table refer to an extra row at its end."""
    table: Column = step.parameters["table"]
    (positions,) = operands
    end = graph.constant(table.rows, "int64")
    lookup = positions.lookup
    # The table has a row for each key, and none for other values.
    if (
        lookup is not None
        and lookup.limits[0] >= 0
        and lookup.limits[1] < table.rows
        and not 0 <= lookup.missing < table.rows
    ):
        rows = lookup.make(table.rows, table.rows)
        valid: str | None = graph.add("Less", rows, end)
    else:
        valid = graph.every(
            graph.add("GreaterOrEqual", positions.values, graph.constant(0, "int64")),
            graph.add("Less", positions.values, end),
            positions.valid,
        )
        rows = graph.add("Where", str(valid), positions.values, end)
    if table.is_list:
        return _gather_lists(graph, table, rows)
    if table.valid is not None:
        valid = graph.add("Gather", graph.table(np.append(table.valid, False)), rows)
    values: Any = table.values
    if isinstance(values, Strings):
        values = Strings(values.data, np.append(values.offsets, values.offsets[-1]))
    else:
        values = np.append(values, values.dtype.type(0))
    values = _take(graph, Column(values), rows)
    return Tensor(values, valid, positions.lengths, positions.constant)


def _take(graph: Graph, table: Column, rows: str) -> str:
    """Values of a table, which is stored in its own dtype, in their carrier."""
    values, dtype = table.values, table_dtype(table).name
    if isinstance(values, Strings) or dtype != "uint64":
        name = graph.add("Gather", graph.table(values), rows)
        return name if carrier(dtype) == dtype else graph.cast(name, "int64")
    return graph.add("Gather", graph.table(values.view(np.int64)), rows)


def _gather_lists(graph: Graph, table: Column, rows: str) -> Tensor:
    """The elements of the lists in some rows, in sequence; the last row is an empty list."""
    offsets = table.offsets()
    rows = graph.add("Reshape", rows, graph.vector(-1))
    lengths = graph.add("Gather", graph.table(np.append(np.diff(offsets), 0)), rows)
    starts = graph.add("Gather", graph.table(offsets), rows)
    element = elements_of_rows(graph, starts, lengths)
    valid = None
    if table.valid is not None:
        valid = graph.add("Gather", graph.table(table.valid), element)
    lengths = graph.add("Reshape", lengths, graph.vector(-1, 1))
    return Tensor(_take(graph, Column(table.values), element), valid, lengths)


def elements_of_rows(graph: Graph, starts: str, lengths: str) -> str:
    """Positions of the elements of some rows, one row after another.

    Args:
        graph: the graph to extend.
        starts: int64, [rows], the first element of each row.
        lengths: int64, [rows], the number of elements of each row.

    Returns:
        int64, [sum of lengths, 1].
    """
    row, begins, total = rows_of_elements(graph, lengths)
    shift = graph.add("Sub", starts, begins)
    bounds = graph.vector(0), total, graph.vector(1)
    place = graph.add("Range", *(graph.add("Squeeze", bound) for bound in bounds))
    element = graph.add("Add", place, graph.add("Gather", shift, row))
    return graph.add("Reshape", element, graph.vector(-1, 1))


def rows_of_elements(graph: Graph, lengths: str) -> tuple[str, str, str]:
    """The row of each element, the position of each row's first one, and the number of all, int64.

    Args:
        graph: the graph to extend.
        lengths: int64, [rows], the number of elements of each row.
    """
    zero, last = graph.vector(0), graph.vector(-1)
    # The leading 0 is for a batch without rows.
    ends = graph.add("CumSum", graph.add("Concat", zero, lengths, axis=0), zero)
    total = graph.add("Gather", ends, last)
    # The row of an element is the number of rows that end at or before its position.
    marks = graph.add("Expand", zero, graph.add("Add", total, graph.vector(1)))
    counts = graph.add(
        "ScatterElements",
        marks,
        graph.add("Slice", ends, graph.vector(1), graph.vector(_LARGEST)),
        graph.add("Expand", graph.vector(1), graph.add("Shape", lengths)),
        reduction="add",
    )
    row = graph.add("Slice", graph.add("CumSum", counts, zero), zero, total)
    return row, graph.add("Slice", ends, zero, last), total
