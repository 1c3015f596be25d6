"""Rows of many columns in memory, with query planning time independent of their number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl


class HeldRows(pl.LazyFrame):
    """Lazy frame of rows in memory that selects the columns that a query reads first.

    Polars' planning time grows with the width of the frame, even if a query reads few columns. With
    a query for each column the total would grow with the square of the number of columns.

    Args:
        rows: rows with any number of columns.

    Example:
        >>> HeldRows(pl.DataFrame({"a": [1], "b": [2]})).select("a").explain()
        'DF ["a"]; PROJECT */1 COLUMNS'
    """

    # Polars derives frames from this one without calling `__init__`.
    _rows: pl.DataFrame | None = None

    def __init__(self, rows: pl.DataFrame) -> None:
        super().__init__(rows)
        self._rows = rows

    def select(self, *exprs: Any, **named: Any) -> pl.LazyFrame:
        """Select as Polars does, from only the columns that the expressions name."""
        if self._rows is not None and (names := _names([*exprs, *named.values()])):
            return columns_of(self._rows, names).lazy().select(*exprs, **named)
        return super().select(*exprs, **named)


def columns_of(rows: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """Some columns, in a time that is independent of the number of others.

    Example:
        >>> columns_of(pl.DataFrame({"a": [1], "b": [2]}), ["b"]).columns
        ['b']
    """
    # By name: of a list Polars would rename a column whose name is empty.
    return pl.DataFrame({name: rows.get_column(name) for name in names})


def _names(selected: Iterable[Any]) -> list[str] | None:
    """The columns that expressions name; None if one uses a pattern or another form."""
    expressions = [pl.col(item) if isinstance(item, str) else item for item in selected]
    if any(not isinstance(e, pl.Expr) or e.meta.has_multiple_outputs() for e in expressions):
        return None
    return list(dict.fromkeys(name for e in expressions for name in e.meta.root_names()))
