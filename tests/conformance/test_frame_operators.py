"""Every operator that needs more than a row: over many files, and when served."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest
from operator_cases import Case, as_columns, assert_same_columns, cases, cut, row_by_row

from workflow import Workflow, WorkflowError
from workflow.operator.frame_operator import OutOfFoldOperator, WindowOperator
from workflow.operator.operator import Operator


def of_whole_frames(operator: Operator) -> bool:
    return not row_by_row(operator)


@cases(of_whole_frames)
def test_it_is_refused_where_it_would_be_served(case: Case, tmp_path):
    case.workflow.save(tmp_path / "saved")
    for workflow in (case.workflow, Workflow.load(tmp_path / "saved")):
        for ask in (lambda w: w.program, lambda w: w.served(w.output_schema.names)):
            with pytest.raises(WorkflowError) as caught:
                ask(workflow)
            said = str(caught.value)
            assert said.startswith(f"{case.operator.label} over ")
            assert all(name in said for name in case.bound().columns)
            assert "transform_to_parquet" in said


def of_windows(operator: Operator) -> bool:
    return isinstance(operator, WindowOperator)


@cases(of_windows)
def test_columns_beside_a_window_are_served(case: Case):
    beside = case.fitted.columns[0]
    made = case.example.left >> case.operator
    workflow = Workflow([beside] + made).fit(case.fitted)
    assert list(workflow.served([beside])) == [beside]
    both = workflow.transform(case.hard_rows).collect()
    assert both[beside].to_list() == case.hard_rows[beside].to_list()
    assert both.drop(beside).equals(case.transformed)


def of_folds(operator: Operator) -> bool:
    return isinstance(operator, OutOfFoldOperator)


@cases(of_folds)
def test_folds_do_not_depend_on_files(case: Case, tmp_path):
    for number, part in enumerate(cut(case.fitted, 4)):
        part.write_parquet(tmp_path / f"{number}.parquet")
    whole = case.unfitted().fit_transform(case.fitted).collect()
    parts = case.unfitted().fit_transform(tmp_path).collect(engine="streaming")
    assert whole.schema == case.transformed.schema
    assert_same_columns(as_columns(whole), as_columns(parts))


@cases(lambda operator: of_folds(operator) and operator.kfold > 1)
def test_what_is_learnt_from_a_row_does_not_reach_that_row(case: Case):
    before = case.unfitted().fit_transform(case.fitted).collect()
    reached = 0
    for row, changed in with_other_dependencies(case):
        after = case.unfitted().fit_transform(changed).collect()
        assert after[row].equals(before[row])
        reached += not after.equals(before)
    assert reached, "No row reaches another: nothing was learnt."


def with_other_dependencies(case: Case) -> Iterator[tuple[int, pl.DataFrame]]:
    """The rows fitted to, each time with other values in one row of what is learnt from."""
    bound = case.bound()
    for row in range(case.fitted.height):
        changed = case.fitted.clone()
        for name in bound.operator.dependency_names():
            values = changed[name].to_list()
            flag = changed[name].dtype == pl.Boolean
            values[row] = not values[row] if flag else (values[row] or 0) + 10
            changed = changed.with_columns(pl.Series(name, values, dtype=changed[name].dtype))
        yield row, changed
