"""LambdaOp: a function of the user's own, traced into the vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workflow.expressions.program import Program, build
from workflow.expressions.tree import Expression, inline, source, trace
from workflow.operator import Feature, Features, Operator, State, require
from workflow.schema import ColumnSchema, Schema, SchemaError, dtype_of


@dataclass(frozen=True)
class LambdaOp(Operator):
    """Apply a Python function to each column.

    The function is called once, with a symbolic column, and what it does is written down as an
    expression. So it is fast, it is saved without its code, and it is served as it was trained.

    Args:
        f: a function from a column to a column. It may use arithmetic, comparisons, `& | ~`,
            `workflow.where(condition, a, b)` and a column's methods such as `cast`, `clip`,
            `log1p` and `fill_null`.
        dtype: cast the result; by default it keeps the dtype that the arithmetic gives.
        tags: tags of the result, in place of the column's own.

    Example:
        >>> label = ["rating"] >> LambdaOp(lambda rating: (rating > 3).cast("int8"))
    """

    f: Callable[[Expression], Any] | Mapping[str, Program]
    dtype: str | None = None
    tags: Iterable[str] | None = None

    def __post_init__(self) -> None:
        require(
            callable(self.f) or isinstance(self.f, Mapping),
            f"LambdaOp needs a function. Received: {self.f!r}.",
        )
        if self.dtype is not None:
            dtype_of(self.dtype)

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """The function's results."""
        results: Features = {}
        for name, feature in columns.items():
            result = self._apply(name, feature.expression)
            result = result if self.dtype is None else result.cast(self.dtype)
            made = Feature.of(name, result, feature.schema)
            tags = made.schema.tags if self.tags is None else tuple(self.tags)
            results[name] = Feature(result, made.schema.with_(tags=tags))
        return results

    def _apply(self, name: str, column: Expression) -> Expression:
        if isinstance(self.f, Mapping):
            require(name in self.f, f"The saved LambdaOp knows no column {name!r}.")
            return inline(self.f[name], {name: column})[name]
        return trace(self.f, column)

    def to_config(self, columns: Features) -> dict[str, Any]:
        """The trace of each column, in place of the function."""
        traces = {}
        for name, feature in columns.items():
            column = ColumnSchema(
                name, feature.schema.dtype, feature.schema.is_list, feature.schema.nullable
            )
            result = self._apply(name, source(name, feature.expression.type))
            made = Feature.of(name, result).schema
            traces[name] = build([(made, result)], Schema([column])).to_json({})
        return {
            "f": traces,
            "dtype": self.dtype,
            "tags": None if self.tags is None else list(self.tags),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], state: State) -> LambdaOp:  # noqa: ARG003
        """The operator over its saved traces."""
        if not isinstance(config["f"], dict):
            raise SchemaError("LambdaOp is saved as traces, one for each column.")
        traces = {name: Program.from_json(document, {}) for name, document in config["f"].items()}
        return cls(traces, config["dtype"], config["tags"])
