"""The Polars interpreter: fit and transform, streaming on the CPU or through cuDF on the GPU.

Every step becomes a Polars expression; there are no joins, so rows keep their order and a file of
any size streams through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl

from workflow.expressions.language.types import Type, promote
from workflow.expressions.language.verbs import VERBS as LANGUAGE
from workflow.expressions.language.verbs import of_every_verb
from workflow.expressions.numpy.verbs import bounds
from workflow.expressions.program.program import Program, Step
from workflow.schema.column import Array
from workflow.schema.dtypes import DTYPES
from workflow.schema.schema import ColumnSchema

from .buckets import bucketize, concatenate, fingerprint, hash_value
from .lists import list_length, list_pad, list_slice
from .series import in_numpy, microseconds, polars_dtype
from .tables import gather, lookup

Compile = Callable[[Step, Sequence[Type], list[pl.Expr]], pl.Expr]


def expressions(
    program: Program,
    verbs: Mapping[str, Compile] | None = None,
    made_before: Collection[str] = (),
) -> list[pl.Expr]:
    """The program's outputs as Polars expressions over a frame of its inputs.

    A step is repeated in the expressions each time it is used: `stages.compile_stages` makes
    columns of steps that are used more than once, and of elements of lists.

    Args:
        program: the program to run on each row, without computations on the elements of lists.
        verbs: Polars expressions of verbs, where they differ from `VERBS`.
        made_before: inputs that such expressions have computed, in which NaN is not null, unlike in
            data.
    """
    verbs = VERBS if verbs is None else verbs
    results: list[pl.Expr] = []
    for step in program.steps:  # in order, so that depth needs no recursion
        types = [program.steps[o].type for o in step.operands]
        if step.verb == "source" and step.parameters["name"] in made_before:
            results.append(pl.col(step.parameters["name"]))
        else:
            operands = [results[o] for o in step.operands]
            results.append(step_expression(program, step, types, operands, verbs))
    return [results[step].alias(column.name) for column, step in program.outputs]


def step_expression(
    program: Program,
    step: Step,
    types: Sequence[Type],
    operands: list[pl.Expr],
    verbs: Mapping[str, Compile],
) -> pl.Expr:
    """One step over the expressions of its operands, for whole rows or for elements."""
    if step.verb == "source":
        return source_expression(program.inputs[step.parameters["name"]])
    if step.verb == "constant":
        return pl.lit(step.parameters["value"], polars_dtype(step.type.dtype))
    return verbs[step.verb](step, types, operands)


def source_expression(column: ColumnSchema) -> pl.Expr:
    """A column of the data as a program takes it: of its dtype, NaN as null, a null list as empty."""
    expression = pl.col(column.name)
    if column.is_time:
        expression = microseconds(expression, is_list=column.is_list)
    else:
        expression = expression.cast(polars_dtype(column.dtype, is_list=column.is_list))
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


def _divide(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    dtype = polars_dtype(step.type.dtype)
    a, b = (operand.cast(dtype) for operand in operands)
    if types[1].value is None:
        return a / b
    # Polars divides by a scalar by multiplying with its reciprocal, so that 49 / 49 is below 1.
    divisor = np.array(types[1].value, types[1].dtype).astype(step.type.dtype)
    return a.map_batches(partial(_quotients, divisor), return_dtype=dtype, is_elementwise=True)


def _quotients(divisor: Array, values: pl.Series) -> pl.Series:
    with np.errstate(all="ignore"):
        return in_numpy(lambda numbers: numbers / divisor, values)


def _transcendental(function: Callable[..., pl.Expr]) -> Compile:
    """Computed in float64 and rounded once: libraries differ by several ulp in float32."""
    return lambda step, _, operands: function(*(o.cast(pl.Float64) for o in operands)).cast(
        polars_dtype(step.type.dtype)
    )


def _power(base: pl.Expr, exponent: pl.Expr) -> pl.Expr:
    # Polars takes the square root for a scalar 0.5, which differs for -inf and -0.0: not a scalar.
    return base.pow(pl.when(base.is_not_null()).then(exponent))


def _comparison(function: Callable[..., pl.Expr], guard: int, verb: str) -> Compile:
    """Polars ranks NaN above all and equal to itself; in IEEE 754 every such comparison is False.

    Args:
        function: compares.
        guard: the operand that must not be NaN for Polars' result to match IEEE 754.
        verb: its name.
    """
    mirrored = LANGUAGE[verb].mirrored

    def compile_(step: Step, types: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
        if types[0].value is not None and types[1].value is None:
            # Polars 1.44 loses rows if a constant comes first and no row has a value from a table.
            return VERBS[mirrored](step, types[::-1], operands[::-1])
        operands = _common(step, types, operands)
        answer = function(*operands)
        if DTYPES[promote(step.verb, types)].kind != "float":
            return answer
        # Null and False would be False, so only results that are not null are corrected.
        return pl.when(answer.is_not_null()).then(answer & operands[guard].is_not_nan())

    return compile_


def _negate(step: Step, _: Sequence[Type], operands: list[pl.Expr]) -> pl.Expr:
    # Polars cannot negate unsigned integers; numpy wraps around.
    return 0 - operands[0] if step.type.kind == "uint" else -operands[0]


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
    dtype = step.type.dtype
    a, b = (
        o if t.dtype == dtype else o.cast(polars_dtype(dtype))
        for o, t in zip(operands, types, strict=True)
    )
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
    lower, upper = bounds(step)
    # In two steps: bounds between two integers cross, and Polars does not define which wins.
    return operands[0].clip(lower, None).clip(None, upper)


VERBS: Mapping[str, Compile] = of_every_verb(
    "polars",
    {
        "add": _arithmetic(lambda a, b: a + b),
        "subtract": _arithmetic(lambda a, b: a - b),
        "multiply": _arithmetic(lambda a, b: a * b),
        "minimum": _extreme(lambda a, b: a < b),
        "maximum": _extreme(lambda a, b: a > b),
        "floor_divide": _arithmetic(lambda a, b: a // b),
        "modulo": _arithmetic(lambda a, b: a % b),
        "negate": _negate,
        "absolute": _arithmetic(lambda a: a.abs()),
        "divide": _divide,
        "log1p": _transcendental(lambda a: a.log1p()),
        "log": _transcendental(lambda a: a.log()),
        "exp": _transcendental(lambda a: a.exp()),
        "sin": _transcendental(lambda a: a.sin()),
        "cos": _transcendental(lambda a: a.cos()),
        "tanh": _transcendental(lambda a: a.tanh()),
        "power": _transcendental(_power),
        "sqrt": _real(lambda a: a.sqrt()),
        "floor": _real(lambda a: a.floor()),
        "ceil": _real(lambda a: a.ceil()),
        "round": _real(lambda a: a.round(mode="half_to_even")),
        "equal": _comparison(lambda a, b: a == b, 0, "equal"),
        "not_equal": _not_equal,
        "less": _comparison(lambda a, b: a < b, 1, "less"),
        "less_equal": _comparison(lambda a, b: a <= b, 1, "less_equal"),
        "greater": _comparison(lambda a, b: a > b, 0, "greater"),
        "greater_equal": _comparison(lambda a, b: a >= b, 0, "greater_equal"),
        "logical_and": lambda _, __, o: o[0] & o[1],
        "logical_or": lambda _, __, o: o[0] | o[1],
        "logical_xor": lambda _, __, o: o[0] ^ o[1],
        "logical_not": lambda _, __, o: ~o[0],
        "is_null": lambda _, __, o: o[0].is_null(),
        "fill_null": _fill_null,
        "where": _where,
        "cast": _cast,
        "clip": _clip,
        "hash": hash_value,
        "fingerprint64": fingerprint,
        "fingerprint_cat64": concatenate,
        "lookup": lookup,
        "gather": gather,
        "bucketize": bucketize,
        "list_length": list_length,
        "list_slice": list_slice,
        "list_pad": list_pad,
        # Over elements, for which stages.py has repeated the rows.
        "repeat_as": lambda _, __, o: o[0],
    },
)
