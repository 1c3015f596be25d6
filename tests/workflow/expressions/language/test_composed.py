"""Powers, rounding, membership and numpy's functions of a column, beside numpy's own answers."""

from __future__ import annotations

import math
import operator

import numpy as np
import polars as pl
import pytest

from workflow import Workflow, WorkflowError, ops
from workflow.expressions.language.tree import source
from workflow.expressions.language.types import Type
from workflow.expressions.program.program import build
from workflow.operator.feature import Feature
from workflow.schema.column import Column
from workflow.schema.schema import ColumnSchema, Schema

INTEGERS = [np.array([3, -7, 100, 0], "int8"), np.array([0, 9, 2**32 - 1], "uint32")]
INTEGERS.append(np.array([-(2**62), -2, 5, 3_037_000_500]))
REALS = [np.array([-2.5, -0.0, 0.5, 1.5, 2.5, 1e30, math.inf], "float32")]
REALS.append(np.array([-1.005, 0.0, 0.125, 2.5, 2.675, 1e17, 1e300]))


def apply(function, values) -> pl.Series:
    data = pl.DataFrame({"x": values})
    return Workflow(["x"] >> ops.LambdaOp(function)).fit(data).transform(data).collect()["x"]


@pytest.mark.parametrize("exponent", range(9))
@pytest.mark.parametrize("values", INTEGERS, ids=lambda v: v.dtype.name)
def test_integers_to_a_whole_number_are_integers_that_wrap_round(values, exponent):
    with np.errstate(over="ignore"):
        expected = values**exponent
    made = apply(lambda c: c**exponent, values)
    assert made.dtype == pl.Series(values).dtype
    assert made.to_list() == expected.tolist()


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, 0.5, -1.5])
@pytest.mark.parametrize("values", REALS, ids=lambda v: v.dtype.name)
def test_numbers_to_a_power_keep_the_floats_type(values, exponent):
    with np.errstate(all="ignore"):
        expected = np.power(values.astype("float64"), exponent).astype(values.dtype)
    made = apply(lambda c: c**exponent, values)
    assert made.dtype == pl.Series(values).dtype
    np.testing.assert_allclose(made.to_numpy(), expected, 4 * np.finfo(values.dtype).eps)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda c: c**-1, [0.5, -1.0, math.inf, None]),
        (lambda c: c**0.5, [math.sqrt(2), math.nan, 0.0, None]),
        (lambda c: c**c, [4.0, -1.0, 1.0, None]),
        (lambda c: 2**c, [4.0, 0.5, 1.0, None]),
        (lambda c: np.float64(2) ** c, [4.0, 0.5, 1.0, None]),
        (lambda c: np.power(c, np.int64(3)), [8, -1, 0, None]),
        (lambda c: c**0, [1, 1, 1, None]),
        (lambda c: (c / 0) ** 0, [1.0, 1.0, 1.0, None]),
        (lambda c: (c / 0) ** 0.5, [math.inf, math.inf, math.nan, None]),
        (lambda c: (c * -0.0) ** 0.5, [0.0, 0.0, 0.0, None]),
    ],
)
def test_powers_are_those_of_ieee_754(function, expected):
    np.testing.assert_equal(apply(function, [2, -1, 0, None]).to_list(), expected)


@pytest.mark.parametrize("decimals", [0, 1, 2, -1])
@pytest.mark.parametrize("values", REALS, ids=lambda v: v.dtype.name)
def test_numbers_are_rounded_as_numpy_rounds_them(values, decimals):
    for function in (
        lambda c: c.round(decimals),
        lambda c: round(c, decimals),
        lambda c: np.round(c, decimals),
        lambda c: np.around(c, decimals),
    ):
        np.testing.assert_array_equal(apply(function, values), np.round(values, decimals))


def test_halves_go_to_the_even_number_and_integers_stay_integers():
    assert apply(round, [0.5, 1.5, -2.5, None]).to_list() == [0.0, 2.0, -2.0, None]
    tens = apply(lambda c: c.round(-1), [15, 25, -5, None])
    assert (tens.dtype, tens.to_list()) == (pl.Int64, [20, 20, 0, None])
    assert apply(lambda c: c.round(2), [2**62 + 1]).to_list() == [2**62 + 1]


def test_a_number_without_a_fraction_does_not_overflow_when_it_is_rounded():
    assert apply(lambda c: c.round(3), [1.7e308, 2.0**60 + 256]).to_list() == [
        1.7e308,
        2.0**60 + 256,
    ]


@pytest.mark.parametrize("function", [np.sin, np.cos, np.tanh, np.log1p, np.rint])
@pytest.mark.parametrize("values", REALS, ids=lambda v: v.dtype.name)
def test_a_function_of_numpy_is_an_operator(function, values):
    with np.errstate(all="ignore"):
        expected = function(values.astype("float64")).astype(values.dtype)
    made = apply(function, values).to_numpy()
    np.testing.assert_allclose(made, expected, 4 * np.finfo(values.dtype).eps)


def test_a_number_of_numpy_is_compared_from_either_side():
    values = [0.5, 3.0, None]
    for number in (np.float64(3), np.float32(3), np.int64(3), np.array(3.0)):
        assert apply(lambda c, n=number: n == c, values).to_list() == [False, True, None]
        assert apply(lambda c, n=number: n > c, values).to_list() == [True, False, None]
        assert apply(lambda c, n=number: c >= n, values).to_list() == [False, True, None]


