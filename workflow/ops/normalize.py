"""Normalize: mean 0, standard deviation 1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from workflow.operator.checks import require
from workflow.operator.feature import Features, OfRows, Partials, State
from workflow.operator.operator import Example, Operator
from workflow.operator.settings import FloatDType
from workflow.schema.column import Column
from workflow.schema.schema import Schema

from ._moments import merged, moments, moments_of, variance
from ._numbers import expect_numbers, finite_values, flat_values, scaled
from ._state import expect_numbers_of_columns

# Bits of a mean below the deviation that are kept; float32 has 24.
_MEAN_BITS = 40


@dataclass(frozen=True)
class Normalize(Operator):
    """Subtract the mean and divide by the standard deviation (of a sample, ddof 1).

    The moments of parts of the data are merged pairwise in float64, which is stable where sums of
    squares are not: 1e8, 1e8 + 1, 1e8 + 2 has a standard deviation of 1. Nulls, NaN and infinities
    do not count towards the moments; a null stays null. If all values are equal (or there is at
    most one) only the mean is subtracted, so that a constant column is 0.

    Args:
        out_dtype: "float32" or "float64"; the arithmetic is always in float64.

    Source: Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing
    Sample Variances", 1979.

    Example:
        >>> scaled = ["price"] >> Normalize()
    """

    out_dtype: FloatDType = "float32"

    learns: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> list[Example]:
        """Large and constant values, nulls, infinities, integers and lists."""
        numbers = {
            "large": [1e8, 1e8 + 1, 1e8 + 2, None, float("nan")],
            "same": [3, 3, 3, None, 3],
            "odd": pl.Series([1.0, float("inf"), float("-inf"), 2.0, None], dtype=pl.Float32),
        }
        unseen = {"large": [0.0, None], "same": [-1, 2**62], "odd": [float("nan"), 1e30]}
        return [
            Example(cls(), numbers, unseen),
            Example(cls("float64"), numbers, unseen),
            Example(cls(), {"scores": [[1.0, 2.0, None], [], None, [float("inf"), -4.5]]}),
            Example(cls(), {"none": pl.Series([None, None], dtype=pl.Float64)}, {"none": [2.5]}),
        ]

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:
        """Count, mean, sum of squared differences, least and greatest value of each column."""
        expect_numbers(self, columns)
        return {
            name: finite_values(frame, name, is_list=c.is_list).select(moments(pl.col(name)))
            for name, c in columns.items()
        }

    def tables_of_rows(self, frame: pl.LazyFrame, columns: Schema) -> Mapping[str, OfRows]:
        """All tables."""
        return {
            name: (flat_values(frame, name, is_list=c.is_list), moments_of)
            for name, c in columns.items()
        }

    def merge(self, partials: Partials, columns: Schema) -> Partials:  # noqa: ARG002
        """The moments of all parts together."""
        return {name: merged(parts) for name, parts in partials.items()}

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:
        """Mean and standard deviation of each column, in the order of the columns."""
        means, deviations = [], []
        for name in columns:
            facts = partials[name].select("values", "mean", variance(), "min", "max")
            count, mean, spread, low, high = facts.row(0)
            mean = low if low == high else mean  # The mean of ten times 0.1 is rounded.
            deviation = (spread or 0.0) ** 0.5
            require(
                count == 0 or math.isfinite(mean + deviation),
                f"The values of column {name!r} are too large to normalize. Clip them first.",
            )
            means.append(_significant(mean, deviation) if count else 0.0)
            deviations.append(deviation or 1.0)
        return {"mean": Column(np.array(means)), "std": Column(np.array(deviations))}

    def lower(self, columns: Features, state: State) -> Features:
        """The columns, scaled."""
        means, deviations = expect_numbers_of_columns(state, ["mean", "std"], columns)
        return scaled(columns, means, deviations, self.out_dtype)


def _significant(mean: float, deviation: float) -> float:
    """The mean without the digits that rounding makes in a column that is centred already.

    They depend on the order of the sums, so that a fit on another cluster would differ.
    """
    unit = 2.0 ** (math.frexp(deviation)[1] - _MEAN_BITS)
    return round(mean / unit) * unit if deviation and unit and math.isfinite(mean / unit) else mean
