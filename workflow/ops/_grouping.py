"""Rows in groups of equal keys, with sums of floats in the order of the rows.

Polars groups in threads, and adds floats in the order in which these come to a group: each time the
last bits are others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

import numpy as np
import polars as pl
import pyarrow as pa

from workflow.schema.column import Array

from ._moments import KEYS

ROWS = "rows"
KEYS_AND_SUM = (*KEYS, "sum")


class Grouping:
    """The groups of equal keys, in the order of their first rows.

    Args:
        keys: the columns of the key: integers, booleans or strings. Null is a value.

    Attributes:
        of_row: the group of each row.
        keys: the key of each group.

    Example:
        >>> groups = Grouping(pl.DataFrame({"user": [7, None, 7]}))
        >>> groups.keys["user"].to_list(), groups.sums(np.array([0.5, 1.0, 2.0])).tolist()
        ([7, None], [2.5, 1.0])
    """

    def __init__(self, keys: pl.DataFrame) -> None:
        numbered = (
            _numbered(key.to_arrow(compat_level=pl.CompatLevel.oldest()))
            for key in keys.rechunk().get_columns()
        )
        self.of_row = reduce(_both, numbered)
        # Groups are numbered as they come, so that each new one is beyond all before.
        firsts = np.flatnonzero(np.diff(np.maximum.accumulate(self.of_row), prepend=-1))
        self.keys = keys[firsts]

    def sums(self, values: Array | None = None) -> Array:
        """The sum of each group's values, float64; without values the number of its rows, int64."""
        return np.bincount(self.of_row, values, self.keys.height)

    def ends(self, least: pl.Series, greatest: pl.Series) -> pl.DataFrame:
        """The least and the greatest value of each group, in the values' own dtype."""
        own = pl.DataFrame({"group": self.of_row, "min": least, "max": greatest})
        made = own.lazy().group_by("group").agg(pl.min("min"), pl.max("max"))
        return made.collect(engine="streaming").sort("group").drop("group")


def _numbered(values: pa.Array) -> Array:
    return values.dictionary_encode(null_encoding="encode").indices.to_numpy()


def _both(first: Array, second: Array) -> Array:
    """The numbers of pairs of numbers."""
    count = int(second.max(initial=0)) + 1
    return _numbered(pa.array(first.astype(np.int64) * count + second))


def summed(keys: Sequence[str], table: pl.DataFrame) -> pl.DataFrame:
    """A row for each key, with the sums of all other columns: of integers int64, of floats float64.

    Example:
        >>> summed(["user"], pl.DataFrame({"user": [7, 9, 7], "paid": [0.5, 1.0, 2.0]})).rows()
        [(7, 2.5), (9, 1.0)]
    """
    groups = Grouping(table.select(keys))
    sums = {
        column.name: pl.Series(groups.sums(column.to_numpy()), dtype=_wide(column.dtype))
        for column in table.drop(keys).get_columns()
    }
    return groups.keys.with_columns(**sums)


def _wide(dtype: pl.DataType) -> type[pl.DataType]:
    return pl.Float64 if dtype.is_float() else pl.Int64


def moments_by_key(
    rows: pl.DataFrame, keys: Sequence[str], columns: Iterable[pl.DataFrame]
) -> pl.DataFrame:
    """A row for each key, with the number of rows, and the moments and the sum of some columns.

    Args:
        rows: the keys, and `rows` if these are rows of such tables.
        keys: the names of the keys.
        columns: for each column what `single` makes of it, or its columns of such tables.
    """
    groups = Grouping(rows.select(keys))
    counts = rows[ROWS].to_numpy() if ROWS in rows.columns else None
    made = groups.keys.with_columns(pl.Series(ROWS, groups.sums(counts), dtype=pl.Int64))
    for number, column in enumerate(columns):
        own = _merged(groups, column)
        made = made.hstack(own.rename(lambda key, number=number: f"{number}.{key}"))
    return made


def single(values: pl.Series) -> pl.DataFrame:
    """The moments and the sum of each value alone; values are neither NaN nor infinite."""
    real = values.cast(pl.Float64)
    count = values.is_not_null().cast(pl.Float64)
    return pl.DataFrame([count, real, 0 * count, values, values, real], KEYS_AND_SUM)


def _merged(groups: Grouping, parts: pl.DataFrame) -> pl.DataFrame:
    count, mean, squares, total = (
        parts[key].fill_null(0.0).to_numpy() for key in ("values", "mean", "squares", "sum")
    )
    values = groups.sums(count)
    with np.errstate(all="ignore"):
        whole = groups.sums(count * mean) / values
        squares = squares + count * (mean - whole[groups.of_row]) ** 2
    made = pl.DataFrame({"values": values, "mean": whole, "squares": groups.sums(squares)})
    made = made.with_columns(pl.when(pl.col("values") > 0).then(pl.col("mean", "squares")))
    ends = groups.ends(parts["min"], parts["max"])
    return made.hstack([*ends.get_columns(), pl.Series("sum", groups.sums(total))])
