"""What is said or done otherwise for cuDF is the same as what it stands for.

It runs on the CPU here: what a GPU makes of it is for `benchmarks/gpu_workflow_check.py`.
"""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from interpreters import REFERENCE, assert_same
from strategies import chains
from test_verbs import searched

from benchmarks.verb_cases import verb_cases
from workflow.expressions.polars_flat import FlatInterpreter
from workflow.expressions.polars_gpu import ON_HOST, REEXPRESSED, QueryOnGpu, is_one_query
from workflow.expressions.series import to_column, to_series

# Over a constant Polars multiplies by the reciprocal, which cuDF does not.
INEXACT = {"log1p", "divide"}


def run(program, columns):
    """A program as the GPU would run it."""
    frame = pl.LazyFrame([to_series(column, name) for name, column in columns.items()])
    if is_one_query(program):
        made = QueryOnGpu(program)(frame).collect()
    else:
        made = FlatInterpreter(program)(frame, pl.LazyFrame.collect)
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
