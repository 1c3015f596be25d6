"""Growth of a function's work, by the calls that Python makes: no clock, the same on any machine."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

SIZES = (50, 100, 200)
# Twice the size may take so many times the further calls: an exponent of 1.15.
MOST_GROWTH = 1.15


def growth(work_of: Callable[[int], Callable[[], Any]]) -> float:
    """The exponent by which the calls grow beyond what any size takes.

    Args:
        work_of: makes the work of a size; what it does by itself is not counted.
    """
    work_of(SIZES[0])()  # what is imported and kept once
    small, middle, large = (calls_of(work_of(size)) for size in SIZES)
    return math.log2((large - middle) / (middle - small))


def calls_of(work: Callable[[], Any]) -> int:
    """The number of calls of functions, those in C included; a step of a generator is a call too."""
    calls = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls
