"""Programs for an engine without lists: the same answers, and no list in what it is given."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from gpu_on_the_host import GpuOnTheHost

from workflow import Workflow, ops
from workflow.expressions.cudf.exceptions import is_one_query
from workflow.expressions.cudf.host_and_engine import host_and_engine
from workflow.expressions.language.tree import source
from workflow.expressions.language.types import Type
from workflow.expressions.language.verbs import VERBS
from workflow.expressions.program.program import build
from workflow.operator.operator import OPERATORS
from workflow.schema.schema import ColumnSchema, Schema

EXAMPLES = [
    pytest.param(example, id=f"{name}-{number}")
    for name, operator in OPERATORS.items()
    if operator.row_by_row
    for number, example in enumerate(operator.examples())
]


def collect_without_lists(query):
    """Runs a query as the GPU would, which reads lists, or fails where the GPU would."""
    plan = query.explain(optimized=False)
    assert not [verb for verb in (".list.", ".eval", ".explode") if verb in plan], plan
    return query.collect()


def check(workflow, frame):
    made = host_and_engine(workflow.program)(
        frame.lazy(), GpuOnTheHost(collect_without_lists)
    ).to_host()
    assert made.equals(workflow.transform(frame).collect(), null_equal=True)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_operator_gives_the_same_without_lists(example):
    frame = pl.DataFrame(example.columns)
    workflow = Workflow((example.left or frame.columns) >> example.operator).fit(frame)
    check(workflow, frame)
    check(workflow, frame.clear())


def test_null_elements_empty_lists_and_missing_lists_stay_apart():
    frame = pl.DataFrame({"n": [1, 2, 3, 4], "l": [[None], [], None, [5, None]]})
    workflow = Workflow("n" + (["l"] >> ops.Categorify())).fit(frame)
    made = host_and_engine(workflow.program)(
        frame.lazy(), GpuOnTheHost(collect_without_lists)
    ).to_host()
    assert made["l"].to_list() == [[1], [], [], [3, 1]]


def test_lists_of_a_joined_table():
    movies = pl.DataFrame({"movie": [1, 2, 3], "genres": [["a", "b"], None, ["b", None]]})
    joined = ["movie"] >> ops.JoinExternal(movies, on="movie")
    frame = pl.DataFrame({"movie": [3, 1, None, 2, 9]})
    check(Workflow(joined >> ops.Categorify()).fit(frame), frame)


def test_a_verb_of_whose_operands_the_row_says_that_it_reads_bytes_leaves_the_engine(monkeypatch):
    columns = Schema([ColumnSchema("x", "float64")])
    made = (ColumnSchema("out", "float64"), source("x", Type("float64")).tanh())
    program = build([made], columns)
    assert is_one_query(program)
    monkeypatch.setitem(VERBS, "tanh", replace(VERBS["tanh"], bytes_of=("float",)))
    assert not is_one_query(program)
