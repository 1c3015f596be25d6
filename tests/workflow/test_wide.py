"""Data of very many columns: learnt as of few, from a graph that does not grow with their square."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from workflow import Workflow, fit, ops
from workflow.graph import ConcatNode, as_node
from workflow.learn import WIDE

NAMES = [f"c{n}" for n in range(WIDE + 20)]
ROWS = 1_000


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    random = np.random.default_rng(0)
    return pl.DataFrame({name: random.integers(0, 9, ROWS) for name in NAMES})


def outputs(workflow: Workflow, rows: pl.DataFrame) -> pl.DataFrame:
    return workflow.transform(rows[:50]).collect()


@pytest.mark.parametrize("operator", [ops.Categorify(), ops.Normalize(), ops.FillMedian()], ids=str)
def test_what_is_learnt_of_many_columns_is_what_is_learnt_of_each(
    operator, rows, tmp_path, monkeypatch
):
    rows.write_parquet(tmp_path / "rows.parquet", row_group_size=100)
    monkeypatch.setattr(fit, "VALUES_OF_A_WIDE_PASS", 300 * len(NAMES))  # several passes of it
    few = NAMES[:3]
    want = outputs(Workflow(few >> operator).fit(rows.select(few)), rows)
    for data in (rows, rows.lazy(), tmp_path / "rows.parquet"):
        assert (
            outputs(Workflow(NAMES >> operator).fit(data), rows).select(want.columns).equals(want)
        )


def test_a_sum_of_many_nodes_is_one_node():
    node = as_node("c0")
    for name in NAMES[1:]:
        node = node + ([name] >> ops.FillMissing())
    assert isinstance(node, ConcatNode)
    assert len(node.parents) == len(NAMES)
    assert len(Workflow(node + node).nodes) == 2 * len(NAMES)


def test_a_sum_that_is_part_of_others_stays_as_it_is(rows):
    first = as_node("c0") + "c1"
    second = first + "c2"
    assert Workflow(first).fit(rows).output_schema.names == ["c0", "c1"]
    assert Workflow("c3" + second).fit(rows).output_schema.names == ["c3", "c0", "c1", "c2"]
