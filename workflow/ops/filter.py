"""Filter: the rows that meet a condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from workflow.expressions.language.tree import Expression
from workflow.expressions.program.program import Program, build
from workflow.expressions.program.program_json import program_from_json, program_to_json
from workflow.expressions.program.tracing import Frame, inline, trace
from workflow.graph.row_set import schema_of, sources_of
from workflow.graph.traced_times import expect_alike_times
from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, State
from workflow.operator.frame_operator import RowFilter
from workflow.operator.operator import Example
from workflow.schema.schema import ColumnSchema, Schema

CONDITION = "condition"


@dataclass(frozen=True)
class Filter(RowFilter):
    """Keep the rows that meet a condition; rows for which it is null are dropped.

    `fit` calls the function with a symbolic frame, and traces it to an expression, as in LambdaOp.
    All columns that are needed later go through the filter: columns from before it have other rows.
    A server does not drop rows, so a workflow with a filter before a served column cannot be
    exported.

    Args:
        f: a function from a frame to a condition: `df["age"]` is a column, with the same operations
            as in LambdaOp's functions.

    Example:
        >>> adults = ["userId", "age"] >> Filter(lambda df: (df["age"] >= 18) & ~df["userId"].is_null())
        >>> ids = adults["userId"]
    """

    f: Callable[[Frame], Any] | Mapping[str, Program]

    def _check_settings(self) -> None:
        require(
            callable(self.f) or set(self.f) == {CONDITION},
            f"Filter needs a function from a frame to a condition. Received: {self.f!r}.",
        )

    @classmethod
    def examples(cls) -> list[Example]:
        """Conditions over numbers, strings, nulls and lists."""
        rows = {
            "age": [31, None, 7, 99],
            "city": ["a", "b", None, "a"],
            "genres": [["x"], [], None, ["y", None]],
        }
        return [
            Example(cls(lambda df: df["age"] > 18), rows),
            Example(cls(lambda df: (df.city == "a") | df["age"].is_null()), rows),
            Example(cls(lambda df: df["genres"].list_length() > 0), rows),
        ]

    def frame_schema(self, columns: Schema) -> Schema:
        """The same columns, after a check of the condition."""
        self.condition(columns)
        return columns

    def needs(self, columns: Schema) -> set[str]:
        """The columns of the condition."""
        return set(self.condition(columns).inputs)

    def condition(self, columns: Schema) -> Program:
        """The function's trace."""
        sources = sources_of(columns)
        condition = self._trace(sources)
        if callable(self.f):  # a saved trace was checked before, and no longer has no-op casts
            expect_alike_times(condition, (Feature(sources[c.name], c) for c in columns.columns))
        type_ = condition.type
        require(
            type_.kind == "bool" and not type_.is_list,
            f"Filter needs a condition, one bool for each row. Received: {condition!r:.200}, {type_}.",
        )
        return build(
            [(ColumnSchema(CONDITION, "bool", nullable=type_.nullable), condition)], columns
        )

    def _trace(self, columns: Mapping[str, Expression]) -> Expression:
        if callable(self.f):
            return trace(self.f, Frame(columns))
        return inline(self.f[CONDITION], columns)[CONDITION]

    def to_config(self, columns: Features) -> dict[str, Any]:
        """The trace, in place of the function."""
        return {"f": {CONDITION: program_to_json(self.condition(schema_of(columns)))}}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], state: State) -> Filter:  # noqa: ARG003
        """The operator over its saved trace."""
        return cls({name: program_from_json(document) for name, document in config["f"].items()})
