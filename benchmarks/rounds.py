"""What rounds of taking turns tell."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def ratio(base: Sequence[float], other: Sequence[float]) -> float:
    """How many times as long one took as another, both in the same round; the median.

    Example:
        >>> ratio([3.0, 4.0, 9.0], [1.0, 2.0, 3.0])
        3.0
    """
    return statistics.median(a / b for a, b in zip(base, other, strict=True))
