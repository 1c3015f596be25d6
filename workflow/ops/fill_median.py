"""FillMedian: replaces nulls by the median in the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from workflow.expressions.language.tree import Expression
from workflow.operator.feature import Feature, Features, Partials, State
from workflow.operator.operator import Example, Operator
from workflow.schema.column import Column
from workflow.schema.schema import ColumnSchema, Schema

from ._filling import filled_column
from ._numbers import expect_numbers, finite_values
from ._state import expect_numbers_of_columns

# A bin is a float64 with 12 of its 52 fraction bits; this factor drops the others.
_SPLITTER = float(2**40 + 1)
# Beyond this the product would be infinite.
_LARGE = 2.0**960
_SMALLER = 2.0**-60


@dataclass(frozen=True)
class FillMedian(Operator):
    """Replace nulls by the column's median; NaN in the data is null.

    A NaN that an operator before it computes stays NaN, as behind `FillMissing`.

    The values are counted in bins, 4,096 for each power of two. Integers up to 8,192, and any value
    that is alone in its bin, are counted individually; for these the median is exact. Otherwise it
    is the middle of its bin, with an error of at most 1/8,192; of times, which are counted from 1970
    on, these are up to 2.5 days in 2026. The counts of parts of the data are summed, so that the
    median does not depend on the parts. They take some kilobytes for each power of two in the range
    of the values.

    The median of an even number of values is the mean of the two in the middle. A column of integers
    becomes float64, as in pandas and scikit-learn: the median of 1 and 2 is 1.5, and a rounded one
    would be a bias of up to 0.5 in every filled row. Integers beyond 2**53 are rounded to float64.
    Floats and times keep their dtype; of two times in the middle the median is the earlier. Nulls,
    NaN and infinities do not count. Without any values, the median is 0. Null elements of lists are
    replaced by the median of all elements.

    Args:
        add_binary_cols: also make `<column>_filled`, bool, True where a value was missing. It has
            the column's tags; a network that takes floats needs it cast.

    Raises:
        WorkflowError: a column that does not hold numbers.

    Source: Masson, Rim and Lee, "DDSketch", VLDB 2019, with the bins of HdrHistogram; a value is
    rounded to its bin by Dekker's splitting, "A floating-point technique for extending the
    available precision", 1971.

    Example:
        >>> filled = ["age"] >> FillMedian(add_binary_cols=True)
    """

    add_binary_cols: bool = False

    learns: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> list[Example]:
        """Odd and even counts, nulls, negative values, extremes and lists."""
        numbers = {
            "age": [31, None, 7, 8, None],
            "price": [1.5, -2.5, None, float("nan"), 0.0],
            "small": pl.Series([None, -7, 120, None, 121], dtype=pl.Int8),
            "large": pl.Series([2**64 - 1, 2**64 - 1, None, 0, None], dtype=pl.UInt64),
        }
        unseen = {"age": [None], "price": [None], "small": [None], "large": [None]}
        return [
            Example(cls(), numbers, unseen),
            Example(cls(add_binary_cols=True), numbers, unseen),
            Example(cls(), {"scores": [[1.0, None], None, [], [float("inf"), 2.0]]}),
        ]

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:
        """The count of each bin, and its least and greatest value."""
        expect_numbers(self, columns)
        counts = {}
        for name, column in columns.items():
            values = finite_values(frame, name, is_list=column.is_list)
            counts[name] = (
                values.select(bin=_bin(pl.col(name)), value=pl.col(name))
                .group_by("bin")
                .agg(count=pl.len().cast(pl.Int64), low=pl.min("value"), high=pl.max("value"))
            )
        return counts

    def merge(self, partials: Partials, columns: Schema) -> Partials:  # noqa: ARG002
        """The bins of all parts together."""
        together = (pl.sum("count"), pl.min("low"), pl.max("high"))
        return {name: parts.group_by("bin").agg(together) for name, parts in partials.items()}

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:
        """The median of each column, in the order of the columns."""
        medians = [_median(partials[name], column) for name, column in columns.items()]
        return {"median": Column(np.array(medians, np.float64))}

    def lower(self, columns: Features, state: State) -> Features:
        """The columns without nulls."""
        (medians,) = expect_numbers_of_columns(state, ["median"], columns)
        filled: Features = {}
        for feature, median in zip(columns.values(), medians, strict=True):
            value = _filled(feature, median)
            filled |= filled_column(feature, value, columns, indicator=self.add_binary_cols)
        return filled


def _bin(value: pl.Expr) -> pl.Expr:
    """The value rounded to 12 fraction bits, by arithmetic alone: cuDF has no access to bits."""
    scale = pl.when(value.abs() < _LARGE).then(1.0).otherwise(_SMALLER)
    scaled = value * scale
    product = scaled * _SPLITTER
    return (product - (product - scaled)) / scale


def _median(bins: pl.DataFrame, column: ColumnSchema) -> float:
    bins = bins.sort("low")
    ends = bins["count"].cum_sum()
    total = int(ends[-1]) if len(ends) else 0
    if total == 0:
        return 0.0
    # The bins of the lower and the upper of the two values in the middle.
    places = [
        int(ends.search_sorted(rank, side="right")) for rank in ((total - 1) // 2, total // 2)
    ]
    middles = [bins["low"][place] / 2 + bins["high"][place] / 2 for place in places]
    if column.time:
        return float(np.floor(middles[0]))
    return float(middles[0] / 2 + middles[1] / 2)


def _filled(feature: Feature, median: float) -> Expression:
    """The values, float64 for integers; a time as float64 may exceed the latest time."""
    if feature.schema.time:
        return feature.expression.fill_null(min(int(median), np.iinfo(np.int64).max))
    if feature.schema.info.is_integer:
        return feature.expression.cast("float64").fill_null(median)
    return feature.expression.fill_null(median)
