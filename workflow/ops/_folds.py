"""Means by category, over all rows and over all folds but one."""

from __future__ import annotations

import numpy as np

from workflow.schema.column import Array


def of_other_folds(values: Array, rows: Array, folds: Array, shape: tuple[int, int]) -> Array:
    """Sums over all folds but one.

    Args:
        values: sums, each for a table row in one fold.
        rows: the table row of each sum.
        folds: the fold of each sum.
        shape: the number of table rows, and the number of folds.

    Returns:
        Array of `shape`: in each cell the sum over the row's other folds.
    """
    cells = np.zeros(shape)
    cells[rows, folds] = values
    # Summed from both ends instead of subtracted from the total, which would leave rounding errors:
    # one pass over the table, however many folds there are.
    sums = np.zeros(shape)
    np.cumsum(cells[:, :-1], axis=1, out=sums[:, 1:])
    sums[:, :-1] += np.cumsum(cells[:, :0:-1], axis=1)[:, ::-1]
    return sums


def fold_means(sums: Array, counts: Array, mean: float | None) -> Array:
    """The mean in all folds but one, for each: shape (folds,).

    Args:
        sums: shape (rows, folds), sums over the other folds.
        counts: the numbers of values in these sums, with the same shape.
        mean: the mean, if it is given instead of computed.
    """
    totals = counts.sum(axis=0)
    if mean is not None:
        return np.full(len(totals), float(mean))
    return np.divide(sums.sum(axis=0), totals, out=np.zeros(len(totals)), where=totals > 0)


def smoothed(sums: Array, counts: Array, mean: float | Array, weight: float) -> Array:
    """Means that are smoothed towards `mean`, as if `weight` further values had been equal to it."""
    weights = counts + weight
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(weights > 0, (sums + weight * mean) / weights, mean)
