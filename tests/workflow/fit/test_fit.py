"""The learnt state does not depend on how the data is divided, nor on which machine has which part."""

from __future__ import annotations

import re
from datetime import time, timedelta
from decimal import Decimal

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from workflow import Workflow, WorkflowError, ops
from workflow.fit import learn_operators
from workflow.operator.operator import OPERATORS
from workflow.schema.tags import fits_of

EXAMPLES = [
    pytest.param(example, id=f"{name}-{number}")
    for name, operator in OPERATORS.items()
    if operator.learns
    for number, example in enumerate(operator.examples())
]


@pytest.fixture
def row_by_row(monkeypatch):
    """Each row is a part of its own."""
    for module in ("fit_graph", "learn_operators"):
        monkeypatch.setattr(f"workflow.fit.{module}.ROWS_OF_A_PASS", 1)
    monkeypatch.setattr("workflow.fit.learn_operators.FAN_IN", 3)


@pytest.mark.usefixtures("row_by_row")
@pytest.mark.parametrize("example", EXAMPLES)
def test_every_operator_learns_the_same_from_parts(example, tmp_path):
    frame = pl.DataFrame(example.columns)
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=1)
    left = example.left or frame.columns
    whole = Workflow(left >> example.operator).fit(frame)
    want = whole.transform(frame).collect()
    for data in (tmp_path / "rows.parquet", frame.lazy()):
        parts = Workflow(left >> example.operator).fit(data)
        assert parts.output_schema.names == whole.output_schema.names
        made = parts.transform(frame).collect()
        assert_frame_equal(made, want, rel_tol=1e-5, abs_tol=1e-6)
        assert fits_of(parts.output_schema.columns) == fits_of(whole.output_schema.columns)


@pytest.mark.usefixtures("row_by_row")
def test_an_operator_after_one_over_the_whole_frame_sees_the_whole(tmp_path):
    frame = pl.DataFrame({"user": [7, 9, 7, 7], "item": [1, 2, 3, 1]})
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=1)
    sessions = ["user", "item"] >> ops.Groupby("user", aggs={"item": "count"})
    workflow = Workflow(sessions >> ops.Categorify()).fit(tmp_path / "rows.parquet")
    want = Workflow(sessions >> ops.Categorify()).fit(frame)
    assert workflow.transform(frame).collect().equals(want.transform(frame).collect())


def test_without_cudf_the_gpu_is_refused():
    with pytest.raises(
        WorkflowError,
        match=r"needs cuDF.*without \[serve\]: pip install \"parquet-to-triton\[gpu\]",
    ):
        Workflow(["n"] >> ops.Categorify()).fit({"n": [1]}, engine="gpu")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pl.Series([Decimal("1.50"), None]), [1.5, None]),
        # Ids of a database, or DuckDB's sum of integers: as floats these two would be one.
        (pl.Series([2**53, 2**53 + 1], dtype=pl.Decimal(38, 0)), [2**53, 2**53 + 1]),
        (pl.Series([timedelta(minutes=2), None]), [120, None]),
        (pl.Series([time(17, 30), None]), [17, None]),
        (pl.Series([b"\x00\xff", None]), ["00ff", None]),
    ],
)
def test_the_error_for_a_type_that_is_none_of_ours_says_how_to_convert_it(values, expected):
    """The advice works: a workflow takes what it makes."""
    data, workflow = pl.DataFrame({"the price": values}), Workflow(["the price"])
    with pytest.raises(WorkflowError, match="Expected column 'the price' as numbers") as refusal:
        workflow.fit(data)
    code = re.search(r"Convert it before, in Polars: (polars.*)\.$", str(refusal.value))[1]
    converted = data.with_columns(eval(code, {"polars": pl}))  # noqa: S307 - our own text
    assert converted["the price"].to_list() == expected
    assert workflow.fit(converted).transform(converted).collect().equals(converted)


def test_a_struct_is_to_be_taken_apart():
    data = pl.DataFrame({"place": [{"x": 1, "y": 2}]})
    with pytest.raises(
        WorkflowError, match=r"frame\.unnest\('place'\) makes a column of each field"
    ):
        Workflow(["place"]).fit(data)
    assert data.unnest("place").columns == ["x", "y"]


def test_a_query_is_learnt_from_in_pieces_and_read_no_further_than_needed(monkeypatch):
    monkeypatch.setattr(learn_operators, "ROWS_OF_A_PASS", 10)
    parts = []
    learn_part = learn_operators.learn_part

    def counted(learning, frame, engine, **settings):
        parts.append(frame.collect().height)
        return learn_part(learning, frame, engine, **settings)

    monkeypatch.setattr(learn_operators, "learn_part", counted)
    rows = pl.DataFrame({"a": [number % 4 for number in range(95)]})
    learnt = Workflow(["a"] >> ops.Categorify()).fit(rows.lazy())
    assert parts == [10] * 9 + [5]
    want = Workflow(["a"] >> ops.Categorify()).fit(rows).reverse_mapping("a")
    assert learnt.reverse_mapping("a").equals(want)
    parts.clear()
    Workflow(["a"] >> ops.JoinExternal({"a": [1], "b": [2]}, on="a")).fit(rows.lazy())
    assert parts == [10]
