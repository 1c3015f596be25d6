"""Random values with the facts of a column."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from workflow.expressions.polars.series import as_times, polars_dtype, to_lists
from workflow.schema.dtypes import DTYPES
from workflow.schema.schema import DATE

from .column import ColumnInspection
from .random_order import Integers, mixed, permuted
from .suggestion import is_category

# Numbers with more different values are left where they are.
_MOST_PLACES = 1_000_000
_DAY = 86_400_000_000
_TRIALS = 16
Floats = np.ndarray[Any, np.dtype[np.float64]]


class RandomColumn:
    """A column of random values, of which any rows can be made.

    Args:
        column: the facts.
        inspected: the number of rows that they are about.
        rows: the number of rows to make.
        seed: another seed gives other values.
    """

    def __init__(self, column: ColumnInspection, inspected: int, rows: int, seed: int) -> None:
        self._column = column
        self._rows = rows
        self._seed = seed
        scale = rows / max(inspected, 1)
        missing = column.null_elements if column.is_list else column.nulls
        parts = column.count + missing + column.nans
        self._elements = max(1, round(parts * scale)) if column.is_list else rows
        self._null_rows = column.nulls / inspected if inspected else 1.0
        # Of all places, the first are null, the next NaN, and the rest have values.
        self._null = missing / parts if parts else 1.0
        self._nan = self._null + (column.nans / parts if parts else 0.0)
        self._made = max(1, round(self._elements * (1 - self._nan)))
        # The elements of lists are values that may come again, however few of them were seen.
        self._is_unique = column.is_unique and not column.is_list
        self._next_element = 0

    def make(self, start: int, end: int) -> pl.Series:
        """The rows `start` to `end`; the rows of lists have to be made in order."""
        column = self._column
        if not column.is_list:
            return self._typed(self._values(np.arange(start, end)))
        places = self._places(np.arange(start, end), self._rows, 1)
        null = places < self._null_rows
        among = (places - self._null_rows) / max(1 - self._null_rows, 1e-300)
        lengths = np.where(null, 0, _at_percentile(column.lengths, among)).astype(np.int64)
        count = int(lengths.sum())
        rows = np.arange(self._next_element, self._next_element + count) % self._elements
        self._next_element += count
        elements = self._typed(self._values(rows))
        lists = to_lists(elements, np.concatenate([[0], np.cumsum(lengths)]))
        lists = lists.cast(pl.List(elements.dtype))
        return pl.select(pl.when(~pl.Series(null)).then(lists)).to_series().alias(column.name)

    def _places(self, numbers: Any, size: int, purpose: int) -> Floats:
        """Places of numbers in a random order, as shares of the size from 0 to 1."""
        order = permuted(numbers, size, self._seed * 4 + purpose)
        return (order.astype(np.float64) + 0.5) / size

    def _values(self, numbers: Any) -> pl.Series:
        places = self._places(numbers, self._elements, 0)
        null, nan = places < self._null, places < self._nan
        if not self._column.distinct:
            values = pl.Series([None] * len(places), dtype=polars_dtype(self._column.dtype))
        else:
            among = np.clip((places - self._nan) / max(1 - self._nan, 1e-300), 0.0, 1.0)
            values = self._named(among) if is_category(self._column) else self._measured(among)
        if self._column.nans:
            values = pl.select(pl.when(~pl.Series(nan)).then(values).otherwise(np.nan)).to_series()
        return pl.select(pl.when(~pl.Series(null)).then(values)).to_series()

    def _typed(self, values: pl.Series) -> pl.Series:
        column = self._column
        values = values.cast(polars_dtype(column.dtype))
        return pl.select(as_times(pl.lit(values), column.time)).to_series().alias(column.name)

    def _measured(self, among: Floats) -> pl.Series:
        """Quantities by their percentiles; between two of these the different values are equally frequent."""
        column, is_float = self._column, DTYPES[self._column.dtype].kind == "float"
        count = self._made if self._is_unique else column.distinct
        if count > _MOST_PLACES or (self._is_unique and is_float):
            return _within(column, _at_percentile(column.quantiles, among))
        values = self._quantities
        if self._is_unique:
            return pl.Series(values[np.minimum(among * count, count - 1).astype(np.int64)])
        places = _at_percentile(np.searchsorted(values, column.quantiles), among)
        # Not to the nearest even one, which may be the place beside.
        return _within(column, values[np.floor(places + 0.5).astype(np.int64)])

    @cached_property
    def _quantities(self) -> Any:
        """The different values, ascending."""
        column = self._column
        return _unequal(column, self._made) if self._is_unique else _different(column)

    def _named(self, among: Floats) -> pl.Series:
        """Names: a rank by its share of the values, and a value for each rank."""
        column = self._column
        if self._is_unique:
            # More rows have more values.
            distinct = max(column.distinct, self._made)
            ranks = np.minimum(among * distinct, distinct - 1).astype(np.uint64)
        else:
            distinct, ranks = column.distinct, self._ranks(among)
        if distinct <= len(column.common):
            return pl.Series([value for value, _ in column.common]).gather(ranks)
        kind = DTYPES[column.dtype].kind
        if kind == "bool":  # of a column without equal values, or inspected without its values
            return pl.Series(ranks % 2 == 1)
        return self._texts(ranks) if kind == "string" else self._numbers(ranks, distinct)

    def _ranks(self, among: Floats) -> Integers:
        """Ranks from 0; between two known ranks all values are equally frequent."""
        ends = np.array([0.0, *self._column.shares])
        ranks = np.array([0, *self._column.ranks], np.float64)
        found = np.floor(np.interp(among, ends, ranks))
        return np.clip(found, 0, ranks[-1] - 1).astype(np.uint64)

    def _numbers(self, ranks: Integers, distinct: int) -> pl.Series:
        """Ids between the least and the greatest, in an order that is independent of the ranks."""
        column = self._column
        least = int(column.minimum or 0)
        width = max(int(column.maximum or 0) - least + 1, distinct)
        step = max(width // distinct, 1)
        places = permuted(ranks, distinct, self._seed * 4 + 2)
        if DTYPES[column.dtype].kind == "float":
            # Of halves, since the whole range may be beyond float64.
            return pl.Series((places.astype(np.float64) * (step / 2) + least / 2) * 2)
        ids = places * np.uint64(step)
        limits = np.iinfo(column.dtype)
        room = np.uint64(int(limits.max) - least)
        return pl.Series(_beyond(column, least, ids % room if width > int(room) else ids))

    def _texts(self, ranks: Integers) -> pl.Series:
        """The most frequent values, then texts of the lengths of the others."""
        column = self._column
        unique, inverse = np.unique(ranks, return_inverse=True)
        spread = (mixed(unique + np.uint64(self._seed)) >> np.uint64(11)).astype(np.float64) / 2**53
        lengths = pl.Series(_at_percentile(column.spread, spread).round().astype(np.int64))
        texts = pl.Series(unique).cast(pl.String).str.pad_start(lengths.cast(pl.UInt64), "x")
        common = pl.Series([value for value, _ in column.common], dtype=pl.String)
        while (is_known := texts.is_in(common.implode())).any():
            texts = pl.select(pl.when(is_known).then("x" + texts).otherwise(texts)).to_series()
        if among := int(np.searchsorted(unique, len(common))):
            texts = pl.concat([common.gather(unique[:among]), texts[among:]])
        return texts.gather(inverse)


def _different(column: ColumnInspection) -> Floats:
    """About as many different values as there are, ascending, with all that are known."""
    common = [value for value, _ in column.common]
    known_values = np.unique(np.array([*column.quantiles, *column.spread, *common], np.float64))
    count = points = max(column.distinct - len(known_values), 0)
    step = _DAY if column.time == DATE else 1
    is_float = DTYPES[column.dtype].kind == "float"
    for _ in range(_TRIALS):
        between = _at_percentile(column.spread, np.linspace(0, 1, points + 2)[1:-1])
        exact = between if is_float else (between / step).round() * step
        # Values between percentiles may be known, or equal after rounding.
        additions = np.setdiff1d(exact, known_values)
        if len(additions) >= count:
            break
        points = min(points + count - len(additions), 4 * count)
    if len(additions) > count:
        additions = additions[np.arange(count) * len(additions) // count]
    return np.union1d(known_values, additions)


def _unequal(column: ColumnInspection, count: int) -> Any:
    """Whole numbers by their percentiles, ascending, none twice; more than the range has reach beyond it."""
    least, step = int(column.quantiles[0]), _DAY if column.time == DATE else 1
    offsets = [(int(quantile) - least) // step for quantile in column.quantiles]
    ranks, top = np.arange(count), max(offsets[-1], count - 1)
    exact = _at_percentile(offsets, (ranks + 0.5) / count).round()
    ascending = np.maximum.accumulate(exact - ranks) + ranks
    ascending = np.minimum(ascending, float(top) - (count - 1) + ranks)
    room = (int(np.iinfo(column.dtype).max) - least) // step
    largest = float(room) if float(room) <= room else np.nextafter(float(room), 0)
    ids = np.minimum(ascending, largest).astype(np.uint64)
    return _beyond(column, least, ids * np.uint64(step))


def _beyond(column: ColumnInspection, least: int, offsets: Integers) -> Any:
    """Integers from their offsets to the least, in numbers without a sign, which wrap as those with one do."""
    values = offsets + np.uint64(least % 2**64)
    return values if column.dtype == "uint64" else values.view(np.int64)


def _at_percentile(percentiles: Any, among: Floats) -> Floats:
    if not len(percentiles):
        return np.zeros(len(among))
    grid = np.linspace(0, 1, len(percentiles))
    return np.interp(among, grid, np.asarray(percentiles, np.float64))


def _within(column: ColumnInspection, numbers: Floats) -> pl.Series:
    """Numbers in the column's range; whole ones if its dtype has no others."""
    if DTYPES[column.dtype].kind == "float":
        return pl.Series(numbers)
    limits = np.iinfo(column.dtype)
    least, most = int(column.minimum or 0), int(column.maximum or 0)
    # A float above 2**53 may be rounded beyond the limits of the dtype.
    exact = np.clip(numbers.round(), float(limits.min), np.nextafter(float(limits.max), 0))
    whole = exact.astype(np.uint64 if column.dtype == "uint64" else np.int64)
    if column.time == DATE:
        whole = whole // _DAY * _DAY
    return pl.Series(whole).clip(least, most)
