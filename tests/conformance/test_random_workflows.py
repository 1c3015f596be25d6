"""Random workflows: a frame and files, one row and many, saved and served, all give the same."""

from __future__ import annotations

import polars as pl
from hypothesis import given, reject
from interpreters import REFERENCE, equality_of
from operator_cases import as_columns, assert_same_columns
from random_workflows import random_workflows, written
from same_columns import assert_same
from searched import searched

from workflow import Workflow, WorkflowError
from workflow.graph.input_schema import with_integers


@searched(40)
@given(made=random_workflows())
def test_a_frame_and_files_give_the_same(made, tmp_path_factory):
    workflow, whole = fitted(made)
    files = written(made.rows, tmp_path_factory.mktemp("random") / "rows")
    assert workflow.transform(files).collect(engine="streaming").equals(whole)
    out = workflow.transform_to_parquet(files, files.parent / "out")
    assert pl.read_parquet(out).equals(whole)
    workflow.save(files.parent / "saved")
    assert Workflow.load(files.parent / "saved").transform(made.rows).collect().equals(whole)


@searched(40)
@given(made=random_workflows(row_by_row=True))
def test_served_and_alone_a_row_is_the_same(made):
    workflow, whole = fitted(made)
    inputs = workflow.program.inputs
    sent = with_integers(made.rows.lazy(), inputs).select(inputs.names).collect()
    served = REFERENCE.run(workflow.program, as_columns(sent))
    assert_same_columns(served, as_columns(whole), equality_of(workflow.program))
    alone = pl.collect_all([workflow.transform(made.rows[row]) for row in range(made.rows.height)])
    for row, each in enumerate(alone):
        assert_same_columns(as_columns(whole[row]), as_columns(each))


@searched(40)
@given(made=random_workflows())
def test_files_teach_what_a_frame_teaches(made, tmp_path_factory):
    workflow, _ = fitted(made)
    assert_same_states(
        workflow, made.fit(written(made.learnt, tmp_path_factory.mktemp("random") / "rows"))
    )


def fitted(made):
    """The workflow, and the rows that it makes; other examples where an operator refuses a value."""
    try:
        workflow = made.fit(made.learnt)
        return workflow, workflow.transform(made.rows).collect()
    except WorkflowError:  # such as a fraction as an id
        reject()


def assert_same_states(one, other):
    """The same tables, whose floats may differ in the last bits."""
    assert one.states.keys() == other.states.keys()
    for number, state in one.states.items():
        assert state.keys() == other.states[number].keys()
        for name, column in state.items():
            assert_same(column, other.states[number][name])
