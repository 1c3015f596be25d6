"""Means by category, of all rows and of all folds but one."""

from __future__ import annotations

import numpy as np

from workflow.schema.column import Array


def of_other_folds(values: Array, rows: Array, folds: Array, shape: tuple[int, int]) -> Array:
    """Sums over all folds but one.

    Args:
        values: sums, each of a row of a table in one fold.
        rows: these rows.
        folds: these folds.
        shape: the rows of the table, and the number of folds.

    Returns:
        array of `shape`: in each cell the sum of the row's other folds.
    """
    cells = np.zeros(shape)
    cells[rows, folds] = values
    # Added up from both ends rather than subtracted from the total, which would leave rounding
    # behind: a pass over the table, however many folds there are.
    others = np.zeros(shape)
    np.cumsum(cells[:, :-1], axis=1, out=others[:, 1:])
    others[:, :-1] += np.cumsum(cells[:, :0:-1], axis=1)[:, ::-1]
    return others


def fold_means(sums: Array, counts: Array, given: float | None) -> Array:
    """The mean in all folds but one, for each: shape (folds,).

    Args:
        sums: shape (rows, folds), of the other folds.
        counts: as many values, of the same shape.
        given: the mean, where it is not that of the values.
    """
    totals = counts.sum(axis=0)
    if given is not None:
        return np.full(len(totals), float(given))
    return np.divide(sums.sum(axis=0), totals, out=np.zeros(len(totals)), where=totals > 0)


def smoothed(sums: Array, counts: Array, mean: float | Array, weight: float) -> Array:
    """Means that are drawn towards another one, as if `weight` values more had been that."""
    weights = counts + weight
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(weights > 0, (sums + weight * mean) / weights, mean)
