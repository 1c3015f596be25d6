"""Every verb gives the same answer on every interpreter."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from interpreters import CANNOT, OTHERS, REFERENCE, assert_same, equality_of
from searched import searched
from strategies import chains, programs, schema_of_source, signatures
from verb_cases import make_column

from workflow.expressions.language.limits import Range
from workflow.expressions.language.tree import call, source
from workflow.expressions.language.types import ExpressionError, Type
from workflow.expressions.language.verbs import VERBS
from workflow.expressions.numpy.verbs import PREPARE
from workflow.expressions.onnx.verbs import EMIT
from workflow.expressions.polars.interpreter import VERBS as POLARS
from workflow.expressions.program.program import Program, build
from workflow.expressions.program.ranges import ranges
from workflow.expressions.tensorflow.verbs import PREPARE as TENSORFLOW
from workflow.schema.column import Column
from workflow.schema.dtypes import DTYPES
from workflow.schema.schema import ColumnSchema, Schema


def draw_program(data: st.DataObject, verb: str):
    try:
        return data.draw(programs(verb))
    except ExpressionError:
        assume(False)  # parameters that the verb refuses


# What each interpreter has for the verbs.
TABLES = {"numpy": PREPARE, "polars": POLARS, "onnx": EMIT, "tensorflow": TENSORFLOW}


@pytest.mark.parametrize(
    "verb", {name: None for table in (VERBS, *TABLES.values()) for name in table}
)
def test_every_interpreter_has_the_verb_and_the_language_too(verb: str):
    assert verb in VERBS, f"{verb} is no verb of the language."
    without = [name for name, table in TABLES.items() if verb not in table]
    assert not without, f"{verb} is missing in the interpreters {', '.join(without)}."


@pytest.mark.parametrize("verb", VERBS)
@searched(20)
@given(data=st.data())
def test_verb_is_the_same_on_every_interpreter(verb: str, data: st.DataObject):
    """One draw for all, since to draw programs takes longer than to run them."""
    program, columns = draw_program(data, verb)
    together = assert_interpreters_agree(program, columns)
    for row in range(together.rows):
        alone = REFERENCE.run(program, {n: take_row(c, row) for n, c in columns.items()})["out"]
        assert_same(take_row(together, row), alone, what=f"{verb}, row {row}")


LENIENT: dict[str, tuple[tuple[list[Any], ...], Callable[..., Any]]] = {
    "where": (
        ([None, False, True], [None, 1], [None, 2]),
        lambda condition, a, b: None if condition is None else a if condition else b,
    ),
    "fill_null": (([None, 1], [None, 2]), lambda a, b: b if a is None else a),
    "logical_and": (
        ([None, False, True],) * 2,
        lambda a, b: False if False in (a, b) else None if None in (a, b) else True,
    ),
    "logical_or": (
        ([None, False, True],) * 2,
        lambda a, b: True if True in (a, b) else None if None in (a, b) else False,
    ),
}


@pytest.mark.parametrize("verb", LENIENT)
def test_a_null_counts_as_the_language_says_whichever_operands_can_be_null(verb: str):
    """Every row of values and nulls, for each choice of the operands that can be null."""
    values, function = LENIENT[verb]
    for nullable in product([True, False], repeat=len(values)):
        choices = [v if null else v[1:] for v, null in zip(values, nullable, strict=True)]
        rows = list(product(*choices))
        dtypes = ["bool" if False in v else "int64" for v in values]
        operands = [
            source(name, Type(dtype, nullable=null))
            for name, dtype, null in zip("abc", dtypes, nullable, strict=False)
        ]
        result = call(verb, *operands)
        made = ColumnSchema("out", result.type.dtype, nullable=result.type.nullable)
        program = build([(made, result)], Schema(map(schema_of_source, operands)))
        data = zip("abc", dtypes, zip(*rows, strict=True), strict=False)
        columns = {name: make_column(dtype, cells) for name, dtype, cells in data}
        expected = [function(*row) for row in rows]
        for each in (REFERENCE, *OTHERS):
            out = each.run(program, columns)["out"]
            valid = [True] * out.rows if out.valid is None else out.valid.tolist()
            cells = [
                value if is_value else None
                for value, is_value in zip(out.array.tolist(), valid, strict=True)
            ]
            assert cells == expected, (each.name, nullable)


COMPARISONS = {
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}
ARITHMETIC: dict[str, Callable[..., int]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "modulo": operator.mod,
    "negate": lambda a, _: -a,
    "absolute": lambda a, _: abs(a),
}


@pytest.mark.parametrize("dtype", [name for name, info in DTYPES.items() if info.is_integer])
def test_an_integer_wraps_round_before_the_next_verb_reads_it(dtype: str):
    """Carried in a wider type, as ONNX does, a sum beyond the limits would be another number."""
    limits = np.iinfo(DTYPES[dtype].numpy)
    low, high, span = int(limits.min), int(limits.max), 1 << limits.bits
    least = [low, -1] if low else []
    rows = list(product([*least, 0, 1, high], [*least, 1, 2, high]))
    a, b = (source(name, Type(dtype, nullable=False)) for name in "ab")
    results = {v: call(v, *(a, b)[: VERBS[v].arity]) for v in ARITHMETIC}
    assert {result.type.dtype for result in results.values()} == {dtype}
    made = [(ColumnSchema(v, "bool", nullable=False), result > 2) for v, result in results.items()]
    program = build(made, Schema(map(schema_of_source, (a, b))))
    cells = zip("ab", zip(*rows, strict=True), strict=True)
    data = {name: make_column(dtype, values) for name, values in cells}
    expected = {
        verb: [(function(*row) - low) % span + low > 2 for row in rows]
        for verb, function in ARITHMETIC.items()
    }
    for each in (REFERENCE, *OTHERS):
        received = {name: column.array.tolist() for name, column in each.run(program, data).items()}
        assert received == expected, each.name


def test_strings_are_compared_by_their_code_points():
    """Draws have few pairs that differ late, or in characters of several bytes."""
    texts = ["", "a", "ab", "ac", "a\0", "é", "ê", "\uffff", "😀", "x" * 300, "x" * 300 + "y"]
    rows = list(product(texts, texts))
    a, b = (source(name, Type("string", nullable=False)) for name in "ab")
    made = [(ColumnSchema(v, "bool", nullable=False), call(v, a, b)) for v in COMPARISONS]
    program = build(made, Schema(map(schema_of_source, (a, b))))
    cells = zip("ab", zip(*rows, strict=True), strict=True)
    data = {name: make_column("string", values) for name, values in cells}
    expected = {v: [function(*row) for row in rows] for v, function in COMPARISONS.items()}
    for each in (REFERENCE, *OTHERS):
        received = {name: column.array.tolist() for name, column in each.run(program, data).items()}
        assert received == expected, each.name


EXACT = [
    verb.name
    for verb in VERBS.values()
    if verb.exact and verb.elementwise and not verb.tables
    if ("float64",) * verb.arity in signatures(verb.name)
]


@pytest.mark.parametrize("verb", EXACT)
def test_a_verb_is_as_exact_as_its_row_says(verb: str):
    """Over floats of usual size, in whose last places libraries differ; draws have few of them."""
    random = np.random.default_rng(0)
    sources = [source(n, Type("float64", nullable=False)) for n in "abc"[: VERBS[verb].arity]]
    columns = {s.parameters["name"]: Column(random.normal(0, 2, 500)) for s in sources}
    for parameters in VERBS[verb].examples:
        try:
            result = call(verb, *sources, **parameters)
        except ExpressionError:
            continue  # a verb of integers, or a cast to strings
        made = ColumnSchema("out", result.type.dtype, nullable=result.type.nullable)
        program = build([(made, result)], Schema(map(schema_of_source, sources)))
        expected = REFERENCE.run(program, columns)["out"]
        for each in OTHERS:
            what = f"{each.name}: {verb}. Its row in verbs.py needs exact=False, if a library decides it"
            assert_same(expected, each.run(program, columns)["out"], what=what)


@searched(100)
@given(made=chains())
def test_chain_of_verbs_is_the_same_on_every_interpreter(made):
    assert_interpreters_agree(*made)


def assert_interpreters_agree(program: Program, columns: dict[str, Column]) -> Column:
    """The answer, which is that of every interpreter."""
    expected, equality = REFERENCE.run(program, columns), equality_of(program)
    rows = next(iter(columns.values())).rows
    for (column, place), made in zip(program.outputs, expected.values(), strict=True):
        assert_of_static_type(column, rows, made)
        assert_in_range(ranges(program)[place], made)
    for interpreter in OTHERS:
        received = interpreter.answer(program, columns)
        for name in received or ():
            what = f"{interpreter.name}: {name}"
            assert_same(expected[name], received[name], what=what, equality=equality)
    return expected["out"]


def assert_of_static_type(column: ColumnSchema, rows: int, made: Column) -> None:
    assert made.array.dtype == DTYPES[column.dtype].numpy
    assert made.is_list == column.is_list
    assert made.rows == rows
    if not column.nullable:
        assert made.valid is None or made.valid.all()


def assert_in_range(found: Range | None, made: Column) -> None:
    values = made.array if made.valid is None else made.array[made.valid]
    if values.dtype.kind not in "biu":
        assert found is None
    elif len(values):
        assert found is not None
        assert found[0] <= int(values.min()) <= int(values.max()) <= found[1]


@pytest.mark.parametrize(("name", "verb", "dtype"), CANNOT)
def test_interpreter_that_cannot_names_the_column_and_another_way(name, verb, dtype):
    run = next(interpreter.run for interpreter in OTHERS if interpreter.name == name)
    result = getattr(source("city", Type(dtype)), verb)()
    made = ColumnSchema("out", result.type.dtype)
    program = build([(made, result)], Schema([ColumnSchema("city", dtype)]))
    with pytest.raises(ExpressionError, match=r"Column 'city'.*Categorify"):
        run(program, {"city": Column(np.array(["a"], object))})


def take_row(column: Column, row: int) -> Column:
    """One row of a column."""
    bounds = column.offsets() if column.is_list else np.arange(column.rows + 1)
    part = slice(int(bounds[row]), int(bounds[row + 1]))
    lengths = None if column.lengths is None else column.lengths[row : row + 1]
    valid = None if column.valid is None else column.valid[part]
    return Column(column.array[part], valid, lengths)
