"""Programs in stages: the same answers, and a lookup is made once however often it is used."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from workflow import Workflow, ops
from workflow.expressions.column import Column
from workflow.expressions.polars import expressions
from workflow.expressions.polars_stages import apply, stages
from workflow.expressions.program import Program, build
from workflow.expressions.tree import Expression, source, where
from workflow.expressions.types import Type
from workflow.schema import ColumnSchema, Schema

# Too far apart for a table by address, so that they are found by their hash.
KEYS = Column(np.arange(0, 2**40, 2**36) + 7)
ROWS = pl.DataFrame({"x": [*KEYS.array.tolist(), 8, -1, None]})


def program_of(expression: Expression, name: str = "x") -> Program:
    made = ColumnSchema("y", expression.type.dtype)
    return build([(made, expression)], Schema([ColumnSchema(name, "int64")]))


def chain(length: int) -> Expression:
    """A lookup of what a lookup has found, and so on."""
    value = source("x", Type("int64"))
    for _ in range(length):
        value = (value.lookup(KEYS, missing=-1) * 2**36) + 7
    return value


def test_the_answers_are_those_of_one_stage():
    program = program_of(chain(3))
    assert len(stages(program)) == 3
    made = apply(ROWS.lazy(), program).collect()
    assert made.equals(ROWS.select(expressions(program)))


def test_a_long_chain_of_lookups_is_no_longer_than_its_lookups():
    plans = [len(apply(ROWS.lazy(), program_of(chain(n))).explain()) for n in (2, 6)]
    assert plans[1] < 5 * plans[0]


@pytest.mark.parametrize("name", ["@1", "@@1", "@"])
def test_a_column_may_be_named_as_a_stage_would_be(name):
    value = source(name, Type("int64"))
    found = value.lookup(KEYS)
    program = program_of(where(found < 0, value, found), name)
    made = apply(ROWS.lazy().rename({"x": name}), program).collect()["y"]
    assert made.to_list() == [*range(KEYS.rows), 8, -1, None]


def test_a_lookup_that_is_an_output_itself_keeps_its_name():
    found = source("x", Type("int64")).lookup(KEYS)
    columns = [ColumnSchema("row", "int64"), ColumnSchema("twice", "int64")]
    program = build(
        zip(columns, [found, found * 2], strict=True), Schema([ColumnSchema("x", "int64")])
    )
    made = apply(pl.LazyFrame({"x": [7, 8]}), program).collect()
    assert made.to_dict(as_series=False) == {"row": [0, -1], "twice": [0, -2]}


def test_ids_of_one_use_take_no_stage():
    ids = ["a", "b"] >> ops.Categorify()
    assert len(stages(Workflow(ids).fit({"a": [1, 2], "b": ["x", None]}).program)) == 1
