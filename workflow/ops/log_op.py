"""LogOp: the logarithm of 1 + x."""

from __future__ import annotations

from dataclasses import dataclass

from workflow.operator.feature import Feature, Features, State
from workflow.operator.operator import Example, Operator
from workflow.schema.schema import Tags

from ._numbers import expect_numbers


@dataclass(frozen=True)
class LogOp(Operator):
    """log(1 + x), float32.

    Computed in float64 and rounded once, so that small values keep their digits. -1 becomes -inf
    and lesser values NaN: put `Clip(min_value=0)` before it if such values can occur. Null stays
    null. Applies to each element of a list.

    Raises:
        WorkflowError: a column that does not hold numbers.

    Example:
        >>> logs = ["price"] >> LogOp()
    """

    @classmethod
    def examples(cls) -> list[Example]:
        """Counts, tiny and huge values, values without a logarithm, and lists."""
        numbers = {"count": [0, 1, None, 2**62], "price": [1e-12, 0.5, None, 1e300]}
        return [
            Example(cls(), numbers, {"count": [-1, -7], "price": [-1.0, float("inf")]}),
            Example(cls(), {"scores": [[1.0, None], [], None, [float("nan"), -0.5]]}),
        ]

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """The logarithms."""
        expect_numbers(self, columns)
        outputs: Features = {}
        for name, feature in columns.items():
            logarithm = feature.expression.log1p().cast("float32")
            outputs[name] = Feature.of(name, logarithm, feature.schema, tags=(Tags.CONTINUOUS,))
        return outputs
