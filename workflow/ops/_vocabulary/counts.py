"""Tables of counts: the frequency of each value, and the values that get an id.

A value is one key or a tuple of several: the columns `key0`, `key1` ..., and `count`.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from workflow.schema.training_data import Coverage

COUNT = "count"
_SELDOM = 8
# Sorting this many values takes less time than starting a query.
SMALL = 10_000


def counts(values: pl.LazyFrame, parts: int) -> pl.LazyFrame:
    """Count of each value.

    Args:
        values: the columns `key0`, `key1` ...
        parts: the number of parts into which values are split by their hash. Each part is counted
            separately, so that memory is bounded by the largest part and the result. The data is
            read once for each part.
    """
    return _by_value(values, pl.len().alias(COUNT), pl.get_index_type(), parts)


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
        made = (frame.filter(part % parts == number) for number in range(parts))
        return pl.concat(
            [some.group_by(keys).agg(count).collect(engine="streaming") for some in made]
        )

    return pl.defer(collect, schema={**{key: schema[key] for key in keys}, COUNT: dtype})


def chosen(table: pl.DataFrame, least: int, most: int | None) -> pl.DataFrame:
    """The values that get an id, in the order of their ids: by descending count, ties by value.

    Args:
        table: the values and their counts; null, where all keys are null, has a reserved id.
        least: the smallest count.
        most: the greatest number of values; None for all.
    """
    keys = pl.exclude(COUNT)
    has_id = ~pl.all_horizontal(keys.is_null()) & (pl.col(COUNT) >= least)
    # One query, since a workflow may have thousands of small vocabularies.
    if table.height <= SMALL:
        ordered = _by_count(table.lazy().filter(has_id)).collect(engine="in-memory")
    else:
        ordered = _in_groups(table.filter(has_id))
    return ordered if most is None else ordered.head(most)


def coverage(table: pl.DataFrame, least: int, most: int | None) -> Coverage:
    """The coverage of the data by the values of `chosen`, with the same arguments.

    A value that is still to come is about as frequent as those that were seen once, or, if rare
    values get no id, as often as the rarest that get one.

    Source: Good, "The Population Frequencies of Species and the Estimation of Population
    Parameters", 1953.

    Example:
        >>> coverage(pl.DataFrame({"key0": ["a", "b", "c"], "count": [6, 2, 1]}), 0, None)
        Coverage(size=3, unknown=0.111...)
    """
    known = table.filter(~pl.all_horizontal(pl.exclude(COUNT).is_null()))
    sizes = known.group_by(COUNT).len("values").sort(COUNT, descending=True)
    count, values = (sizes[name].cast(pl.Int64).to_numpy() for name in (COUNT, "values"))
    chosen_values = np.cumsum(np.where(count >= least, values, 0))
    if most is not None:
        chosen_values = np.minimum(chosen_values, most)
    found = np.diff(chosen_values, prepend=0)
    rows = int((count * values).sum())
    sure = int((count * found)[count > max(least, 1)].sum())
    return Coverage(int(found.sum()), 1 - sure / rows if rows else None)


def _by_count(table: pl.LazyFrame) -> pl.LazyFrame:
    keys = pl.exclude(COUNT)
    return table.sort(keys).sort(COUNT, descending=True, maintain_order=True).select(keys)


def _in_groups(table: pl.DataFrame) -> pl.DataFrame:
    """The result of `_by_count`, with half the memory and a third of the time for many values.

    Most values occur only a few times. Values with equal counts are sorted without their counts.
    """
    keys = pl.exclude(COUNT)
    often = _by_count(table.lazy().filter(pl.col(COUNT) > _SELDOM)).collect()
    seldom = (
        table.lazy().filter(pl.col(COUNT) == count).select(keys).sort(keys).collect()
        for count in range(_SELDOM, 0, -1)
    )
    return pl.concat([often, *seldom])
