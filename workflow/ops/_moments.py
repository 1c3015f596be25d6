"""Moments of values, in a form that can be merged over parts of the data.

Means and sums of squared differences are merged pairwise in float64, which is stable where sums of
squares are not: 1e8, 1e8 + 1, 1e8 + 2 has a standard deviation of 1.

Source: Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
Variances", 1979.
"""

from __future__ import annotations

import polars as pl

_KEYS = ("values", "mean", "squares", "min", "max")


def moments(values: pl.Expr, prefix: str = "") -> list[pl.Expr]:
    """Count, mean, sum of squared differences, least and greatest of the values that are not null.

    Args:
        values: numbers; least and greatest keep their dtype.
        prefix: prefix of the columns' names.
    """
    real = values.cast(pl.Float64)
    count = real.count().cast(pl.Float64)
    made = (count, real.mean(), real.var(ddof=0) * count, values.min(), values.max())
    return [moment.alias(prefix + key) for key, moment in zip(_KEYS, made, strict=True)]


def merged_moments(prefix: str = "") -> list[pl.Expr]:
    """The moments of several parts together, from columns named as in `moments`."""
    count, mean, squares, low, high = (pl.col(prefix + key) for key in _KEYS)
    # Null, not 0 / 0, if no part has a value: it may be merged again.
    whole = pl.when(count.sum() > 0).then((count * mean).sum() / count.sum())
    spread = squares.fill_null(0) + (count * (mean - whole) ** 2).fill_null(0)
    made = (count.sum(), whole, spread.sum(), low.min(), high.max())
    return [moment.alias(prefix + key) for key, moment in zip(_KEYS, made, strict=True)]


def variance(prefix: str = "") -> pl.Expr:
    """The variance of a sample (ddof 1), null for fewer than two values."""
    count, _, squares, low, high = (pl.col(prefix + key) for key in _KEYS)
    # The mean of equal values may be rounded, and then the values deviate from it.
    same = (low == high) & low.cast(pl.Float64).is_finite()
    return pl.when(count > 1).then(pl.when(same).then(0.0).otherwise(squares / (count - 1)))
