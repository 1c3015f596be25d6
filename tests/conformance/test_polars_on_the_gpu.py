"""What is said or done otherwise for cuDF is the same as what it stands for.

It runs on the CPU here: what a GPU makes of it is for `benchmarks/gpu_workflow_check.py`.
"""

from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given
from interpreters import REFERENCE, assert_same
from strategies import chains
from test_verbs import searched

from benchmarks.verb_cases import verb_cases
from workflow.expressions.polars_flat import host_and_engine
from workflow.expressions.polars_gpu import ON_HOST, REEXPRESSED
from workflow.expressions.program import build
from workflow.expressions.series import to_column, to_series
from workflow.expressions.tree import source
from workflow.expressions.types import Type
from workflow.schema import ColumnSchema, Schema

# Over a constant Polars multiplies by the reciprocal, which cuDF does not.
INEXACT = {"log1p", "divide"}


def run(program, columns):
    """A program as the GPU would run it."""
    frame = pl.LazyFrame([to_series(column, name) for name, column in columns.items()])
    made = host_and_engine(program)(frame, pl.LazyFrame.collect)
    return to_column(made["out"])


@pytest.mark.parametrize("verb", sorted({*REEXPRESSED, *ON_HOST} - {"source"}))
def test_verb_is_the_same_on_the_way_to_the_gpu(verb):
    for case in verb_cases([verb]):
        expected = REFERENCE.run(case.program, case.columns)["out"]
        made = run(case.program, case.columns)
        assert_same(expected, made, exact=verb not in INEXACT, what=case.label)


@searched(150)
@given(made=chains())
def test_chain_of_verbs_is_the_same_on_the_way_to_the_gpu(made):
    if any(step.verb == "divide" for step in made[0].steps):
        return  # what comes after may make a last bit grow
    assert_same(REFERENCE.run(*made)["out"], run(*made), exact=True, what="chain")


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
