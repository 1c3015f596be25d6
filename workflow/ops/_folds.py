"""Folds of rows for out-of-fold values: which fold a row is in, and what the other folds say."""

from __future__ import annotations

import numpy as np
import polars as pl

from workflow.expressions.column import Array

# Of splitmix64's finaliser: neighbouring numbers become numbers without a pattern.
_FIRST, _SECOND, _STEP = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15


def fold_of(row: pl.Expr, folds: int, seed: int) -> pl.Expr:
    """The fold of a row, from 0, by its number and a seed; the same on every machine.

    Not in turn, since rows often come in patterns: one positive, two negatives.

    Source: G. Steele, D. Lea and C. Flood, "Fast Splittable Pseudorandom Number Generators", 2014.
    """
    mixed = (row.cast(pl.UInt64) + (seed * _STEP) % 2**64) * _u64(_STEP)
    mixed = (mixed ^ (mixed // _u64(2**30))) * _u64(_FIRST)
    mixed = (mixed ^ (mixed // _u64(2**27))) * _u64(_SECOND)
    return (mixed ^ (mixed // _u64(2**31))) % _u64(folds)


def _u64(value: int) -> pl.Expr:
    return pl.lit(value, pl.UInt64)


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
    # Added up rather than subtracted from the total, which would leave rounding behind.
    return np.stack(
        [np.delete(cells, fold, axis=1).sum(axis=1) for fold in range(shape[1])], axis=1
    )
