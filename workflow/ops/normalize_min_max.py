"""NormalizeMinMax: scales the smallest value to 0, the largest to 1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from workflow.operator.checks import require
from workflow.operator.feature import Features, Partials, State
from workflow.operator.operator import Example, Operator
from workflow.operator.settings import FloatDType
from workflow.schema.column import Column
from workflow.schema.schema import Schema

from ._numbers import ends, expect_numbers, finite_values, merged_ends, scaled
from ._state import expect_numbers_of_columns


@dataclass(frozen=True)
class NormalizeMinMax(Operator):
    """Scale values so that the smallest value in `fit` is 0 and the largest is 1.

    A value outside that range becomes less than 0 or greater than 1: nothing is clipped. Nulls, NaN
    and infinities do not count; a null stays null. If all values are equal (or there are none) only
    the smallest is subtracted, so that a constant column is 0.

    Args:
        out_dtype: "float32" or "float64"; the arithmetic is always in float64.

    Raises:
        WorkflowError: another dtype, a column that does not hold numbers, or one whose range
            exceeds float64.

    Example:
        >>> scaled = ["price"] >> NormalizeMinMax()
    """

    out_dtype: FloatDType = "float32"

    learns: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> list[Example]:
        """Constant columns, nulls, infinities, integers and lists."""
        numbers = {
            "price": [1.0, 3.0, None, float("nan"), 2.0],
            "same": [0, 0, None, 0, 0],
            "odd": pl.Series([float("inf"), 1.0, -3.0, float("-inf"), None], dtype=pl.Float32),
        }
        unseen = {"price": [0.0, 1e9, None], "same": [5, -(2**62), 0], "odd": [0.0, 1.0, 1e30]}
        return [
            Example(cls(), numbers, unseen),
            Example(cls("float64"), numbers, unseen),
            Example(cls(), {"scores": [[1.0, 2.0, None], [], None, [float("inf"), -4.5]]}),
        ]

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:
        """The smallest and the largest value of each column."""
        expect_numbers(self, columns)
        return {
            name: ends(finite_values(frame, name, is_list=column.is_list), name)
            for name, column in columns.items()
        }

    def merge(self, partials: Partials, columns: Schema) -> Partials:  # noqa: ARG002
        """The smallest and the largest of all parts."""
        return merged_ends(partials)

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:
        """The smallest value of each column and the size of its range, in the columns' order."""
        lows, ranges = [], []
        for name in columns:
            low, high = partials[name].row(0)
            low, span = (0.0, 0.0) if low is None else (low, high - low)
            require(
                math.isfinite(span),
                f"The values of column {name!r} are too far apart to normalize. Clip them first.",
            )
            lows.append(low)
            ranges.append(span or 1.0)
        return {"min": Column(np.array(lows)), "range": Column(np.array(ranges))}

    def lower(self, columns: Features, state: State) -> Features:
        """The columns, scaled."""
        lows, ranges = expect_numbers_of_columns(state, ["min", "range"], columns)
        return scaled(columns, lows, ranges, self.out_dtype)
