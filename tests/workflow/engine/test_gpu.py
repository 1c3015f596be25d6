"""engine="gpu" without a GPU: the same ways and the same queries, which run on the CPU.

What a GPU makes of them is for `tests/gpu/test_operators.py`.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import polars as pl
import pytest
from expected_names import expect_names
from gpu_on_the_host import GpuOnTheHost
from polars.testing import assert_frame_equal

from workflow import Workflow, WorkflowError, ops
from workflow.expressions.cudf.exceptions import VERBS_ON_GPU
from workflow.expressions.language.verbs import VERBS
from workflow.expressions.language.verbs import VERBS as ROWS
from workflow.operator.frame_operator import OutOfFoldOperator
from workflow.operator.operator import OPERATORS

EXAMPLES = [
    pytest.param(example, id=f"{name}-{number}")
    for name, operator in OPERATORS.items()
    for number, example in enumerate(operator.examples())
]


@pytest.fixture(autouse=True)
def gpu_on_the_cpu(monkeypatch):
    """Queries written for the GPU run on the CPU."""
    monkeypatch.setattr("workflow.engine.engine.gpu_engine", lambda: "in-memory")
    monkeypatch.setattr("workflow.engine.engine.find_spec", lambda _: True)
    for module in ("engine.engine", "transform.parquet_sink"):
        monkeypatch.setattr(f"workflow.{module}.rows_on_gpu", lambda: nullcontext(GpuOnTheHost()))


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_operator_learns_the_same(example, tmp_path):
    frame = pl.DataFrame(example.columns)
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=2)
    left = example.left or frame.columns
    gpu = Workflow(left >> example.operator).fit(tmp_path / "rows.parquet", engine="gpu")
    cpu = Workflow(left >> example.operator).fit(frame)
    assert_frame_equal(gpu.transform(frame).collect(), cpu.transform(frame).collect())


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_operator_makes_the_same(example, tmp_path):
    frame = pl.DataFrame(example.columns)
    rows = pl.concat([frame, frame.clear(), frame])
    rows.write_parquet(tmp_path / "rows.parquet", row_group_size=2)
    workflow = Workflow((example.left or frame.columns) >> example.operator).fit(frame)
    made = workflow.transform_to_parquet(tmp_path / "rows.parquet", tmp_path / "out", engine="gpu")
    assert_frame_equal(pl.read_parquet(made), workflow.transform(rows).collect())


OUT_OF_FOLD = [p for p in EXAMPLES if isinstance(p.values[0].operator, OutOfFoldOperator)]


@pytest.mark.parametrize("example", OUT_OF_FOLD)
def test_folds_are_the_same(example, tmp_path):
    frame = pl.DataFrame(example.columns)
    node = (example.left or frame.columns) >> example.operator
    made = Workflow(node).fit_transform_to_parquet(frame, tmp_path, engine="gpu")
    assert_frame_equal(pl.read_parquet(made), Workflow(node).fit_transform(frame).collect())


def test_lists_of_grouped_rows_are_computed_and_learnt_from(tmp_path):
    frame = pl.DataFrame({"user": [7, 9, 7], "item": [1, 2, 3], "city": ["a", None, "b"]})
    sessions = ["user", "item", "city"] >> ops.Groupby("user", aggs=["list"])
    items = sessions["item_list"] >> ops.LambdaOp(lambda item: item * 2) >> ops.Categorify()
    workflow = Workflow(items + (sessions["city_list"] >> ops.HashBucket(50)))
    cpu = workflow.fit(frame).transform(frame).collect()
    gpu = workflow.fit(frame, engine="gpu")
    made = gpu.transform_to_parquet(frame, tmp_path, engine="gpu")
    assert_frame_equal(pl.read_parquet(made), cpu)


def test_the_list_of_what_is_done_otherwise_is_the_one_that_is_documented():
    decisions = Path(__file__).parents[3] / "docs" / "decisions"
    (page,) = decisions.glob("*-queries-on-the-gpu.md")
    _, reexpressed, between = page.read_text().split("\n|---|---|\n")
    named = set(re.findall("`([a-z0-9_]+)`", reexpressed.split("Done between two queries")[0]))
    own = [name for name, row in ROWS.items() if "cudf" in row.reexpressed_on]
    expect_names(f"the first table of docs/decisions/{page.name}", named, own)
    rows = [row for row in between.splitlines() if row.startswith("|")]
    named = set(re.findall("`([a-z0-9_]+)`", " ".join(rows)))
    # `gather` makes lists of single values.
    others = [name for name, row in ROWS.items() if row.bytes_of or not row.elementwise]
    leaving = ["source", "gather", *others]
    expect_names(f'"Done between two queries" in docs/decisions/{page.name}', named, leaving)
    assert VERBS_ON_GPU.keys() == VERBS.keys()


def test_files_have_the_rows_that_were_asked_for(tmp_path):
    frame = pl.DataFrame({"user": [7, 9, 7, 8, 7], "city": ["a", None, "b", "a", "c"]})
    for number in range(2):
        part = frame[number * 2 : number * 2 + 2 + number]
        part.write_parquet(tmp_path / f"{number}.parquet", row_group_size=2)
    workflow = Workflow(["user", "city"] >> ops.Categorify()).fit(frame)
    files = sorted(tmp_path.glob("*.parquet"))
    made = workflow.transform_to_parquet(files, tmp_path / "out", rows_per_file=2, engine="gpu")
    assert [pl.read_parquet(file).height for file in made] == [2, 2, 1]
    assert_frame_equal(pl.read_parquet(made), workflow.transform(frame).collect())


def test_a_number_that_the_fitted_type_does_not_hold_is_refused(tmp_path):
    small = pl.DataFrame({"user": [7, 9]}, schema={"user": pl.Int32})
    workflow = Workflow(["user"] >> ops.Categorify()).fit(small)
    large = pl.DataFrame({"user": [7, 2**32 + 9]})
    large.write_parquet(tmp_path / "large.parquet")
    with pytest.raises(WorkflowError, match=r"'user' as int32.* Received: 4294967305"):
        workflow.transform_to_parquet(tmp_path / "large.parquet", tmp_path / "out", engine="gpu")
    fits = pl.DataFrame({"user": [9, 7]})
    files = workflow.transform_to_parquet(fits, tmp_path / "out", engine="gpu")
    assert pl.read_parquet(files)["user"].to_list() == [4, 3]


def test_lists_of_a_joined_table_are_counted_by_its_rows(tmp_path):
    movies = {"movie": [1, 2, 3], "genres": [["b", "a"], ["a", None], []]}
    ratings = pl.DataFrame({"movie": [2, 1, 2, None, 99, 3]})
    ratings.write_parquet(tmp_path / "ratings.parquet", row_group_size=2)
    ids = (["movie"] >> ops.JoinExternal(movies, on="movie"))["genres"] >> ops.Categorify()
    gpu = Workflow(ids).fit(tmp_path / "ratings.parquet", engine="gpu")
    cpu = Workflow(ids).fit(ratings)
    assert_frame_equal(gpu.transform(ratings).collect(), cpu.transform(ratings).collect())


def test_files_without_rows_make_one_file_without_rows(tmp_path):
    frame = pl.DataFrame({"user": [7, 9]})
    workflow = Workflow(["user"] >> ops.Categorify()).fit(frame)
    for number in range(2):
        frame.clear().write_parquet(tmp_path / f"{number}.parquet")
    files = sorted(tmp_path.glob("*.parquet"))
    (made,) = workflow.transform_to_parquet(files, tmp_path / "out", engine="gpu")
    assert_frame_equal(pl.read_parquet(made), workflow.transform(frame.clear()).collect())
