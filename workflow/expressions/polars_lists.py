"""What the verbs over whole lists are in Polars."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from .program import Step
from .series import polars_dtype
from .types import Type


def list_length(_: Step, __: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`list_length`."""
    return operands[0].list.len().cast(pl.Int64)


def list_slice(step: Step, _: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`list_slice`: Polars has a start and a length where Python has a start and an end."""
    (lists,), start, end = operands, step.parameters["start"], step.parameters["end"]
    if start >= 0 and (end is None or end >= 0):
        return lists.list.slice(start, None if end is None else max(end - start, 0))
    size = lists.list.len().cast(pl.Int64)
    begin = _place(start, size)
    length = (size if end is None else _place(end, size)) - begin
    taken = lists.list.slice(begin, length.clip(0, None))
    # Of no rows Polars makes lists of no type; the branch that is never taken has one.
    typed = pl.lit(pl.Series([[]], dtype=polars_dtype(step.type.dtype, is_list=True)))
    return pl.when(size >= 0).then(taken).otherwise(typed)


def _place(bound: int, size: pl.Expr) -> pl.Expr:
    """Where a bound of a slice falls in lists of these sizes."""
    return pl.max_horizontal(size + bound, 0) if bound < 0 else pl.min_horizontal(size, bound)


def list_pad(step: Step, _: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    """`list_pad`: as much padding as can be needed, and then the head."""
    lists, padding = operands
    dtype, length = polars_dtype(step.type.dtype), step.parameters["length"]
    more = padding.cast(dtype).repeat_by(length)
    return pl.concat_list(lists.cast(pl.List(dtype)), more).list.head(length)
