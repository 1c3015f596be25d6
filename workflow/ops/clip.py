"""Clip: values within bounds."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, State
from workflow.operator.operator import Example, Operator

from ._numbers import expect_numbers


@dataclass(frozen=True)
class Clip(Operator):
    """Move values below `min_value` or above `max_value` to that bound.

    A column keeps its dtype: a lower bound of 0.5 raises integers to at least 1, and a bound
    outside the dtype's range is the nearest value in it, so that a lower bound of 300 makes each
    int8 127. Null stays null, infinity becomes the bound. Each element of a list is clipped.

    Args:
        min_value: the lower bound, or None.
        max_value: the upper bound, or None.

    Raises:
        WorkflowError: neither bound, a bound that is not finite, or bounds in the wrong order; a
            column that does not hold numbers.

    Example:
        >>> ages = ["age"] >> Clip(min_value=0, max_value=120)
    """

    min_value: float | None = None
    max_value: float | None = None

    def _check_settings(self) -> None:
        bounds = [bound for bound in (self.min_value, self.max_value) if bound is not None]
        require(
            bool(bounds) and bounds == sorted(bounds),
            "Clip needs min_value, max_value or both, in this order. "
            f"Received: min_value={self.min_value!r}, max_value={self.max_value!r}.",
        )

    @classmethod
    def examples(cls) -> list[Example]:
        """Bounds on either side, between integers and outside a dtype's range."""
        numbers = {"age": [-3, 31, None, 250], "price": [1.5, None, float("nan"), float("inf")]}
        small = {"small": pl.Series([-100, 0, 100, None], dtype=pl.Int8)}
        return [
            Example(cls(0, 120), numbers, {"age": [2**62], "price": [-1e300]}),
            Example(cls(min_value=0.5), numbers),
            Example(cls(-1000, 1e6), small),
            Example(cls(max_value=2), {"scores": [[1.0, 9.5, None], [], None, [float("-inf")]]}),
        ]

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """The columns, clipped."""
        expect_numbers(self, columns)
        return {
            name: Feature.of(
                name,
                feature.expression.clip(self.min_value, self.max_value),
                feature.schema,
                time=feature.schema.time,
            )
            for name, feature in columns.items()
        }
