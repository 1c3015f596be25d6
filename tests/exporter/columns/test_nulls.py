"""Inputs may be null if they make no output null, each considered by itself."""

import polars as pl
import pytest

from exporter import ExportError
from exporter.columns.nulls import settle_nulls
from workflow import Workflow, ops, where
from workflow.expressions.program.program import with_nullable_inputs

ROWS = pl.DataFrame(
    {
        "a": [1, None, 3],
        "b": [4, 5, None],
        "price": [0.5, None, 2.0],
        "genres": [["x", None], None, []],
        "flag": [True, False, True],
    }
)
# What is computed, and the inputs that may be null.
SETTLED = {
    "ids": (["a", "genres"] >> ops.Categorify(), {"a", "genres"}),
    "as it is": (["a", "price"] >> ops.LambdaOp(lambda x: x * 2), set()),
    "filled": ("price" >> ops.FillMissing(0.0), {"price"}),
    "lists of one length": (
        "genres" >> ops.Categorify() >> ops.ListSlice(3, pad=True),
        {"genres"},
    ),
    "filled by another": ("a" >> ops.LambdaOp(lambda a, df: a.fill_null(df.b), ["b"]), {"a"}),
    "either": (
        "price" >> ops.LambdaOp(lambda p, df: where(df.a.is_null(), 0.0, p), ["a"]),
        {"a"},
    ),
    "once filled and once not": (
        ("a" >> ops.FillMissing(0) >> ops.Rename(postfix="_filled")) + "a",
        set(),
    ),
    "a bool, which has no null code": ("flag" >> ops.LambdaOp(lambda f: f.is_null()), set()),
}


@pytest.mark.parametrize("case", SETTLED)
def test_an_input_may_be_null_where_no_output_becomes_null(case):
    node, allowed = SETTLED[case]
    program = with_nullable_inputs(
        Workflow(node).fit(ROWS).program, dict.fromkeys(ROWS.columns, True)
    )
    settled = settle_nulls(program)
    assert {column.name for column in settled.inputs.columns if column.nullable} == allowed
    assert not any(column.nullable for column in settled.output_schema.columns)


def test_an_output_that_is_null_by_itself_is_refused():
    table = pl.DataFrame({"a": [1], "weight": [0.5]})
    program = Workflow(["a"] >> ops.JoinExternal(table, on="a")).fit(ROWS).program
    with pytest.raises(
        ExportError, match=r"'weight' can be null, and a network takes no null.*trees.*nan"
    ):
        settle_nulls(program)
