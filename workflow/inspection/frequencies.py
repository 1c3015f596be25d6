"""Skew of a column, from the count of each of its values."""

from __future__ import annotations

from typing import Any

import numpy as np

Counts = np.ndarray[Any, np.dtype[np.int64]]
# Sums over ranks beyond these are taken over ranges of ranks.
_SINGLE_RANKS, _RANGES = 10_000, 2_000
_LARGEST_EXPONENT = 16.0


def entropy(counts: Counts) -> float:
    """The entropy of values in bits.

    Args:
        counts: shape (D,), the count of each value.

    Source: Shannon, "A Mathematical Theory of Communication", 1948.

    Example:
        >>> entropy(np.array([2, 1, 1]))
        1.5
    """
    shares = counts / counts.sum()
    return float(abs(-(shares * np.log2(shares)).sum()))


def zipf_exponent(counts: Counts) -> float | None:
    """The exponent of Zipf's law for values by rank, by maximum likelihood.

    The likelihood is largest where the expected logarithm of the rank is the observed one. With few
    values each, ranks by observed counts look more skewed than the source of the values is.

    Args:
        counts: shape (D,), descending.

    Returns:
        At least 0; None for a single value.

    Source: Clauset, Shalizi and Newman, "Power-law distributions in empirical data", 2009, for a
    law that ends at rank D.

    Example:
        >>> round(zipf_exponent(12_000 // np.arange(1, 101)), 2)
        1.0
    """
    if len(counts) < 2:
        return None
    logs = np.log(np.arange(1, len(counts) + 1))
    observed = float((counts * logs).sum() / counts.sum())
    middles, widths = _ranges(len(counts))
    low, high = 0.0, _LARGEST_EXPONENT
    while high - low > 1e-6:
        exponent = (low + high) / 2
        weights = widths * middles**-exponent
        expected = (weights * np.log(middles)).sum() / weights.sum()
        low, high = (exponent, high) if expected > observed else (low, exponent)
    return round((low + high) / 2, 4)


def _ranges(distinct: int) -> tuple[Any, Any]:
    """Middles and widths of ranges that together are the ranks 1 to `distinct`."""
    edges = np.arange(1, min(distinct, _SINGLE_RANKS) + 2)
    if distinct > _SINGLE_RANKS:
        rest = np.geomspace(_SINGLE_RANKS + 1, distinct + 1, _RANGES)
        edges = np.concatenate([edges[:-1], np.unique(rest.round())])
    return (edges[:-1] + edges[1:] - 1) / 2, np.diff(edges)


def cumulative_shares(counts: Counts, part: float = 1) -> tuple[list[int], list[float]]:
    """The share of the most frequent values, at ranks that grow by a quarter each.

    Args:
        counts: shape (D,), descending.
        part: the number of values that each counted value stands for, at least 1.

    Example:
        >>> cumulative_shares(np.array([2, 1, 1]))
        ([1, 2, 3], [0.5, 0.75, 1.0])
    """
    ranks, rank = [], 1
    while rank < len(counts):
        ranks.append(rank)
        rank = max(rank + 1, rank * 5 // 4)
    ranks.append(len(counts))
    shares = np.cumsum(counts)[np.array(ranks) - 1] / counts.sum()
    return [round(rank * part) for rank in ranks], shares.tolist()
