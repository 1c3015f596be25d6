"""Aggregates of groups of rows, with sums of floats in the order of the rows.

Polars groups in threads, and adds floats in the order in which these come to a group: each time the
last bits are others. pyarrow takes about as long.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pyarrow as pa

# Rows to group, and the names of their keys.
Keys = tuple[pl.LazyFrame, Sequence[str]]
# The name of a column, and of a function of pyarrow for its values in a group.
Aggregate = tuple[str, str]
OLDEST = pl.CompatLevel.oldest()
# Rows, and groups in the first tenth of these, that are worth several threads, of which each group has
# one: of few groups the copies cost more than they save.
_MANY_ROWS, _MANY_GROUPS = 1_000_000, 10_000
_PARTS = 8


def grouped(
    rows: pl.DataFrame, keys: Sequence[str], aggregates: Sequence[Aggregate]
) -> pl.DataFrame:
    """A row for each key, with an aggregate `<column>_<function>` for each of the given ones.

    Args:
        rows: the keys, which are integers, booleans or strings, with null as a value, and the columns.
        keys: the names of the keys.
        aggregates: the columns and functions: "sum", "count" (of values that are not null),
            "variance" (ddof 0), "min", "max".

    Example:
        >>> rows = pl.DataFrame({"user": [7, None, 7], "paid": [0.5, 1.0, 2.0]})
        >>> grouped(rows, ["user"], [("paid", "sum")]).rows()
        [(7, 2.5), (None, 1.0)]
    """
    sample = rows.select(keys).head(_MANY_ROWS // 10)
    if rows.height < _MANY_ROWS or sample.n_unique() < _MANY_GROUPS:
        return _grouped(rows, keys, aggregates)
    # All rows of a key stay together and in order. There are as many parts on any processor, since
    # pyarrow merges variances of some thousand rows.
    part = rows.select(pl.struct(keys).hash() % _PARTS).to_series()
    with ThreadPoolExecutor(min(_PARTS, os.cpu_count() or 1)) as pool:
        made = pool.map(lambda n: _grouped(rows.filter(part == n), keys, aggregates), range(_PARTS))
        return pl.concat(made)


def _grouped(
    rows: pl.DataFrame, keys: Sequence[str], aggregates: Sequence[Aggregate]
) -> pl.DataFrame:
    # In one piece, since pyarrow merges the variances of pieces.
    columns = {own.name: own.to_arrow(compat_level=OLDEST) for own in rows.rechunk().get_columns()}
    # It takes ten times as long for strings as for their numbers.
    texts = {
        key: columns[key].dictionary_encode(null_encoding="encode")
        for key in keys
        if pa.types.is_large_string(columns[key].type)
    }
    columns |= {key: text.indices for key, text in texts.items()}
    table = pa.table(columns).group_by(list(keys), use_threads=False).aggregate(list(aggregates))
    for key, text in texts.items():
        place = table.column_names.index(key)
        table = table.set_column(place, key, text.dictionary.take(table[key]))
    names = [f"{column}_{function}" for column, function in aggregates]
    return pl.DataFrame(pl.from_arrow(table.select([*keys, *names])))


def summed(keys: Sequence[str], rows: pl.DataFrame) -> pl.DataFrame:
    """A row for each key, with the sums of all other columns."""
    columns = [name for name in rows.columns if name not in keys]
    sums = grouped(rows, keys, [(name, "sum") for name in columns])
    return sums.rename({f"{name}_sum": name for name in columns})
