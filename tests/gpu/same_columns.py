"""Equality of what the GPU and the CPU make of the same rows."""

from __future__ import annotations

import polars as pl
from polars.testing import assert_series_equal

from workflow.expressions.polars.series import to_series

# Of float32, for what is not exact.
ULP = 2.0**-23


def assert_same(expected, received, *, exact=False, close=ULP, beside=0.0):
    """Integers, strings, nulls and lengths are the same, floats too or close where not exact.

    Args:
        beside: a float may differ by so much of the column's largest one: the sum of 2**62, 1 and
            -2**62 is 1 or 0, by the order in which they are added.
    """
    with pl.Config(tbl_rows=100, fmt_table_cell_list_len=100, fmt_float="full"):
        assert_series_equal(
            to_series(expected),
            to_series(received),
            check_exact=exact,
            rel_tol=close,
            abs_tol=max(1e-45, beside * _largest(to_series(expected))),  # float32 holds no less
        )


def _largest(series):
    while isinstance(series.dtype, pl.List):
        series = series.explode(empty_as_null=False)
    if not series.dtype.is_float():
        return 0.0
    return series.filter(series.is_finite()).abs().max() or 0.0
