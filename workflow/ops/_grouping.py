"""Aggregates of groups of rows, with sums of floats in the order of the rows.

Polars groups in threads, and adds floats in the order in which these come to a group: each time the
last bits are others. pyarrow takes as long, in one thread.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

# The name of a column, and of a function of pyarrow for its values in a group.
Aggregate = tuple[str, str]
OLDEST = pl.CompatLevel.oldest()


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
    # In one piece: pyarrow merges the variances of pieces.
    columns = {own.name: own.to_arrow(compat_level=OLDEST) for own in rows.rechunk().get_columns()}
    # It takes ten times as long for strings as for their numbers.
    texts = {
        key: columns[key].dictionary_encode(null_encoding="encode")
        for key in keys
        if pa.types.is_large_string(columns[key].type)
    }
    columns |= {key: text.indices for key, text in texts.items()}
    made = pa.table(columns).group_by(list(keys), use_threads=False).aggregate(list(aggregates))
    for key, text in texts.items():
        place = made.column_names.index(key)
        made = made.set_column(place, key, text.dictionary.take(made[key]))
    names = [f"{column}_{function}" for column, function in aggregates]
    return pl.DataFrame(pl.from_arrow(made.select([*keys, *names])))


def summed(keys: Sequence[str], rows: pl.DataFrame) -> pl.DataFrame:
    """A row for each key, with the sums of all other columns."""
    others = [name for name in rows.columns if name not in keys]
    made = grouped(rows, keys, [(name, "sum") for name in others])
    return made.rename({f"{name}_sum": name for name in others})
