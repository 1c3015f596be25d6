"""The smallest and the largest integer that a verb can make of operands in ranges.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Range = tuple[int, int]
# Of a verb, from its parameters and its operands' ranges; None if only the dtype limits the result.
Limits = Callable[[Mapping[str, Any], Sequence[Range | None]], Range | None]
# Elements of a list: those of a longer one would not fit into a gRPC message.
LONGEST_LIST = 2**31 - 1


def of_operands(function: Callable[[Mapping[str, Any], Sequence[Range]], Range]) -> Limits:
    """Limits that need the range of each operand, from a function of them."""

    def limits(parameters: Mapping[str, Any], operands: Sequence[Range | None]) -> Range | None:
        known = [operand for operand in operands if operand is not None]
        return function(parameters, known) if len(known) == len(operands) else None

    return limits


def between(least: int, most: int) -> Limits:
    """Limits that are always the same."""
    return lambda _, __: (least, most)


def hull(first: int = 0) -> Limits:
    """Limits that contain the ranges of all operands from the first one of these on."""

    def made(_: Mapping[str, Any], operands: Sequence[Range]) -> Range:
        lows, highs = zip(*operands[first:], strict=True)
        return min(lows), max(highs)

    return of_operands(made)


def of_ends(function: Callable[..., int]) -> Limits:
    """Limits of a verb that is greatest and least where its operands are."""

    def made(_: Mapping[str, Any], operands: Sequence[Range]) -> Range:
        ends = [function(*each) for each in itertools.product(*operands)]
        return min(ends), max(ends)

    return of_operands(made)


@of_operands
def of_clip(parameters: Mapping[str, Any], operands: Sequence[Range]) -> Range:
    """Limits of `clip`; a bound that is not whole may be rounded either way."""
    low, high = operands[0]
    lower, upper = parameters["lower"], parameters["upper"]
    if lower is not None:
        below, above = _beside(lower)
        low, high = max(low, below), max(high, above)
    if upper is not None:
        below, above = _beside(upper)
        low, high = min(low, below), min(high, above)
    return low, high


def _beside(bound: float) -> Range:
    """The integers beside a bound; of an infinite one integers that no dtype holds."""
    if math.isinf(bound):
        bound = math.copysign(2**64, bound)
    return math.floor(bound), math.ceil(bound)


@of_operands
def of_modulo(_: Mapping[str, Any], operands: Sequence[Range]) -> Range:
    """Limits of `modulo`, whose result has the divisor's sign."""
    low, high = operands[1]
    return min(low + 1, 0), max(high - 1, 0)


def of_lookup(parameters: Mapping[str, Any], _: Sequence[Range | None]) -> Range:
    """Limits of `lookup`: the positions, and the number for a missing key."""
    first, missing = parameters["first"], parameters["missing"]
    return min(first, missing), max(first + parameters["keys"].rows - 1, missing)


def of_gather(parameters: Mapping[str, Any], _: Sequence[Range | None]) -> Range | None:
    """Limits of `gather`: those of the table's integers."""
    values = parameters["table"].array
    if values.dtype.kind not in "biu" or not len(values):
        return None
    return int(values.min()), int(values.max())


def of_bucketize(parameters: Mapping[str, Any], _: Sequence[Range | None]) -> Range:
    """Limits of `bucketize`: the number of boundaries."""
    return 0, parameters["boundaries"].rows
