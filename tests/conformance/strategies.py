"""Data and programs for the verbs: every dtype a verb takes, its extremes, nulls, lists."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st
from interpreters import INEXACT, UNSIGNED_ZERO
from verb_cases import make_column

from workflow.expressions.language.tree import Expression, call, source
from workflow.expressions.language.types import ExpressionError, Type
from workflow.expressions.language.verbs import ELEMENTWISE, VERBS
from workflow.expressions.program.program import Program, build
from workflow.schema.column import Column, Strings
from workflow.schema.dtypes import DTYPES
from workflow.schema.schema import ColumnSchema, Schema

# Mostly some rows with nulls: of the values of a mask that is wrong few show it.
ROWS = st.sampled_from([6, 5, 4, 3, 2, 1, 0])
NULLABLE = st.sampled_from([True, True, False])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


def _special(dtype: str) -> list[Any]:
    info = DTYPES[dtype]
    if info.kind == "bool":
        return [False, True]
    if info.kind == "string":
        return ["", "a", "b", "é", "\0", "日本"]
    if info.kind == "float":
        limits = np.finfo(info.numpy)
        edges = [np.nan, np.inf, -np.inf, float(limits.max), float(limits.min), float(limits.tiny)]
        return [*edges, 0.0, -0.0, 0.5, 1.0, -1.0, 127.5, 2.0**31, 2.0**63, -(2.0**63), 2.0**64]
    low, high = int(np.iinfo(info.numpy).min), int(np.iinfo(info.numpy).max)
    return [low, low + 1, 0, 1, 2, high - 1, high]


# The values of each dtype at which libraries differ.
SPECIAL = {dtype: _special(dtype) for dtype in DTYPES}


def values(dtype: str) -> st.SearchStrategy[Any]:
    """Values of a dtype, its extremes among them."""
    info, special = DTYPES[dtype], st.sampled_from(SPECIAL[dtype])
    if info.kind == "bool":
        return special
    if info.kind == "string":
        return special | TEXTS
    if info.kind == "float":
        return special | st.floats(width=32 if dtype == "float32" else 64)
    limits = np.iinfo(info.numpy)
    return special | st.integers(int(limits.min), int(limits.max))


@st.composite
def columns(
    draw: st.DrawFn, dtype: str, rows: int, *, is_list: bool, nullable: bool = True
) -> Column:
    """A column of some rows; without NaN, too, where no null may be."""
    nulls = nullable and draw(st.sampled_from([True, True, True, False]))
    value = values(dtype) if nullable else values(dtype).filter(lambda each: not isnan(each))
    value = st.none() | value if nulls else value
    row = st.none() | st.lists(value, max_size=4) if is_list else value
    return make_column(dtype, draw(st.lists(row, min_size=rows, max_size=rows)), is_list=is_list)


def table(dtype: str, rows: Sequence[Any], *, is_list: bool = False) -> Column:
    """A column as a program's constants hold it."""
    column = make_column(dtype, rows, is_list=is_list)
    if dtype != "string":
        return column
    return Column(Strings.of(column.values.tolist()), column.valid, column.lengths)


def bounds(dtype: str) -> st.SearchStrategy[Any]:
    return st.none() | st.integers(-(2**65), 2**65) | st.floats(width=32) | values(dtype)


@st.composite
def keys(draw: st.DrawFn, dtype: str) -> Column:
    others = [n for n, i in DTYPES.items() if i.is_integer] if dtype[-1] in "2468" else [dtype]
    kind = draw(st.sampled_from([dtype, *others]))
    near = st.integers(0, 100) if DTYPES[kind].is_integer else values(kind)
    some = st.lists(draw(st.sampled_from([near, values(kind)])), unique=True, max_size=6)
    return table(kind, draw(some))


