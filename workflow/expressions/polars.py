"""The polars interpreter: fit and transform, streaming on the CPU or through cuDF on the GPU.

Every step becomes a Polars expression; nothing is joined, so rows keep their order and a file
of any size streams through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from workflow.schema import DTYPES, ColumnSchema

from .column import Array, Column, Strings
from .lookup import direct_table, sorted_table
from .numpy import bounds
from .program import Program, Step
from .series import polars_dtype, to_series
from .verbs import ExpressionError, Type, promote

Compile = Callable[[Step, Sequence[Type], list[pl.Expr]], pl.Expr]


def apply(frame: pl.LazyFrame, program: Program) -> pl.LazyFrame:
    """A frame of the program's outputs, rows in the order of the given frame's."""
    compiler = _Compiler(program)
    return frame.select(
        compiler.expression(step).alias(column.name) for column, step in program.outputs
    )


class _Compiler:
    def __init__(self, program: Program) -> None:
        self.program = program
        self._made: dict[int, pl.Expr] = {}

    def expression(self, number: int) -> pl.Expr:
        if number not in self._made:
            self._made[number] = self._compile(number)
        return self._made[number]

    def _compile(self, number: int) -> pl.Expr:
        step = self.program.steps[number]
        if step.verb == "source":
            return _source(self.program.inputs[step.parameters["name"]])
        if self._is_list_chain(step):
            root = self._root(number)
            return self.expression(root).list.eval(self._element(number, root))
        return self._apply(step, [self.expression(o) for o in step.operands])

    def _apply(self, step: Step, operands: list[pl.Expr]) -> pl.Expr:
        if step.verb == "constant":
            return pl.lit(step.parameters["value"], polars_dtype(step.type.dtype))
        return VERBS[step.verb](step, [self.program.steps[o].type for o in step.operands], operands)

    def _is_list_chain(self, step: Step) -> bool:
        """Whether a step works on the elements of lists that are there already."""
        return any(self.program.steps[o].type.is_list for o in step.operands) and step.type.is_list

    def _root(self, number: int) -> int:
        """The one list column whose elements a chain of steps works on."""
        roots, todo = set(), [number]
        while todo:
            step = self.program.steps[current := todo.pop()]
            if not self._is_list_chain(step):
                if step.verb != "constant":
                    roots.add(current)
            else:
                todo += step.operands
        if len(roots) != 1:
            raise ExpressionError(
                "A list column cannot meet another column element by element, only constants."
            )
        return roots.pop()

    def _element(self, number: int, root: int) -> pl.Expr:
        if number == root:
            return pl.element()
        step = self.program.steps[number]
        return self._apply(step, [self._element(o, root) for o in step.operands])


def _source(column: ColumnSchema) -> pl.Expr:
    expression = pl.col(column.name).cast(polars_dtype(column.dtype, is_list=column.is_list))
    if column.is_list:
        if column.info.kind == "float":
            expression = expression.list.eval(pl.element().fill_nan(None))
        return expression.fill_null([])
    return expression.fill_nan(None) if column.info.kind == "float" else expression


def _common(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> list[pl.Expr]:
    dtype = polars_dtype(promote(step.verb, types))
    return [
        o if t.dtype == promote(step.verb, types) else o.cast(dtype)
        for o, t in zip(operands, types, strict=True)
    ]


def _arithmetic(function: Callable[..., pl.Expr]) -> Compile:
    return lambda step, types, operands: function(*_common(step, types, operands))


def _real(function: Callable[..., pl.Expr]) -> Compile:
    return lambda step, _, operands: function(
        *(o.cast(polars_dtype(step.type.dtype)) for o in operands)
    )


def _comparison(function: Callable[..., pl.Expr], guards: Sequence[int]) -> Compile:
    """Polars ranks NaN above all and equal to itself; IEEE 754 says every such answer is False.

    `guards` are the operands that must not be NaN for Polars' answer to be IEEE's.
    """

    def compile_(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
        operands = _common(step, types, operands)
        answer = function(*operands)
        if DTYPES[promote(step.verb, types)].kind == "float":
            for guard in guards:
                answer = answer & operands[guard].is_not_nan()
        return answer

    return compile_


def _not_equal(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    return ~VERBS["equal"](step, types, operands)


def _extreme(keep_left: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Compile:
    def compile_(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
        a, b = _common(step, types, operands)
        chosen = pl.when(keep_left(a, b)).then(a).otherwise(b)
        if DTYPES[promote(step.verb, types)].kind == "float":
            chosen = pl.when(a.is_nan()).then(a).when(b.is_nan()).then(b).otherwise(chosen)
        return pl.when(a.is_not_null() & b.is_not_null()).then(chosen)

    return compile_


def _where(step: Step, _: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    condition, a, b = operands
    dtype = polars_dtype(step.type.dtype)
    return pl.when(condition).then(a.cast(dtype)).when(condition.is_not_null()).then(b.cast(dtype))


def _fill_null(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    a, b = _common(step, types, operands)
    return a.fill_null(b)


def _cast(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    value, have, want = operands[0], DTYPES[types[0].dtype], DTYPES[step.type.dtype]
    target = polars_dtype(want.name)
    if have is want:
        return value
    if want.kind == "bool":
        return (value != 0) & value.is_not_nan() if have.kind == "float" else value != 0
    if not want.is_integer or have.kind == "bool" or np.can_cast(have.numpy, want.numpy):
        return value.cast(target)
    limits = np.iinfo(want.numpy)
    if have.is_integer:
        own = np.iinfo(have.numpy)
        return value.clip(max(limits.min, own.min), min(limits.max, own.max)).cast(target)
    top = value >= float(limits.max)
    inside = pl.when(top | value.is_nan()).then(0.0).otherwise(value).clip(float(limits.min), None)
    whole = inside.cast(target, strict=False)
    largest = pl.lit(int(limits.max), target)
    return (
        pl.when(value.is_null())
        .then(None)
        .when(top & value.is_not_nan())
        .then(largest)
        .otherwise(whole)
    )


def _clip(step: Step, _: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    return operands[0].clip(*bounds(step))


def _lookup(step: Step, _: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    value, keys = operands[0], step.parameters["keys"]
    first, missing = step.parameters["first"], step.parameters["missing"]
    if keys.rows == 0:
        return pl.when(value.is_not_null()).then(pl.lit(missing, pl.Int64))
    if isinstance(keys.values, Strings):
        results = pl.Series(np.arange(first, first + keys.rows))
        found = value.replace_strict(
            to_series(keys), results, default=missing, return_dtype=pl.Int64
        )
        return pl.when(value.is_not_null()).then(found)
    return _lookup_integer(value, keys.values, first, missing)


def _lookup_integer(value: pl.Expr, keys: Array, first: int, missing: int) -> pl.Expr:
    direct = direct_table(keys, first, missing)
    if direct is not None:
        table, low, high = direct
        return pl.lit(pl.Series(table)).gather(
            value.clip(*_in_range(low, high, keys.dtype)).cast(pl.Int64) - low
        )
    if keys.dtype == bool:
        keys, value = keys.astype(np.uint8), value.cast(pl.UInt8)
    ordered, results = sorted_table(keys, first)
    literal = pl.lit(pl.Series(ordered))
    place = literal.search_sorted(value).clip(0, len(ordered) - 1)
    hit = literal.gather(place) == value
    found = (
        pl.when(hit)
        .then(pl.lit(pl.Series(results)).gather(place))
        .otherwise(pl.lit(missing, pl.Int64))
    )
    return pl.when(value.is_not_null()).then(found)


def _in_range(low: int, high: int, dtype: np.dtype[Any]) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return max(low, limits.min), min(high, limits.max)


def _gather(step: Step, _: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    table: Column = step.parameters["table"]
    position = pl.when((operands[0] >= 0) & (operands[0] < table.rows)).then(operands[0])
    gathered = pl.lit(to_series(table)).gather(position)
    return gathered.fill_null([]) if table.is_list else gathered


VERBS: Mapping[str, Compile] = {
    "add": _arithmetic(lambda a, b: a + b),
    "subtract": _arithmetic(lambda a, b: a - b),
    "multiply": _arithmetic(lambda a, b: a * b),
    "minimum": _extreme(lambda a, b: a < b),
    "maximum": _extreme(lambda a, b: a > b),
    "negate": _arithmetic(lambda a: -a),
    "absolute": _arithmetic(lambda a: a.abs()),
    "divide": _real(lambda a, b: a / b),
    "log1p": _real(lambda a: a.log1p()),
    "log": _real(lambda a: a.log()),
    "exp": _real(lambda a: a.exp()),
    "sqrt": _real(lambda a: a.sqrt()),
    "floor": _real(lambda a: a.floor()),
    "ceil": _real(lambda a: a.ceil()),
    "equal": _comparison(lambda a, b: a == b, [0]),
    "not_equal": _not_equal,
    "less": _comparison(lambda a, b: a < b, [1]),
    "less_equal": _comparison(lambda a, b: a <= b, [1]),
    "greater": _comparison(lambda a, b: a > b, [0]),
    "greater_equal": _comparison(lambda a, b: a >= b, [0]),
    "logical_and": lambda _, __, o: o[0] & o[1],
    "logical_or": lambda _, __, o: o[0] | o[1],
    "logical_xor": lambda _, __, o: o[0] ^ o[1],
    "logical_not": lambda _, __, o: ~o[0],
    "is_null": lambda _, __, o: o[0].is_null(),
    "fill_null": _fill_null,
    "where": _where,
    "cast": _cast,
    "clip": _clip,
    "lookup": _lookup,
    "gather": _gather,
    "list_length": lambda _, __, o: o[0].list.len().cast(pl.Int64),
}
