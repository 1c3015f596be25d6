"""Columns side by side, [N, columns], so that one node computes all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from workflow.schema.dtypes import DTYPES

from .graph import Graph, Tensor


def present(graph: Graph, values: str, null_code: object, dtype: str) -> str:
    """A mask of the values that are not the null code, which for floats is NaN."""
    if DTYPES[dtype].kind == "float":
        return graph.add("Equal", values, values)
    return graph.add("Not", graph.add("Equal", values, graph.constant(null_code, dtype)))


def side_by_side(graph: Graph, columns: Sequence[Tensor], dtype: str) -> Tensor | None:
    """Columns [N, 1] of one dtype as one tensor [N, columns]; constants as [1, columns].

    None if that would take more nodes than it saves: of columns that can be null, unless the values
    say which are; a lookup maps null itself.
    """
    code = columns[0].null_code
    nullable = any(column.valid is not None for column in columns)
    coded = code is not None and {repr(column.null_code) for column in columns} == {repr(code)}
    if nullable and not coded:
        return None
    ranges = [column.limits for column in columns if column.limits is not None]
    limits = None
    if len(ranges) == len(columns):
        limits = min(least for least, _ in ranges), max(most for _, most in ranges)
    values = graph.concat([column.values for column in columns])
    if nullable:
        valid = present(graph, values, code, dtype)
        return Tensor(values, valid, limits=limits, null_code=code)
    return Tensor(values, constant=all(column.constant for column in columns), limits=limits)


def apart(graph: Graph, block: Tensor, count: int) -> list[Tensor]:
    """The columns of a tensor [N, columns]."""
    values = graph.split(block.values, count)
    masks = [None] * count if block.valid is None else graph.split(block.valid, count)
    return [
        replace(block, values=value, valid=mask, null_code=None, lookup=None)
        for value, mask in zip(values, masks, strict=True)
    ]
