"""FillMissing: replaces nulls by a fixed value."""

from __future__ import annotations

from dataclasses import dataclass

from workflow.errors import WorkflowError
from workflow.expressions.language.tree import Expression
from workflow.operator.feature import Feature, Features, State
from workflow.operator.operator import Example, Operator

from ._filling import facts_with, filled_column


@dataclass(frozen=True)
class FillMissing(Operator):
    """Replace nulls by a value; NaN in the data is null.

    A NaN that an operator before it computes, as `LogOp` does of -2, stays NaN: put `Clip` before
    that operator.

    Ids stay ids, with their `cardinality`, unless the value is not an id.

    Args:
        fill_val: the value, a finite number (NaN would count as missing); it keeps the column's
            dtype.
        add_binary_cols: also make `<column>_filled`, bool, True where a value was missing. It has
            the column's tags; a network that takes floats needs it cast.

    Raises:
        WorkflowError: the column's dtype does not hold the value.

    Lists: null elements are filled; a null list has become an empty list before this operator.

    Example:
        >>> filled = ["age"] >> FillMissing(0, add_binary_cols=True)
    """

    fill_val: bool | float | str = 0
    add_binary_cols: bool = False

    @classmethod
    def examples(cls) -> list[Example]:
        """Every kind of column, with and without the indicator."""
        numbers = {"age": [31, None, 7], "price": [1.5, None, float("nan")]}
        lists = {"scores": [[1.0, None], None, [], [float("nan"), 2.0]]}
        return [
            Example(cls(), numbers),
            Example(cls(-1, add_binary_cols=True), numbers, {"age": [None], "price": [None]}),
            Example(cls("?"), {"city": ["a", None, ""], "tags": [["x", None], None, []]}),
            Example(cls(fill_val=True), {"flag": [True, None, False]}),
            Example(cls(0.5, add_binary_cols=True), lists),
        ]

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """The columns without nulls."""
        filled: Features = {}
        for feature in columns.values():
            value = self._filled(feature)
            facts = facts_with(feature.schema, self.fill_val)
            filled |= filled_column(
                feature, value, columns, indicator=self.add_binary_cols, facts=facts
            )
        return filled

    def _filled(self, feature: Feature) -> Expression:
        column, filling = feature.expression, self.fill_val
        dtype, kind = column.type.dtype, column.type.kind
        remedy = f"Choose one, such as { ({'bool': True, 'string': ''}.get(kind, 0))!r}"
        if isinstance(filling, str) == (kind == "string"):
            value = column.fill_null(filling)
            if (wider := value.type.dtype) == dtype:
                return value
            cast = f'LambdaOp(lambda c: c.cast("{wider}"))'
            remedy += f", or cast the column before: {cast} >> {self.label}({filling!r})"
        raise WorkflowError(
            f"Expected a value of {dtype}, the dtype of column {feature.schema.name!r}. "
            f"Received: {filling!r}. {remedy}."
        )
