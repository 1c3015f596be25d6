"""Every operator that works row by row is served as it was trained."""

from __future__ import annotations

import polars as pl
import pytest
from interpreters import OTHERS, REFERENCE, Interpreter, equality_of
from operator_cases import Case, as_columns, assert_same_columns, cases, nulls, row_by_row

from workflow.operator.operator import Operator


@pytest.mark.parametrize("interpreter", OTHERS, ids=repr)
@cases(row_by_row)
def test_interpreters_agree_on_hard_rows(case: Case, interpreter: Interpreter):
    inputs = case.without_subnormals if interpreter.name == "tensorflow" else case.inputs
    received = interpreter.answer(case.workflow.program, inputs)
    if received is not None:
        expected = REFERENCE.run(case.workflow.program, inputs)
        assert_same_columns(expected, received, case.equality)


@cases(row_by_row)
def test_transform_is_what_is_served(case: Case):
    assert_same_columns(case.served, as_columns(case.transformed), case.equality)


@cases(row_by_row)
def test_row_alone_is_the_row_in_a_batch(case: Case):
    rows, together = case.hard_rows, case.transformed
    alone = pl.collect_all([case.workflow.transform(rows[row]) for row in range(rows.height)])
    for row in range(rows.height):
        assert_same_columns(as_columns(together[row]), as_columns(alone[row]))


@cases(row_by_row)
def test_no_row_gives_no_row(case: Case):
    empty = as_columns(case.fitted.clear().select(case.workflow.program.inputs.names))
    assert all(c.rows == 0 for c in REFERENCE.run(case.workflow.program, empty).values())


@cases(row_by_row)
def test_fitted_to_nulls_it_is_served_as_it_transforms(case: Case):
    workflow = case.fit(nulls(case.fitted.schema, 3))
    made = workflow.transform(case.hard_rows).collect()
    inputs = as_columns(case.hard_rows.select(workflow.program.inputs.names))
    served = REFERENCE.run(workflow.program, inputs)
    assert_same_columns(served, as_columns(made), equality_of(workflow.program))


def learns_from_others(operator: Operator) -> bool:
    return operator.row_by_row and operator.learns and operator.depends_on is not None


@cases(learns_from_others)
def test_what_only_learning_needs_is_not_asked_of_a_client(case: Case):
    bound = case.bound()
    own = bound.operator.own_columns(bound.columns)
    only_learnt = set(bound.operator.dependency_names()) - set(own)
    assert only_learnt.isdisjoint(case.workflow.program.inputs)
    unlabelled = case.hard_rows.drop(only_learnt)
    assert case.workflow.transform(unlabelled).collect().equals(case.transformed)
