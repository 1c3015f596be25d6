"""Equality of what the GPU and the CPU make of the same rows."""

from __future__ import annotations

import polars as pl
from polars.testing import assert_series_equal

from workflow.expressions.polars.series import to_series

# Of float32, for what is not exact.
ULP = 2.0**-23


def assert_same(expected, received, *, exact=False, close=ULP):
    """Integers, strings, nulls and lengths are the same, floats too or close where not exact."""
    with pl.Config(tbl_rows=100, fmt_table_cell_list_len=100, fmt_float="full"):
        assert_series_equal(
            to_series(expected),
            to_series(received),
            check_exact=exact,
            rel_tol=close,
            abs_tol=1e-45,  # less than float32 can hold
        )
