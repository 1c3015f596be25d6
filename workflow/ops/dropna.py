"""Dropna: the rows without missing values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from workflow.expressions.program.program import Program, build
from workflow.graph.row_set import sources_of
from workflow.graph.selection import one_or_several
from workflow.operator.checks import require
from workflow.operator.frame_operator import RowFilter
from workflow.operator.operator import Example
from workflow.schema.names import listed
from workflow.schema.schema import ColumnSchema, Schema


@dataclass(frozen=True)
class Dropna(RowFilter):
    """Drop the rows in which a column is null or, for a float, NaN.

    All columns that are needed later go through it. A list column is checked only if `subset` names
    it, and then its empty lists count as missing too, because empty and null lists are not
    distinguished. A server does not drop rows, so a workflow with this operator before a served
    column cannot be exported.

    Args:
        subset: the columns to check; by default all that are not lists.

    Example:
        >>> complete = ["userId", "age"] >> Dropna()
    """

    subset: str | Sequence[str] | None = None

    def _check_settings(self) -> None:
        if self.subset is not None:
            names = one_or_several(self.subset)
            require(bool(names), f"Dropna needs names in subset. Received: {self.subset!r}.")
            object.__setattr__(self, "subset", names)

    @classmethod
    def examples(cls) -> list[Example]:
        """Nulls, NaN, and lists, checked or not."""
        rows = {
            "age": [31, None, 7, 99],
            "price": [0.5, 1.0, float("nan"), float("inf")],
            "genres": [["x"], [], None, ["y", None]],
        }
        return [Example(cls(), rows), Example(cls(["genres", "age"]), rows)]

    def frame_schema(self, columns: Schema) -> Schema:
        """The same columns; the checked ones are not nullable."""
        looked_at = self.needs(columns)
        require(
            bool(looked_at),
            f"Dropna checks only named lists: Dropna(subset=[...]). Received: {listed(columns)}.",
        )
        return Schema(
            c.with_(nullable=False) if c.name in looked_at and not c.is_list else c
            for c in columns.columns
        )

    def condition(self, columns: Schema) -> Program:
        """True if nothing is missing."""
        sources = sources_of(columns.select(n for n in columns if n in self.needs(columns)))
        there = [s.list_length() > 0 if s.type.is_list else ~s.is_null() for s in sources.values()]
        complete = ColumnSchema("complete", "bool", nullable=False)
        return build([(complete, reduce(and_, there))], columns)

    def needs(self, columns: Schema) -> set[str]:
        """The checked columns."""
        if self.subset is None:
            return {column.name for column in columns.columns if not column.is_list}
        return {columns[name].name for name in self.subset}