@st.composite
def tables(draw: st.DrawFn, _: str) -> Column:
    kind, is_list = draw(st.sampled_from(sorted(DTYPES))), draw(st.booleans())
    value = st.none() | values(kind) if draw(st.booleans()) else values(kind)
    row = st.lists(value, max_size=3) if is_list else value
    return table(kind, draw(st.lists(row, max_size=5)), is_list=is_list)


@st.composite
def boundaries(draw: st.DrawFn, dtype: str) -> Column:
    kind = draw(st.sampled_from([dtype, "int8", "int64", "uint64", "float32", "float64"]))
    least, most = draw(st.sampled_from([(0, 6), (33, 60)]))
    edges = draw(st.lists(values(kind), min_size=least, max_size=most))
    return table(kind, sorted({e for e in edges if not isnan(e)}))


def isnan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


# Parameters that depend on the first operand's dtype: tables, and bounds at a dtype's extremes.
BY_DTYPE = {
    "lower": bounds,
    "upper": bounds,
    "keys": keys,
    "table": tables,
    "boundaries": boundaries,
    # Beside keys; the position of the first one, and one that may be among the others.
    "first": lambda _: st.integers(0, 5) | st.sampled_from([-3, 2**40, -(2**62)]),
    "missing": lambda _: st.integers(-2, 3) | st.just(2**62),
}
OVER_LISTS = VERBS.keys() - ELEMENTWISE


def parameters(verb: str, dtype: str) -> st.SearchStrategy[dict[str, Any]]:
    """Static parameters of a verb whose first operand is of a dtype; by default the row's examples."""
    examples = VERBS[verb].examples
    return st.fixed_dictionaries(
        {
            name: BY_DTYPE[name](dtype)
            if name in BY_DTYPE
            else st.sampled_from([e[name] for e in examples])
            for name in VERBS[verb].parameters
        }
    )


@cache
def signatures(verb: str) -> tuple[tuple[str, ...], ...]:
    """The dtypes of operands that a verb takes, found by asking it."""
    every = itertools.product(DTYPES, repeat=VERBS[verb].arity)
    return tuple(dtypes for dtypes in every if VERBS[verb].parameters or _takes(verb, dtypes))


def _takes(verb: str, dtypes: Sequence[str]) -> bool:
    is_list = verb in OVER_LISTS
    types = [Type(dtype, is_list=is_list) for dtype in dtypes]
    if VERBS[verb].repeats:
        types[0] = Type(dtypes[0])
    try:
        VERBS[verb].infer(types, {})
    except ExpressionError:
        return False
    return True


@st.composite
def programs(draw: st.DrawFn, verb: str) -> tuple[Program, dict[str, Column]]:
    """A program that applies one verb, and data for it."""
    is_list = verb in OVER_LISTS or draw(st.booleans())
    dtypes, place = draw(st.sampled_from(signatures(verb))), draw(places(verb))
    rows, nullable = draw(ROWS), draw(NULLABLE)
    data = {"a": draw(columns(dtypes[place], rows, is_list=is_list, nullable=nullable))}
    column = source("a", Type(dtypes[place], is_list, nullable))
    operands = []
    for number, (name, dtype) in enumerate(zip("bcd", dtypes, strict=False)):
        further = (
            _further(draw, column, name, dtype, is_list=is_list) if number != place else column
        )
        operands.append(further)
        if further.verb == "source" and further is not column:
            data[name] = draw(columns(dtype, rows, is_list=False, nullable=further.type.nullable))
    result = call(verb, *operands, **draw(parameters(verb, dtypes[0])))
    others = [o for o in operands if o.verb == "source" and o is not column]
    inputs = Schema(map(schema_of_source, [column, *others]))
    made = ColumnSchema("out", result.type.dtype, result.type.is_list, result.type.nullable)
    return build([(made, result)], inputs), data


def places(verb: str) -> st.SearchStrategy[int]:
    """The place of an operand that is a column; constants may stand before it, except for a filling."""
    if VERBS[verb].repeats:
        return st.just(1)
    alone = verb in OVER_LISTS or verb == "fill_null"
    return st.integers(0, 0 if alone else VERBS[verb].arity - 1)


