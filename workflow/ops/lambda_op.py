"""LambdaOp: a function of the user's own, traced into the vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workflow.expressions.column import Array
from workflow.expressions.program import Program, build
from workflow.expressions.tracing import inline, trace
from workflow.expressions.tree import Expression, source, where
from workflow.operator import Example, Feature, Features, Operator, State, require
from workflow.schema import ColumnSchema, Schema, dtype_of


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
    tags: Sequence[str] | None = None

    def __post_init__(self) -> None:
        require(
            callable(self.f) or isinstance(self.f, Mapping),
            f"LambdaOp needs a function. Received: {self.f!r}.",
        )
        if self.dtype is not None:
            object.__setattr__(self, "dtype", dtype_of(self.dtype).name)
        if self.tags is not None:
            tags = [] if isinstance(self.tags, str) else list(self.tags)
            require(
                all(isinstance(tag, str) for tag in tags) and not isinstance(self.tags, str),
                f"LambdaOp needs a list of tags. Received: {self.tags!r}.",
            )
            object.__setattr__(self, "tags", [str(getattr(tag, "value", tag)) for tag in tags])

    @classmethod
    def examples(cls) -> list[Example]:
        """What people write: labels, logarithms, conditions, over scalars and lists."""
        ratings = {"rating": [5.0, 3.0, None, float("nan"), float("inf")]}
        counts = {"count": [0, 10, -7, None], "wide": [2**62, 1, None, -(2**62)]}
        lists = {"scores": [[1.0, None], [], None, [float("nan"), -4.0]]}
        return [
            Example(cls(lambda c: (c > 3).cast("int8"), tags=["target"]), ratings),
            Example(cls(lambda c: where(c > 0, c, 0).log1p() / 7, dtype="float32"), counts),
            Example(cls(lambda c: c.fill_null(-1).clip(-5, 5) * 2 + 1), counts),
            Example(cls(lambda c: abs(c).sqrt()), lists),
            Example(cls(lambda c: c.list_length()), lists),
            Example(cls(lambda c: (c == "a") | c.is_null()), {"city": ["a", None, "b", ""]}),
        ]

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
            tables: dict[str, Array] = {}
            traces[name] = build([(made, result)], Schema([column])).to_json(tables)
            require(
                not tables,
                f"LambdaOp saves no tables, and its function uses one on column {name!r}. Write an operator.",
            )
        return {**super().to_config(columns), "f": traces}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], state: State) -> LambdaOp:  # noqa: ARG003
        """The operator over its saved traces."""
        traces = {name: Program.from_json(document, {}) for name, document in config["f"].items()}
        for name, program in traces.items():
            require(
                program.output_schema.names == [name] and set(program.inputs) <= {name},
                f"Expected the trace of column {name!r}. Received: {program.inputs} to {program.output_schema}.",
            )
        return cls(traces, config["dtype"], config["tags"])
