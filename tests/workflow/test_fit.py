"""What is learnt does not depend on how the data is cut, nor on which machine has which part."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from workflow import Workflow, WorkflowError, ops
from workflow.operator import OPERATORS

EXAMPLES = [
    pytest.param(example, id=f"{name}-{number}")
    for name, operator in OPERATORS.items()
    if operator.learns
    for number, example in enumerate(operator.examples())
]


@pytest.fixture
def row_by_row(monkeypatch):
    """Each row is a part of its own."""
    monkeypatch.setattr("workflow.fit.ROWS_OF_A_PASS", 1)
    monkeypatch.setattr("workflow.learn.FAN_IN", 3)


@pytest.mark.usefixtures("row_by_row")
@pytest.mark.parametrize("example", EXAMPLES)
def test_every_operator_learns_the_same_from_parts(example, tmp_path):
    frame = pl.DataFrame(example.columns)
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=1)
    left = example.left or frame.columns
    parts = Workflow(left >> example.operator).fit(tmp_path / "rows.parquet")
    whole = Workflow(left >> example.operator).fit(frame)
    assert parts.output_schema.names == whole.output_schema.names
    made, want = parts.transform(frame).collect(), whole.transform(frame).collect()
    assert_frame_equal(made, want, rel_tol=1e-5, abs_tol=1e-6)


@pytest.mark.usefixtures("row_by_row")
def test_an_operator_after_one_over_the_whole_frame_sees_the_whole(tmp_path):
    frame = pl.DataFrame({"user": [7, 9, 7, 7], "item": [1, 2, 3, 1]})
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=1)
    sessions = ["user", "item"] >> ops.Groupby("user", aggs={"item": "count"})
    workflow = Workflow(sessions >> ops.Categorify()).fit(tmp_path / "rows.parquet")
    want = Workflow(sessions >> ops.Categorify()).fit(frame)
    assert workflow.transform(frame).collect().equals(want.transform(frame).collect())


@pytest.fixture
def gpu_on_the_cpu(monkeypatch):
    """What is a query for the GPU runs on the CPU: the way to it is the same."""
    monkeypatch.setattr("workflow.engine.find_spec", lambda _: True)
    monkeypatch.setattr("workflow.learn.collect_on_gpu", pl.LazyFrame.collect)
    monkeypatch.setattr("workflow.learn.collect_all", lambda queries, _: pl.collect_all(queries))


@pytest.mark.usefixtures("gpu_on_the_cpu")
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_way_to_the_gpu_learns_the_same(example, tmp_path):
    frame = pl.DataFrame(example.columns)
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=2)
    left = example.left or frame.columns
    gpu = Workflow(left >> example.operator).fit(tmp_path / "rows.parquet", engine="gpu")
    cpu = Workflow(left >> example.operator).fit(frame)
    assert_frame_equal(gpu.transform(frame).collect(), cpu.transform(frame).collect())


@pytest.mark.usefixtures("gpu_on_the_cpu")
def test_the_gpu_does_not_learn_from_lists_of_other_rows_and_says_what_does():
    frame = pl.DataFrame({"user": [7, 9, 7], "item": [1, 2, 3]})
    sessions = ["user", "item"] >> ops.Groupby("user", aggs={"item": "list"})
    next_items = sessions["item_list"] >> ops.LambdaOp(lambda item: item + 1)
    with pytest.raises(WorkflowError, match=r'item_list.* Fit with engine="cpu"'):
        Workflow(next_items >> ops.Categorify()).fit(frame, engine="gpu")


def test_without_cudf_the_gpu_is_refused():
    with pytest.raises(WorkflowError, match=r"needs cuDF: pip install"):
        Workflow(["n"] >> ops.Categorify()).fit({"n": [1]}, engine="gpu")


def test_a_column_of_a_type_that_is_none_of_ours_is_named():
    column = pl.Series("price", ["1.5"], dtype=pl.String).cast(pl.Decimal(10, 2))
    with pytest.raises(WorkflowError, match="price"):
        Workflow(["price"] >> ops.Normalize()).fit(column.to_frame())
