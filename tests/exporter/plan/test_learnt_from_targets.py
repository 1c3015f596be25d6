"""Operators over groups and whole frames, exported: no target is asked for, no row is dropped."""

import polars as pl
import pytest
from small_export import rows, tree

from exporter import ExportError
from training import models
from workflow import Workflow, get_embedding_sizes, ops

CONTINUOUS = ["TE_userId_rating", "userId_count", "userId_price_mean"]


def features():
    ids = ["userId"] >> ops.Categorify()
    encoded = ["userId"] >> ops.TargetEncoding("rating")
    described = ["userId"] >> ops.JoinGroupby("price", stats=["count", "mean"])
    return ids + encoded + (described >> ops.FillMissing(0))


def test_client_is_asked_for_no_target(export):
    workflow = Workflow(features() + ["rating"]).fit(rows())
    network = models.mlp(get_embedding_sizes(workflow), CONTINUOUS, max_embedding_dim=4)
    report = export(network, workflow)
    assert [wire.name for wire in report.plan.published.inputs] == ["userId"]


def test_network_over_filtered_rows_is_refused_before_anything_is_written(export, tmp_path):
    rated = (features() + ["rating"]) >> ops.Filter(lambda df: df["rating"] > 2)
    workflow = Workflow(rated).fit(rows())
    assert workflow.transform(rows()).collect().height < rows().filter(pl.col("rating") > 0).height
    network = models.mlp(get_embedding_sizes(workflow), CONTINUOUS, max_embedding_dim=4)
    with pytest.raises(ExportError, match=r"Filter over userId, TE_userId_rating, .* rating needs"):
        export(network, workflow)
    assert tree(tmp_path) == {}
