"""Verbs that are expressed in another way for cuDF give the same answers.

It runs on the CPU here: what a GPU makes of it is for `tests/gpu/test_verbs.py`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl
import pytest
from gpu_on_the_host import GpuOnTheHost
from hypothesis import given
from interpreters import INEXACT, REFERENCE, assert_same, equality_of
from searched import searched
from strategies import chains
from verb_cases import verb_cases

from workflow.expressions.cudf.host_and_engine import host_and_engine
from workflow.expressions.language.tree import source
from workflow.expressions.language.types import Type
from workflow.expressions.language.verbs import VERBS
from workflow.expressions.polars.series import to_column, to_series
from workflow.expressions.program.program import build
from workflow.schema.schema import ColumnSchema, Schema

# By a constant Polars multiplies with the reciprocal, in one place at most another number, which cuDF
# does not: `divide` is held to its bits on a GPU, by `tests/gpu/test_verbs.py`.
NOT_EXACT_HERE = INEXACT | {"divide"}


def run(program, columns):
    """A program as the GPU would run it."""
    frame = pl.LazyFrame([to_series(column, name) for name, column in columns.items()])
    made = host_and_engine(program)(frame, GpuOnTheHost())
    return to_column(made.to_host()["out"])


@pytest.mark.parametrize(
    "verb",
    [n for n, row in VERBS.items() if row.reexpressed_on or row.bytes_of or not row.elementwise],
)
def test_verb_is_the_same_on_the_way_to_the_gpu(verb):
    for case in verb_cases([verb]):
        expected = REFERENCE.run(case.program, case.columns)["out"]
        made = run(case.program, case.columns)
        equality = replace(equality_of(case.program), exact=verb not in NOT_EXACT_HERE)
        assert_same(expected, made, what=case.label, equality=equality)


@searched(150)
@given(made=chains(without=["divide"]))  # what comes after may make a last bit grow
def test_chain_of_verbs_is_the_same_on_the_way_to_the_gpu(made):
    expected, equality = REFERENCE.run(*made)["out"], equality_of(made[0])
    assert_same(expected, run(*made), what="chain", equality=equality)


def test_a_column_of_the_data_may_be_named_as_one_that_is_made_on_the_way():
    value = source("@2", Type("float64"))
    made = ColumnSchema("out", "float64")
    columns = Schema([ColumnSchema("@2", "float64")])
    program = build([(made, (value * 2.0).log1p() + value)], columns)
    got = run(program, {"@2": to_column(pl.Series([1.0, 3.0]))})
    assert got.array.tolist() == pytest.approx([math.log(3) + 1, math.log(7) + 3])


def test_a_nan_that_was_computed_is_no_null_on_the_way():
    value = source("x", Type("float64"))
    program = build(
        [(ColumnSchema("out", "bool"), (value / value).log1p().is_null())],
        Schema([ColumnSchema("x", "float64")]),
    )
    assert run(program, {"x": to_column(pl.Series([0.0, 1.0]))}).array.tolist() == [False, False]