def _further(
    draw: st.DrawFn, first: Expression, name: str, dtype: str, *, is_list: bool
) -> Expression:
    """Another operand: a constant, a column of one value a row or, for a list, one made of the same."""
    if draw(st.booleans()):
        return literal(draw(values(dtype)), dtype)
    if not is_list or draw(st.booleans()):
        return source(name, Type(dtype, nullable=draw(NULLABLE)))
    if (first.type.kind == "string") == (dtype == "string"):
        return first.cast(dtype)
    return call("is_null", first).cast(dtype) if dtype != "string" else literal("a", "string")


@st.composite
def chains(draw: st.DrawFn, without: Collection[str] = ()) -> tuple[Program, dict[str, Column]]:
    """A program of several verbs, each over what the one before made, which may be given as well."""
    # In a last bit libraries differ, and what comes after may make it grow without bound.
    verbs = sorted(VERBS.keys() - INEXACT - set(without))
    is_list, dtype = draw(st.booleans()), draw(st.sampled_from(sorted(DTYPES)))
    nullable = draw(NULLABLE)
    first = result = source("a", Type(dtype, is_list, nullable))
    unsigned, before = False, []
    sources = {"a": first}
    for _ in range(draw(st.integers(2, 5))):
        verb = draw(st.sampled_from(verbs))
        if verb == "divide" and unsigned:
            continue  # by zeros whose signs differ it makes infinities whose signs differ
        unsigned |= verb in UNSIGNED_ZERO
        place = draw(places(verb))
        wanted = [s for s in signatures(verb) if s[place] == result.type.dtype]
        if wanted:
            dtypes = draw(st.sampled_from(wanted))
            operands = [_beside(draw, result, each, sources) for each in dtypes]
            operands[place] = result
            with contextlib.suppress(ExpressionError):
                own = draw(parameters(verb, operands[0].type.dtype))
                before, result = [*before, result], call(verb, *operands, **own)
    given = {"out": result}
    if before and draw(st.booleans()):
        given["before"] = draw(st.sampled_from(before))
    made = [
        (ColumnSchema(name, each.type.dtype, each.type.is_list, each.type.nullable), each)
        for name, each in given.items()
    ]
    program = build(made, Schema(map(schema_of_source, sources.values())))
    read = [first] + [each for name, each in sources.items() if name in {*program.inputs} - {"a"}]
    return program, draw(data_of(map(schema_of_source, read), draw(ROWS)))


@st.composite
def data_of(draw: st.DrawFn, schemas: Iterable[ColumnSchema], rows: int) -> dict[str, Column]:
    """Rows of some columns."""
    return {
        c.name: draw(columns(c.dtype, rows, is_list=c.is_list, nullable=c.nullable))
        for c in schemas
    }


def _beside(
    draw: st.DrawFn, column: Expression, dtype: str, sources: dict[str, Expression]
) -> Expression:
    """A further operand beside a column: the column itself, a constant, or a column of either kind."""
    if column.type.dtype == dtype and draw(st.booleans()):
        return column
    kind = draw(st.sampled_from(["constant", "constant", "rows", "lists"]))
    if kind == "constant":
        return literal(draw(values(dtype)), dtype)
    type_ = Type(dtype, kind == "lists", nullable=draw(NULLABLE))
    return sources.setdefault(f"{kind} of {dtype}", source(f"{kind} of {dtype}", type_))


def literal(value: Any, dtype: str) -> Expression:
    """A constant of a dtype."""
    return Expression("constant", (), {"value": value}, Type.of_constant(value, dtype))


def schema_of_source(expression: Expression) -> ColumnSchema:
    """The schema of a source."""
    type_ = expression.type
    return ColumnSchema(expression.parameters["name"], type_.dtype, type_.is_list, type_.nullable)
