"""LambdaOp: a user's function, traced to verbs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from workflow.expressions.language.tree import Expression, source, where
from workflow.expressions.program.program import Program, build
from workflow.expressions.program.program_json import program_from_json, program_to_json
from workflow.expressions.program.tracing import Frame, inline, trace
from workflow.graph.traced_times import expect_alike_times
from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, Selectable, State
from workflow.operator.operator import Example, Operator
from workflow.operator.settings import AnyDType
from workflow.schema.schema import ColumnSchema, Schema

# For checkers a function of one column or of a column and a frame, so that they know a lambda's parameters.
if TYPE_CHECKING:
    Function = Callable[[Any], Any] | Callable[[Any, Any], Any]
else:
    Function = Callable[..., Any]


@dataclass(frozen=True)
class LambdaOp(Operator):
    """Apply a Python function to each column.

    `fit` calls the function with a symbolic column, and traces it to an expression. So it is fast,
    is saved without its code, and is served exactly as trained.

    Args:
        f: a function from a column to a column, or from a column and a frame of all columns,
            `lambda price, df: price / df["income"]`, to one. It may use arithmetic, comparisons, `&
            | ~`, `**`, `workflow.where(condition, a, b)`, a column's methods such as `cast`,
            `clip`, `log1p`, `isin` and `fill_null`, and numpy's functions of these names:
            `LambdaOp(np.log1p)`. Dates and times are int64, microseconds since 1970-01-01;
            different kinds, such as times with and without a zone, cannot be compared, subtracted
            or mixed.
        dependency: further columns for the frame, which the function has to take: names, or a node
            of the graph.
        dtype: cast the result; by default it keeps the dtype of the arithmetic.
        tags: tags of the result, in place of the column's own.

    Example:
        >>> label = ["rating"] >> LambdaOp(lambda rating: (rating > 3).cast("int8"))
        >>> share = ["price"] >> LambdaOp(lambda price, df: price / df["income"], dependency=["income"])
    """

    f: Function | Mapping[str, Program]
    dependency: str | Sequence[str | Selectable] | Selectable | None = None
    dtype: AnyDType | None = None
    tags: Sequence[str] | None = None

    depends_on: ClassVar[str | None] = "dependency"

    def _check_settings(self) -> None:
        if self.dependency in (None, [], ()) or not callable(self.f):
            return
        require(
            _parameters(self.f) > 1,
            "Expected a function of a column and a frame, in which dependency= puts further columns, such "
            f'as lambda price, df: price / df["income"]. Received: dependency={self.dependency!r:.200} for a '
            "function of a column alone. Let it take the frame, without a default, or leave dependency out.",
        )

    @classmethod
    def examples(cls) -> list[Example]:
        """Typical functions: labels, logarithms, conditions, over scalars and lists."""
        ratings = {"rating": [5.0, 3.0, None, float("nan"), float("inf")]}
        counts = {"count": [0, 10, -7, None], "wide": [2**62, 1, None, -(2**62)]}
        lists = {"scores": [[1.0, None], [], None, [float("nan"), -4.0]]}
        pairs = {"price": [1.0, None, 3.0, 4.0], "income": [2.0, 0.0, None, -1.0]}
        return [
            Example(cls(lambda c, df: c / df["income"], "income"), pairs, left=["price"]),
            Example(cls(lambda c, df: where(df.price > c, c, df.price)), pairs),
            Example(cls(lambda c: (c > 3).cast("int8"), tags=["target"]), ratings),
            Example(cls(lambda c: where(c > 0, c, 0).log1p() / 7, dtype="float32"), counts),
            Example(cls(lambda c: c.fill_null(-1).clip(-5, 5) * 2 + 1), counts),
            Example(cls(lambda c: where(c % -7 == 0, c // 10, c.hash_bucket(60))), counts),
            Example(cls(lambda c: abs(c).sqrt()), lists),
            Example(cls(lambda c: c**2 + c.round(1)), lists),
            Example(cls(lambda c: c**3 - c.isin([10, -7]).cast("int8")), counts),
            Example(cls(np.sin, dtype="float32"), ratings),
            Example(cls(lambda c: c.isin([3, -0.5, math.inf, *range(40, 99)])), ratings),
            Example(cls(lambda c: c.isin(["a", "d"])), {"city": ["a", None, "b", ""]}),
            Example(cls(lambda c: c.list_length()), lists),
            Example(cls(lambda c: (c == "a") | c.is_null()), {"city": ["a", None, "b", ""]}),
        ]

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """The function's results."""
        expressions = {name: feature.expression for name, feature in columns.items()}
        results: Features = {}
        for name in self.own_columns(columns):
            result = self._apply(name, expressions)
            result = result if self.dtype is None else result.cast(self.dtype)
            output = Feature.of(name, result, _like(columns[name], result))
            tags = output.schema.tags if self.tags is None else tuple(self.tags)
            results[name] = Feature(result, output.schema.with_(tags=tags))
        return results

    def _apply(self, name: str, columns: Mapping[str, Expression]) -> Expression:
        if isinstance(self.f, Mapping):
            require(name in self.f, f"The saved LambdaOp knows no column {name!r}.")
            return inline(self.f[name], columns)[name]
        if (count := _parameters(self.f)) > 1:
            require(
                count == 2,
                "Expected a function of a column, or of a column and a frame of all columns. "
                f"Received: one of {count} arguments. Take further columns from the frame: "
                'lambda price, df: price / df["income"].',
            )
            frame = Frame(columns, 'Name further ones in dependency=["a", "b"].')
            return trace(self.f, columns[name], frame)
        return trace(self.f, columns[name])

    def to_config(self, columns: Features) -> dict[str, Any]:
        """The trace of each column, in place of the function."""
        sources = {n: source(n, feature.expression.type) for n, feature in columns.items()}
        inputs = Schema(Feature.of(n, column).schema for n, column in sources.items())
        times = [Feature(sources[n], f.schema) for n, f in columns.items() if f.schema.is_time]
        traces = {}
        for name in self.own_columns(columns):
            result = self._apply(name, sources)
            if callable(self.f):  # a saved trace was checked before, and no longer has no-op casts
                expect_alike_times(result, times)
            program = build([(Feature.of(name, result).schema, result)], inputs)
            traces[name] = program_to_json(program)
        return {**super().to_config(columns), "f": traces}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], state: State) -> LambdaOp:  # noqa: ARG003
        """The operator over its saved traces."""
        traces = {name: program_from_json(document) for name, document in config["f"].items()}
        for name, program in traces.items():
            require(
                program.output_schema.names == [name],
                f"Expected the trace of column {name!r}. Received: {program.inputs} to {program.output_schema}.",
            )
        return cls(**{**config, "f": traces})


def _like(column: Feature, result: Expression) -> ColumnSchema:
    """Schema of the result: row lengths are the column's if the elements correspond."""
    if result.root == column.expression.root:
        return column.schema
    rest = {k: v for k, v in column.schema.properties.items() if k != "value_count"}
    return column.schema.with_(properties=rest)


def _parameters(function: Callable[..., Any]) -> int:
    """The number of columns a function takes; builtins without a signature take one."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is inspect.Parameter.empty for p in parameters)
