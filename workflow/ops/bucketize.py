"""Bucketize: the index of the interval that a value falls into."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from workflow.expressions.language.tree import Expression
from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, State
from workflow.operator.operator import Example, Operator
from workflow.schema.column import Array, Column
from workflow.schema.names import listed

from ._functions import of_name
from ._numbers import expect_numbers, numbered

# Arrays become lists, as in every operator; for checkers they are no sequences.
if TYPE_CHECKING:
    Numbers = Sequence[float] | Array | pl.Series
else:
    Numbers = Sequence[float]
Boundaries = Numbers | Mapping[str, Numbers]


@dataclass(frozen=True)
class Bucketize(Operator):
    """The number of boundaries that a value reaches, int32, from 0 to the number of boundaries.

    Boundaries [0, 10] make three buckets: 0 below 0, 1 from 0 to below 10, and 2 from 10 on, as in
    `numpy.digitize`. Integers are compared exactly with integral boundaries, else in float64. Null
    stays null, as does NaN in the data: put `FillMissing` before it to choose their bucket. A NaN
    that an operator before it computes, as `LogOp` does of -2, reaches no boundary: 0. Each element
    of a list gets a bucket. The column's `cardinality` is the number of buckets.

    Args:
        boundaries: ascending finite numbers for all columns, a mapping from column to such numbers,
            or a function from a column's name to them, of which the results are saved.

    Raises:
        WorkflowError: boundaries that do not ascend or are missing for a column, or a column that
            does not hold numbers.

    Example:
        >>> age_group = ["age"] >> Bucketize([18, 25, 35, 50])
    """

    boundaries: Boundaries | Callable[[str], Numbers]

    def _check_settings(self) -> None:
        setting = self.boundaries
        if not callable(setting):
            for boundaries in setting.values() if isinstance(setting, Mapping) else [setting]:
                _expect_ascending(boundaries)

    @classmethod
    def examples(cls) -> list[Example]:
        """Few and many boundaries, for all columns and for each, values on boundaries, and lists."""
        numbers = {"age": [-3, 18, None, 25, 250], "price": [1.5, None, float("nan"), 0.5, -0.0]}
        unseen = {"age": [2**62, 24], "price": [float("inf"), 1e-300]}
        large = {"large": pl.Series([2**64 - 1, 0, None, 2**63], dtype=pl.UInt64)}
        return [
            Example(cls([0, 18, 25]), numbers, unseen),
            Example(cls({"age": [18, 2**53 + 1], "price": [0.0, 0.5, 1.5]}), numbers, unseen),
            Example(cls(lambda name: range(len(name))), numbers, unseen),
            Example(
                cls(np.linspace(-5, 5, 100).tolist()),
                {"scores": [[1.0, None], [], None, [-7.0, 4.95]]},
            ),
            Example(cls([]), large),
            Example(cls([-7, 0, 2**53 + 1]), large, {"large": [2**53, 2**53 + 1]}),
            Example(cls([-7, *range(2**53 + 1, 2**53 + 81, 2)]), large, {"large": [2**53 + 2]}),
        ]

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """The numbers of the buckets."""
        expect_numbers(self, columns)
        outputs: Features = {}
        for name, feature in columns.items():
            boundaries = self._of_column(name, columns)
            bucket = _bucket(feature, np.array(boundaries))
            outputs[name] = numbered(name, bucket, feature.schema, len(boundaries) + 1)
        return outputs

    def _of_column(self, name: str, columns: Features) -> list[float]:
        if callable(self.boundaries):
            boundaries: list[float] = of_name(
                self.label, "boundaries", self.boundaries, name, Sequence[float]
            )
            _expect_ascending(boundaries)
            return boundaries
        if not isinstance(self.boundaries, Mapping):
            return list(self.boundaries)
        unknown = [repr(key) for key in self.boundaries if key not in columns]
        require(
            name in self.boundaries and not unknown,
            f"Bucketize needs boundaries for each of {listed(columns)}. "
            f"Received: boundaries for {listed(map(repr, self.boundaries))}.",
        )
        return list(self.boundaries[name])

    def to_config(self, columns: Features) -> dict[str, Any]:
        """The boundaries as numbers."""
        if callable(self.boundaries):
            return {"boundaries": {name: self._of_column(name, columns) for name in columns}}
        return super().to_config(columns)


def _bucket(feature: Feature, boundaries: Array) -> Expression:
    if feature.schema.dtype != "uint64" or boundaries.dtype.kind != "i":
        return feature.expression.bucketize(Column(boundaries))
    # No type holds both uint64 and int64. Every value reaches the boundaries below 0.
    reached = int((boundaries < 0).sum())
    unsigned = boundaries[reached:].astype(np.uint64)
    return feature.expression.bucketize(Column(unsigned)) + reached


def _expect_ascending(boundaries: Numbers) -> None:
    integers = (n for n in boundaries if isinstance(n, int))
    require(
        all(-(2**63) <= n < 2**63 for n in integers)
        and all(a < b for a, b in pairwise(boundaries)),
        "Bucketize needs boundaries as ascending finite numbers, all different. "
        f"Received: {boundaries!r:.200}.",
    )
