"""Dropna: the rows without a missing value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from workflow.frame_operator import FrameOperator
from workflow.operator import Example, require
from workflow.schema import Schema
from workflow.selection import one_or_several


@dataclass(frozen=True)
class Dropna(FrameOperator):
    """Drop the rows in which a column is null or, for a float, NaN.

    All columns that are wanted afterwards go through it. A list column goes through and is looked
    at only where `subset` names it, and then its empty lists are missing too: an empty list and
    a null one are the same here. Rows are not dropped in a server, so a workflow with this on the
    way to a served column cannot be exported.

    Args:
        subset: the columns to look at; by default all that are no lists.

    Example:
        >>> complete = ["userId", "age"] >> Dropna()
    """

    subset: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.subset is not None:
            names = one_or_several(self.subset)
            require(
                bool(names) and all(isinstance(name, str) for name in names),
                f"Dropna needs a list of names in `subset`. Received: {self.subset!r}.",
            )
            object.__setattr__(self, "subset", names)

    @classmethod
    def examples(cls) -> list[Example]:
        """Nulls, NaN, and lists that are looked at and not."""
        rows = {
            "age": [31, None, 7, 99],
            "price": [0.5, 1.0, float("nan"), float("inf")],
            "genres": [["x"], [], None, ["y", None]],
        }
        return [Example(cls(), rows), Example(cls(["genres", "age"]), rows)]

    def frame_schema(self, columns: Schema) -> Schema:
        """The columns as they are, those that were looked at without nulls."""
        looked_at = self.needs(columns)
        require(
            bool(looked_at),
            f"Dropna looks at lists only where they are named: Dropna(subset=[...]). Received: {', '.join(columns)}.",
        )
        return Schema(
            c.with_(nullable=False) if c.name in looked_at and not c.is_list else c
            for c in columns.columns
        )

    def transform_frame(self, frame: pl.LazyFrame, columns: Schema) -> pl.LazyFrame:
        """The rows without a missing value."""
        names = [name for name in columns if name in self.needs(columns)]
        return frame.filter(
            pl.col(n).list.len() > 0 if columns[n].is_list else pl.col(n).is_not_null()
            for n in names
        )

    def needs(self, columns: Schema) -> set[str]:
        """The columns that are looked at."""
        if self.subset is None:
            return {column.name for column in columns.columns if not column.is_list}
        return {columns[name].name for name in self.subset}
