"""DropLowCardinality: drops categories with little information."""

from __future__ import annotations

from dataclasses import dataclass

from workflow.operator.checks import require
from workflow.operator.feature import Features, State
from workflow.operator.operator import Example, Operator
from workflow.schema.tags import facts_of

from .categorify import Categorify


@dataclass(frozen=True)
class DropLowCardinality(Operator):
    """Drop the columns whose cardinality is known and too small; the others pass through.

    The cardinality is the property of this name, the rows that an embedding of the column needs, as
    Categorify sets it, including its reserved ids. Columns without it stay.

    Args:
        min_cardinality: the least value of a column's largest id for the column to stay. The
            largest id is its cardinality less 1, as NVTabular compares it; for a constant column
            Categorify makes it 3, after three reserved ids.

    Raises:
        WorkflowError: no column would stay.

    Example:
        >>> from workflow import ops
        >>> ids = ["country", "city"] >> ops.Categorify() >> DropLowCardinality()
    """

    min_cardinality: int = 4

    def _check_settings(self) -> None:
        require(
            self.min_cardinality >= 0,
            f"DropLowCardinality needs min_cardinality as a whole number from 0. "
            f"Received: {self.min_cardinality!r}.",
        )

    @classmethod
    def examples(cls) -> list[Example]:
        """Columns that stay: with a cardinality that is large enough, and without one."""
        ids = ["same", "city"] >> Categorify()
        rows = {"same": ["x", "x", None], "city": ["a", "b", None], "price": [1.5, None, 2.0]}
        return [
            Example(cls(), rows, left=[ids, "price"]),
            Example(cls(5), rows, left=[ids, "price"]),
            Example(cls(0), rows, left=[ids]),
        ]

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """The remaining columns."""
        sizes = {name: facts_of(f.schema).get("cardinality") for name, f in columns.items()}
        names = [n for n, size in sizes.items() if size is None or size - 1 >= self.min_cardinality]
        have = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        require(
            bool(names),
            f"DropLowCardinality({self.min_cardinality}) leaves no column: {have} ids. Set a smaller one.",
        )
        return {name: columns[name] for name in names}
