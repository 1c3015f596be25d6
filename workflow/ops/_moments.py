"""Moments of values, in a form that can be merged over parts of the data.

Means and sums of squared differences are merged pairwise in float64, which is stable where sums of
squares are not: 1e8, 1e8 + 1, 1e8 + 2 has a standard deviation of 1.

Source: Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
Variances", 1979.
"""

from __future__ import annotations

import numpy as np
import polars as pl

KEYS = ("values", "mean", "squares", "min", "max")
# Values that fit into the cache of a core.
_BLOCK = 32_768


def moments(values: pl.Expr, prefix: str = "") -> list[pl.Expr]:
    """Count, mean, sum of squared differences, least and greatest of the values that are not null.

    Args:
        values: numbers; least and greatest keep their dtype.
        prefix: prefix of the columns' names.
    """
    real = values.cast(pl.Float64)
    count = real.count().cast(pl.Float64)
    made = (count, real.mean(), real.var(ddof=0) * count, values.min(), values.max())
    return [moment.alias(prefix + key) for key, moment in zip(KEYS, made, strict=True)]


def moments_of(values: pl.DataFrame, *, finite: bool = True) -> pl.DataFrame:
    """The `moments` of one column, added in the order of the rows.

    Polars' queries add in the order in which their threads end: each time the last bits are others.

    Args:
        values: the column; nulls and NaN do not count.
        finite: whether infinities do not count either.

    Example:
        >>> moments_of(pl.DataFrame({"a": [1.0, None, 3.0]})).row(0)
        (2.0, 2.0, 2.0, 1.0, 3.0)
    """
    column = values.to_series()
    blocks = [
        _of_block(column.slice(start, _BLOCK), finite=finite)
        for start in range(0, len(column), _BLOCK)
    ]
    table = pl.DataFrame(
        [block for block in blocks if block], dict.fromkeys(KEYS, pl.Float64), orient="row"
    )
    return table.select(merged_moments())


def _of_block(column: pl.Series, *, finite: bool) -> tuple[float, ...] | None:
    known = column.drop_nulls() if column.null_count() else column
    values = known.to_numpy().astype(np.float64, copy=False)
    counted = np.isfinite(values) if finite else ~np.isnan(values)
    if not counted.all():
        values = values[counted]
    if not len(values):
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        mean = values.mean()
        squares = np.square(values - mean).sum()
    return float(len(values)), mean, squares, values.min(), values.max()


def merged(parts: pl.LazyFrame, *further: pl.Expr) -> pl.LazyFrame:
    """The moments of several parts together, and further columns, added in the order of the parts."""
    return parts.collect(engine="in-memory").select(*further, *merged_moments()).lazy()


def merged_moments(prefix: str = "") -> list[pl.Expr]:
    """The moments of several parts together, from columns named as in `moments`."""
    count, mean, squares, low, high = (pl.col(prefix + key) for key in KEYS)
    # Null, not 0 / 0, if no part has a value: it may be merged again.
    whole = pl.when(count.sum() > 0).then((count * mean).sum() / count.sum())
    spread = squares.fill_null(0) + (count * (mean - whole) ** 2).fill_null(0)
    made = (count.sum(), whole, spread.sum(), low.min(), high.max())
    return [moment.alias(prefix + key) for key, moment in zip(KEYS, made, strict=True)]


def variance(prefix: str = "") -> pl.Expr:
    """The variance of a sample (ddof 1), null for fewer than two values."""
    count, _, squares, low, high = (pl.col(prefix + key) for key in KEYS)
    # The mean of equal values may be rounded, and then the values deviate from it.
    same = (low == high) & low.cast(pl.Float64).is_finite()
    return pl.when(count > 1).then(pl.when(same).then(0.0).otherwise(squares / (count - 1)))