def test_functions_of_numpy_that_choose():
    values = [0.5, 3.0, None]
    assert apply(lambda c: np.where(c > 1, c, 0), values).to_list() == [0.0, 3.0, None]
    assert apply(lambda c: np.clip(c, 1, 2), values).to_list() == [1.0, 2.0, None]
    assert apply(lambda c: np.clip(c, a_min=1, a_max=None), values).to_list() == [1.0, 3.0, None]
    assert apply(lambda c: np.isin(c, [3]), values).to_list() == [False, True, None]


@pytest.mark.parametrize(
    ("values", "wanted", "expected"),
    [
        (["a", None, "", "b"], ["b", "", "b"], [False, None, True, True]),
        ([1, None, -4, 2**62], [2**62, 2**70, -4], [False, None, True, True]),
        ([1, None, 5], {1, 2.5}, [True, None, False]),
        ([0.5, None, 3.0], np.array([3, 7]), [False, None, True]),
        ([0.5, None, 3.0], range(100), [False, None, True]),
        ([True, None, False], [True], [True, None, False]),
        (pl.Series([2**63, 3, None], dtype=pl.UInt64), [2**63, -3], [True, False, None]),
        ([1, None], [], [False, None]),
        ([0.5, None], [], [False, None]),
        (
            [-0.0, 0.0, None, math.inf, 0.1],
            [0.0, math.inf, 10**400],
            [True, True, None, True, False],
        ),
        ([math.inf, -math.inf, 1.5, None], [-math.inf, 1], [False, True, False, None]),
        (pl.Series([0.1, 0.5], dtype=pl.Float32), [0.1, 1e300], [True, False]),
        ([True, None, False], [1.0, 0.5], [True, None, False]),
        ([2**53 + 1, 7, -1, None], [2**53, 7, 0.5, -1.0], [False, True, True, None]),
        ([[1, 2], [], [None]], [2], [[False, True], [], [None]]),
    ],
)
def test_membership(values, wanted, expected, tmp_path):
    data = pl.DataFrame({"x": values})
    workflow = Workflow(["x"] >> ops.LambdaOp(lambda c: c.isin(wanted))).fit(data)
    workflow.save(tmp_path / "saved")
    for made in (workflow, Workflow.load(tmp_path / "saved")):
        assert made.transform(data).collect()["x"].to_list() == expected


def test_a_filter_by_membership_is_saved(tmp_path):
    data = {"city": ["a", "b", None, "c"]}
    workflow = Workflow(["city"] >> ops.Filter(lambda rows: rows["city"].isin(["c", "a"]))).fit(
        data
    )
    workflow.save(tmp_path / "saved")
    made = Workflow.load(tmp_path / "saved").transform(data).collect()
    assert made["city"].to_list() == ["a", "c"]


@pytest.mark.parametrize("of_lists", [False, True])
@pytest.mark.parametrize("dtype", [pl.Int64, pl.Int8])
@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_unsigned_integers_beside_signed_ones_are_compared_exactly(name, dtype, of_lists):
    """Their common type is float64, in which ids beyond 2**53 are equal that are not."""
    compare = getattr(operator, name)
    unsigned = [0, 5, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1, 2**63, 2**64 - 1, None]
    signed = [0, 5, -1, 127, -128, *[2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1, -(2**63)], None]
    signed = [n for n in signed if dtype == pl.Int64 or n is None or -128 <= n <= 127]
    pairs = [(u, s) for u in unsigned for s in signed]
    data = pl.DataFrame(pairs, {"u": pl.UInt64, "s": dtype}, orient="row")
    if of_lists:
        data = data.with_columns(pl.concat_list("u"))
    one = ["u"] >> ops.LambdaOp(lambda u, rows: compare(u, rows["s"]), "s")
    other = ["s"] >> ops.LambdaOp(lambda s, rows: compare(s, rows["u"]), "u")
    made = Workflow(one + other).fit(data).transform(data).collect()
    for column, ordered in (("u", pairs), ("s", [(s, u) for u, s in pairs])):
        expected = [None if None in pair else compare(*pair) for pair in ordered]
        assert made[column].to_list() == [[e] if of_lists else e for e in expected]


def test_a_whole_number_beyond_float64_is_refused():
    with pytest.raises(WorkflowError, match=r"a float64 can hold\. Received: 1000"):
        apply(lambda c: c > 10**400, [0.5])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint64"])
def test_a_plan_does_not_grow_with_the_values_to_be_met(dtype):
    column = source("x", Type(dtype))

    def steps(count: int) -> int:
        result = column.isin([*(np.arange(count) / 8), math.inf, 9999])
        made = Feature.of("made", result).schema
        return len(build([(made, result)], Schema([ColumnSchema("x", dtype)])).steps)

    assert steps(3) == steps(3000)


def test_many_floats_are_found():
    wanted = np.arange(3000) / 8
    assert apply(lambda c: c.isin(wanted), [149.875, 149.9]).to_list() == [True, False]


@pytest.mark.parametrize(
    "table",
    [
        Column(np.array([1, 2]), np.array([True, False])),
        Column(np.array([1.0, math.inf])),
        Column(np.array([1, 2, 3]), None, np.array([1, 2])),
    ],
)
def test_a_table_that_a_document_does_not_hold_is_refused(table):
    workflow = Workflow(["n"] >> ops.LambdaOp(lambda c: c.gather(table)))
    with pytest.raises(WorkflowError, match=r"^LambdaOp over n: the table of gather holds lists"):
        workflow.fit({"n": [1, 0]})
