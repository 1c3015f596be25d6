"""Tables of counts: the frequency of each value, and the values that get an id.

A value is one key or a tuple of several: the columns `key0`, `key1` ..., and `count`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from workflow.schema.column import Array
from workflow.schema.training_data import Coverage

COUNT = "count"
# Prefix of a table's name. No column's name begins so.
_LEFT_OUT = "\0left out of "
_SELDOM = 8
_OFTEN = 65_536
# Sorting this many values takes less time than starting a query.
SMALL = 10_000
# Null, where all keys are null, has a reserved id.
_IS_KNOWN = ~pl.all_horizontal(pl.exclude(COUNT).is_null())


def counts(values: pl.LazyFrame, parts: int) -> pl.LazyFrame:
    """Count of each value.

    Args:
        values: the columns `key0`, `key1` ...
        parts: the number of parts into which values are split by their hash. Each part is counted
            separately, so that memory is bounded by the largest part and the result. The data is
            read once for each part.
    """
    return _by_value(values, pl.len().alias(COUNT), pl.get_index_type(), parts)


def sorted_counts(values: pl.DataFrame) -> pl.DataFrame:
    """The table of `counts` for one column of integers, in the order of the values.

    Sorting takes between half the time of a hash table, for many distinct values, and the same.

    Example:
        >>> sorted_counts(pl.DataFrame({"a": [7, 5, None, 7]})).rows()
        [(None, 1), (5, 1), (7, 2)]
    """
    # In one thread, since other columns are sorted at the same time.
    runs = values.to_series().sort(multithreaded=False).rle().struct
    keys, lengths = runs.field("value").set_sorted(), runs.field("len")
    # pl.DataFrame of a list chooses its function by functools.singledispatch, which fails when
    # threads first use it at the same time.
    return keys.to_frame("key0").hstack([lengths.alias(COUNT)])


def merged_counts(tables: pl.LazyFrame, parts: int) -> pl.LazyFrame:
    """Count of each value in several tables of counts together."""
    return _by_value(tables, pl.col(COUNT).cast(pl.UInt64).sum(), pl.UInt64, parts)


def _by_value(
    frame: pl.LazyFrame, count: pl.Expr, dtype: type[pl.DataType] | pl.DataType, parts: int
) -> pl.LazyFrame:
    schema = frame.collect_schema()
    keys = [name for name in schema.names() if name != COUNT]
    if parts == 1:
        return frame.group_by(keys).agg(count)
    part = pl.struct(keys).hash() if len(keys) > 1 else pl.col(keys).hash()

    def collect() -> pl.DataFrame:
        frames = (frame.filter(part % parts == number) for number in range(parts))
        return pl.concat(
            [rows.group_by(keys).agg(count).collect(engine="streaming") for rows in frames]
        )

    return pl.defer(collect, schema={**{key: schema[key] for key in keys}, COUNT: dtype})


def chosen(table: pl.DataFrame, least: int, most: int | None) -> pl.DataFrame:
    """The values that get an id, in the order of their ids: by descending count, ties by value.

    Args:
        table: the values and their counts.
        least: the smallest count.
        most: the greatest number of values; None for all.
    """
    # A workflow may have thousands of small vocabularies, and a query takes a millisecond.
    if table.height <= SMALL and table.width == 2 and table.to_series().dtype.is_integer():
        ordered = _few_integers(_known(table), least)
    else:
        in_order = _by_count if table.height <= SMALL else _in_groups
        has_id = table.lazy().filter(_IS_KNOWN & (pl.col(COUNT) >= least))
        ordered = in_order(has_id).collect(engine="in-memory")
    return ordered if most is None else ordered.head(most)


def _known(table: pl.DataFrame) -> pl.DataFrame:
    """The values without null."""
    keys = [column for column in table.get_columns() if column.name != COUNT]
    return table.filter(_IS_KNOWN) if all(key.null_count() for key in keys) else table


def _few_integers(table: pl.DataFrame, least: int) -> pl.DataFrame:
    keys, counts = (column.to_numpy() for column in table.get_columns())
    has_id = np.flatnonzero(counts >= least)
    order = np.lexsort((keys[has_id], -counts[has_id].astype(np.int64)))
    return pl.DataFrame({table.columns[0]: keys[has_id[order]]})


def condensed(
    name: str, table: pl.DataFrame, least: int, most: int | None
) -> dict[str, pl.DataFrame]:
    """The rows of a table of counts that `chosen` may choose, and how often the others occur.

    Args:
        name: the name of the table.
        table: the values and their counts, or a part of the values.
        least: as for `chosen`.
        most: as for `chosen`; a value among the most frequent is among those of its part.

    Returns:
        The table, and one that `rows_left_out` reads.

    Example:
        >>> table = pl.DataFrame({"key0": ["a", "b", "c"], "count": [6, 2, 1]})
        >>> condensed("city", table, 2, 1)["city"].rows()
        [('a', 6)]
    """
    rows = table.filter(_IS_KNOWN)
    candidates = rows.filter(pl.col(COUNT) >= least)
    if most is not None and candidates.height > most:
        keys = [column for column in candidates.columns if column != COUNT]
        descending = [True] + [False] * len(keys)
        candidates = candidates.sort(COUNT, *keys, descending=descending).head(most)
    totals = (each.select(pl.col(COUNT).cast(pl.UInt64).sum()) for each in (rows, candidates))
    return {name: candidates, _LEFT_OUT + name: next(totals) - next(totals)}


def rows_left_out(name: str, tables: Mapping[str, pl.DataFrame]) -> int:
    """Number of occurrences of the values that `condensed` has left out.

    Args:
        name: the name of the table.
        tables: all tables, condensed or not; results of several parts are concatenated.
    """
    table = tables.get(_LEFT_OUT + name)
    return 0 if table is None else int(table[COUNT].sum())


def coverage(table: pl.DataFrame, least: int, most: int | None, further_rows: int = 0) -> Coverage:
    """The coverage of the data by the values of `chosen`, with the same arguments.

    `further_rows` is how often further values occur, which are not in the table.

    A value that is still to come is about as frequent as those that were seen once, or, if rare
    values get no id, as often as the rarest that get one.

    Source: Good, "The Population Frequencies of Species and the Estimation of Population
    Parameters", 1953.

    Example:
        >>> coverage(pl.DataFrame({"key0": ["a", "b", "c"], "count": [6, 2, 1]}), 0, None)
        Coverage(size=3, unknown=0.111...)
    """
    count, values = _frequencies(_known(table)[COUNT].to_numpy())
    chosen_values = np.cumsum(np.where(count >= least, values, 0))
    if most is not None:
        chosen_values = np.minimum(chosen_values, most)
    ids = np.diff(chosen_values, prepend=0)
    rows = int((count * values).sum()) + further_rows
    sure = int((count * ids)[count > max(least, 1)].sum())
    return Coverage(int(ids.sum()), 1 - sure / rows if rows else None)


def _frequencies(counts: Array) -> tuple[Array, Array]:
    """The distinct counts, greatest first, and how many values have each."""
    # Without a sort, as most values of a large vocabulary occur only a few times.
    times = np.bincount(counts[counts < _OFTEN].astype(np.int64))
    count, values = np.unique(counts[counts >= _OFTEN].astype(np.int64), return_counts=True)
    seldom = np.flatnonzero(times)
    return (
        np.concatenate([count[::-1], seldom[::-1]]),
        np.concatenate([values[::-1], times[seldom][::-1]]),
    )


def _by_count(table: pl.LazyFrame) -> pl.LazyFrame:
    keys = pl.exclude(COUNT)
    return table.sort(keys).sort(COUNT, descending=True, maintain_order=True).select(keys)


def _in_groups(table: pl.LazyFrame) -> pl.LazyFrame:
    """The result of `_by_count`, with half the memory and a third of the time for many values.

    Most values occur only a few times. Values with equal counts are sorted without their counts.
    """
    keys = pl.exclude(COUNT)
    often = _by_count(table.filter(pl.col(COUNT) > _SELDOM))
    counts = range(_SELDOM, 0, -1)
    seldom = (table.filter(pl.col(COUNT) == count).select(keys).sort(keys) for count in counts)
    return pl.concat([often, *seldom])
