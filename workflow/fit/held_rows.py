"""Rows in memory of many columns, over which each query is planned as fast as over the few it reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl


class HeldRows(pl.LazyFrame):
    """Lazy frame of rows in memory that narrows them to the columns that a selection names.

    Polars plans a query in a time that grows with the width of its frame, whatever it reads. With a
    query for each column the time of all would grow with the square of the columns.

    Args:
        rows: with any number of columns.

    Example:
        >>> HeldRows(pl.DataFrame({"a": [1], "b": [2]})).select("a").explain()
        'DF ["a"]; PROJECT */1 COLUMNS'
    """

    # Polars makes the frames that follow from this one without `__init__`.
    _rows: pl.DataFrame | None = None

    def __init__(self, rows: pl.DataFrame) -> None:
        super().__init__(rows)
        self._rows = rows

    def select(self, *exprs: Any, **named: Any) -> pl.LazyFrame:
        """Selection as in Polars, over the columns that its expressions name."""
        names = None if self._rows is None else _names([*exprs, *named.values()])
        if not names or self._rows is None:
            return super().select(*exprs, **named)
        return columns_of(self._rows, names).lazy().select(*exprs, **named)


def columns_of(rows: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """Some columns, in a time that does not grow with the number of the others.

    Example:
        >>> columns_of(pl.DataFrame({"a": [1], "b": [2]}), ["b"]).columns
        ['b']
    """
    return pl.DataFrame([rows.get_column(name) for name in names])


def _names(selected: Iterable[Any]) -> list[str] | None:
    """The columns that expressions name; None where one names them by a pattern or in another way."""
    expressions = [pl.col(one) if isinstance(one, str) else one for one in selected]
    if any(not isinstance(e, pl.Expr) or e.meta.has_multiple_outputs() for e in expressions):
        return None
    return list(dict.fromkeys(name for e in expressions for name in e.meta.root_names()))
