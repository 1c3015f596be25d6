"""The smallest and the largest integer that each step of a program can make."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workflow.schema.dtypes import DTYPES, DType

from ..language.limits import Range
from ..language.verbs import VERBS
from .program import Program, Step


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
    if step.verb == "constant":
        return (step.parameters["value"],) * 2
    limits = VERBS[step.verb].limits if step.verb in VERBS else None
    return None if limits is None else limits(step.parameters, operands)
