"""On both sides of every size at which an interpreter changes its algorithm the answer is the same."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from interpreters import OTHERS, REFERENCE, assert_same

from workflow.expressions.language.tree import Expression, source
from workflow.expressions.language.types import Type
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.polars.buckets import MANY_BOUNDARIES
from workflow.expressions.program.program import Program, build
from workflow.expressions.tables.lookup import MANY_STRINGS, direct_table
from workflow.expressions.tables.text_table import FEW
from workflow.expressions.tensorflow.lookups import LARGE_VOCABULARY
from workflow.schema.column import Column, Strings
from workflow.schema.dtypes import DTYPES
from workflow.schema.schema import ColumnSchema, Schema

ROWS = 600
FIRST, MISSING = 3, -1


@cache
def texts(count: int) -> list[str]:
    """Distinct strings of many lengths, the empty one and some of more bytes than letters."""
    return ["", "é日本", *(f"{n:x}" * (1 + n % 4) + "~" for n in range(count - 2))]


def program_of(result: Expression, dtype: str) -> Program:
    made = ColumnSchema("out", result.type.dtype, result.type.is_list, result.type.nullable)
    return build([(made, result)], Schema([ColumnSchema("a", dtype)]))


INTEGERS = [name for name, dtype in DTYPES.items() if dtype.is_integer]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_an_integer_with_one_bound_or_two_is_cast_as_any_other(dtype):
    """A bound tells an interpreter how far a value may lie outside of the other dtype."""
    own = np.iinfo(dtype)
    rows = [own.min, 0, 1, 100, own.max]
    outputs, expected = [], {}
    for lower, upper in ((1, None), (None, 100), (1, 100), (None, None)):
        for target in INTEGERS:
            result, other = source("a", Type(dtype)), np.iinfo(target)
            if (lower, upper) != (None, None):
                result = result.clip(lower, upper)
            name = f"{lower} {upper} {target}"
            outputs.append((ColumnSchema(name, target), result.cast(target)))
            bounded = [max(row, own.min if lower is None else lower) for row in rows]
            bounded = [min(row, own.max if upper is None else upper) for row in bounded]
            saturated = [min(max(row, int(other.min)), int(other.max)) for row in bounded]
            expected[name] = Column(np.array(saturated, target))
    program = build(outputs, Schema([ColumnSchema("a", dtype)]))
    for interpreter in (REFERENCE, *OTHERS):
        made = interpreter.run(program, {"a": Column(np.array(rows, dtype))})
        for name, wanted in expected.items():
            assert_same(wanted, made[name], what=f"{interpreter}: {name}")


def assert_answer(program: Program, column: Column, expected: list[int | None]) -> None:
    """Every interpreter gives the answer that was computed here."""
    valid = np.array([answer is not None for answer in expected])
    wanted = Column(np.array([answer or 0 for answer in expected]), valid)
    for interpreter in (REFERENCE, *OTHERS):
        received = interpreter.answer(program, {"a": column})
        assert received is not None, f"{interpreter} cannot run {program.steps[-1].verb}."
        assert_same(wanted, received["out"], what=interpreter.name)


def looked_up(keys: list, values: list) -> list[int | None]:
    rows = {key: FIRST + row for row, key in enumerate(keys)}
    return [None if value is None else rows.get(value, MISSING) for value in values]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_float_is_cast_to_the_nearest_value_toward_zero(dtype):
    """At the limits of each dtype, of which a float cannot hold all; a NaN that was computed is 0."""
    near = [
        m * 2.0**n for n in (0, 7, 8, 15, 16, 31, 32, 63, 64) for m in (1, 1 - 2**-20, -1, -1.5)
    ]
    values = np.array([math.inf, -math.inf, -0.0, 0.5, 2.0**63 - 1024, *near], dtype)
    outputs, expected = [], {}
    for target in INTEGERS:
        least, most = int(np.iinfo(target).min), int(np.iinfo(target).max)
        whole = [min(max(v, least), most) for v in values.tolist()]
        outputs.append((ColumnSchema(target, target), source("a", Type(dtype)).cast(target)))
        expected[target] = Column(np.array([math.trunc(v) for v in whole], target))
    outputs.append((ColumnSchema("bool", "bool"), source("a", Type(dtype)).cast("bool")))
    expected["bool"] = Column(np.array([v != 0 for v in values.tolist()]))
    computed = source("a", Type(dtype)) - source("a", Type(dtype))  # NaN of an infinity
    for target in (*INTEGERS, "bool"):
        outputs.append((ColumnSchema(f"NaN {target}", target), computed.cast(target)))
        expected[f"NaN {target}"] = Column(np.zeros(len(values), DTYPES[target].numpy))
    program = build(outputs, Schema([ColumnSchema("a", dtype)]))
    for interpreter in (REFERENCE, *OTHERS):
        answers = interpreter.run(program, {"a": Column(values)})
        for name, column in expected.items():
            assert_same(column, answers[name], what=f"{interpreter.name}: {dtype} to {name}")


@pytest.mark.parametrize(
    "count", sorted({MANY_STRINGS, LARGE_VOCABULARY, MANY_STRINGS + 1, LARGE_VOCABULARY + 1})
)
def test_vocabularies_of_strings(count: int):
    keys = texts(count)
    rng = np.random.default_rng(count)
    known = [keys[row] for row in rng.integers(0, count, ROWS)]
    values = [*known, keys[0], keys[1], keys[-1], "unknown", "é", " ", None]
    column = Column(
        np.array([value or "" for value in values], object),
        np.array([value is not None for value in values]),
    )
    result = source("a", Type("string")).lookup(Column(Strings.of(keys)), FIRST, MISSING)
    program, expected = program_of(result, "string"), looked_up(keys, values)
    assert_answer(program, column, expected)
    run = NumpyInterpreter(program)
    for rows in (1, FEW, FEW + 1):  # so few are found one by one
        part = Column(column.array[:rows], column.valid[:rows])
        assert run({"a": part})["out"].array.tolist() == expected[:rows]


def spread(count: int, span: int) -> np.ndarray:
    """Distinct whole numbers from 1 to `span` less 1, these two among them."""
    return np.unique(np.linspace(1, span - 1, count).astype(np.int64))


@pytest.mark.parametrize(
    ("count", "span"),
    # By address up to 100,000 numbers, or eight for each key; else by hash.
    [(50, 100_000), (50, 100_001), (13_000, 104_000), (13_000, 104_001)],
)
def test_vocabularies_of_integers(count: int, span: int):
    keys = spread(count, span)
    by_address = direct_table(keys, FIRST, MISSING) is not None
    assert by_address == (span in (100_000, 104_000)), "The threshold is another one."
    rng = np.random.default_rng(span)
    ends = [int(keys[0]), int(keys[-1]), 0, -1, span, 2**63 - 1, -(2**63)]
    values = [*rng.choice(keys, ROWS).tolist(), *rng.integers(0, span, ROWS).tolist(), *ends]
    result = source("a", Type("int64")).lookup(Column(keys), FIRST, MISSING)
    column = Column(np.array(values), np.arange(len(values)) != 5)
    expected = looked_up(keys.tolist(), values)
    expected[5] = None
    assert_answer(program_of(result, "int64"), column, expected)


@pytest.mark.parametrize("count", [MANY_BOUNDARIES, MANY_BOUNDARIES + 1, 63, 64])
@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64"])
def test_boundaries(count: int, dtype: str):
    low, high = (-(2**50), 2**50) if dtype == "float64" else (np.iinfo(dtype).min, 2**63 - 3)
    edges = [low + 1 + (high - low) * n // (count - 1) for n in range(count)]
    values = [edge + step for edge in edges for step in (-1, 0, 1)]
    values += [math.inf, -math.inf] if dtype == "float64" else [np.iinfo(dtype).max]
    result = source("a", Type(dtype)).bucketize(Column(np.array(edges, dtype)))
    expected = [sum(edge <= value for edge in edges) for value in values]
    assert_answer(program_of(result, dtype), Column(np.array(values, dtype)), expected)


def assert_members(result: Expression, values: np.ndarray, expected: list[bool | None]) -> None:
    valid = np.array([answer is not None for answer in expected])
    column = Column(values, np.append(np.ones(len(values) - 1, bool), False))
    for interpreter in (REFERENCE, *OTHERS):
        received = interpreter.answer(program_of(result, values.dtype.name), {"a": column})
        assert received is not None
        wanted = Column(np.array([bool(answer) for answer in expected]), valid)
        assert_same(wanted, received["out"], what=interpreter.name)


@pytest.mark.parametrize("count", [0, MANY_BOUNDARIES + 1, 3000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_membership_of_floats(count: int, dtype: str):
    """Numbers are rounded to the column's dtype, as `==` rounds them; the last row is null."""
    tenths = [n / 10 - 1 for n in range(count)]
    wanted = [*tenths, -0.0, -math.inf, 1e300, 16777217.0, 3]
    held = {np.dtype(dtype).type(number) for number in wanted if number != 1e300}
    values = np.array([*tenths[:99], 0, -0.0, math.inf, -math.inf, 2**24, 0.34, 3, 3], dtype)
    expected = [value in held or (dtype == "float64" and value == 1e300) for value in values]
    assert_members(source("a", Type(dtype)).isin(wanted), values, [*expected[:-1], None])


def test_membership_of_what_is_no_number():
    values = np.array([4.0, -1.0, math.nan, 0.0, 4.0])
    result = source("a", Type("float64")).sqrt().isin([2.0, *range(-50, 0)])
    assert_members(result, values, [True, False, None, False, None])


@pytest.mark.parametrize("dtype", ["int8", "uint64", "bool"])
def test_membership_of_floats_among_whole_numbers(dtype: str):
    values = np.array([0, 1, 1, 0] if dtype == "bool" else [0, 1, 5, 127, 2], dtype)
    wanted = [1.0, 126.5, -math.inf, 1e300, 127]
    assert_members(
        source("a", Type(dtype)).isin(wanted),
        values,
        [*(float(value) in wanted for value in values[:-1]), None],
    )
