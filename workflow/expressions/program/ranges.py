"""The smallest and the largest integer that each step of a program can make."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from workflow.schema.dtypes import DTYPES, DType

from .program import Program, Step

Range = tuple[int, int]
# Elements of a list: those of a longer one would not fit into a gRPC message.
LONGEST_LIST = 2**31 - 1


def ranges(program: Program) -> list[Range | None]:
    """The range of each step, as far as its verb, parameters and operands determine it.

    Args:
        program: a program over data with any values of its inputs' dtypes.

    Returns:
        At the index of each step the limits of its values, at most those of its dtype; None for
        floats and strings.

    Example:
        >>> from workflow.expressions.program.program import build
        >>> from workflow.expressions.language.tree import source
        >>> from workflow.expressions.language.types import Type
        >>> from workflow.schema.schema import ColumnSchema, Schema
        >>> at, hour = ColumnSchema("at", "int64"), ColumnSchema("hour", "int64")
        >>> program = build([(hour, source("at", Type("int64")) // 3600 % 24)], Schema([at]))
        >>> ranges(program)[-1]
        (0, 23)
    """
    found: list[Range | None] = []
    for step in program.steps:
        limits = _limits(DTYPES[step.type.dtype])
        if limits is not None and step.type.dtype != "bool":
            made = _made(step, [found[operand] for operand in step.operands])
            limits = limits if made is None else _within(limits, made, step.verb)
        found.append(limits)
    return found


def _limits(dtype: DType) -> Range | None:
    if dtype.kind == "bool":
        return 0, 1
    if not dtype.is_integer:
        return None
    limits = np.iinfo(dtype.numpy)
    return int(limits.min), int(limits.max)


def _within(limits: Range, made: Range, verb: str) -> Range:
    """The limits within a dtype: beyond them a cast saturates, and all other verbs wrap around."""
    least, most = limits
    if verb != "cast" and not least <= made[0] <= made[1] <= most:
        return limits
    return min(max(made[0], least), most), min(max(made[1], least), most)


def _made(step: Step, operands: Sequence[Range | None]) -> Range | None:
    """Range of a verb's result for operands in ranges; None if only the dtype limits it."""
    known = [operand for operand in operands if operand is not None]
    if step.verb in _OF_PARAMETERS:
        return _OF_PARAMETERS[step.verb](step.parameters)
    if step.verb in _OF_OPERANDS and len(known) == len(operands):
        return _OF_OPERANDS[step.verb](step.parameters, known)
    return None


def _hull(_: Mapping[str, Any], operands: Sequence[Range]) -> Range:
    """The range that contains all operands' ranges."""
    lows, highs = zip(*operands, strict=True)
    return min(lows), max(highs)


def _of_ends(function: Callable[..., int]) -> Callable[..., Range]:
    """A verb that is greatest and least where its operands are."""

    def made(_: Mapping[str, Any], operands: Sequence[Range]) -> Range:
        first, *rest = operands
        ends = [function(a, *b) for a in first for b in (zip(*rest, strict=True) if rest else [()])]
        return min(ends), max(ends)

    return made


def _clip(parameters: Mapping[str, Any], operands: Sequence[Range]) -> Range:
    low, high = operands[0]
    lower, upper = parameters["lower"], parameters["upper"]
    if lower is not None and math.isfinite(lower):
        low, high = max(low, math.floor(lower)), max(high, math.ceil(lower))
    if upper is not None and math.isfinite(upper):
        low, high = min(low, math.floor(upper)), min(high, math.ceil(upper))
    return low, high


def _modulo(_: Mapping[str, Any], operands: Sequence[Range]) -> Range:
    low, high = operands[1]
    return min(low + 1, 0), max(high - 1, 0)


def _lookup(parameters: Mapping[str, Any]) -> Range:
    first, missing = parameters["first"], parameters["missing"]
    return min(first, missing), max(first + parameters["keys"].rows - 1, missing)


def _gather(parameters: Mapping[str, Any]) -> Range | None:
    values = parameters["table"].array
    return (
        (int(values.min()), int(values.max()))
        if values.dtype.kind in "biu" and len(values)
        else None
    )


_OF_PARAMETERS: Mapping[str, Callable[[Mapping[str, Any]], Range | None]] = {
    "constant": lambda parameters: (parameters["value"],) * 2,
    "hash": lambda _: (0, 2**63 - 1),
    "lookup": _lookup,
    "gather": _gather,
    "bucketize": lambda parameters: (0, parameters["boundaries"].rows),
    "list_length": lambda _: (0, LONGEST_LIST),
}
_OF_OPERANDS: Mapping[str, Callable[[Mapping[str, Any], Sequence[Range]], Range]] = {
    **dict.fromkeys(("cast", "list_slice", "list_pad", "fill_null", "minimum", "maximum"), _hull),
    "where": lambda parameters, operands: _hull(parameters, operands[1:]),
    "add": _of_ends(lambda a, b: a + b),
    "subtract": _of_ends(lambda a, b: a - b),
    "multiply": _of_ends(lambda a, b: a * b),
    "negate": _of_ends(lambda a: -a),
    "clip": _clip,
    "modulo": _modulo,
}
