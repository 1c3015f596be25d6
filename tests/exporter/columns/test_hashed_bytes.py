"""Hashes of bytes, which ONNX has no operator for, are refused by the name of their operator."""

import polars as pl
import pytest

from exporter import ExportError, ServingOptions, export_ensemble
from training import models
from workflow import Workflow, ops

ROWS = {"city": ["a", "b"] * 5, "shop": ["x", "y"] * 5, "user": [1, 2] * 5}


def export(features, folder, runtime, take=None):
    workflow = Workflow(features).fit(pl.DataFrame(ROWS))
    schema = workflow.output_schema
    network = models.mlp(schema if take is None else schema.select(take), hidden=[4])
    options = ServingOptions(runtime=runtime, prove="process")
    return export_ensemble(network, workflow, "hashes", folder, serving=options)


@pytest.mark.parametrize("runtime", ["onnx", "fused_onnx"])
@pytest.mark.parametrize(
    ("features", "received"),
    [
        ([["city", "shop"]] >> ops.HashedCross(10), "HashedCross, of 'city', 'shop'"),
        (["city"] >> ops.Categorify(num_buckets=4), "Categorify, of 'city'"),
        (
            (["city"] >> ops.HashBucket(4)) + ([["shop", "user"]] >> ops.HashedCross(10)),
            "HashBucket, HashedCross, of 'city', 'shop'",
        ),
        # The operator that hashes, and not those behind it.
        (
            ["city"] >> ops.HashBucket(4) >> ops.AddTags(["x"]) >> ops.Rename(postfix="_2"),
            "HashBucket, of 'city'",
        ),
    ],
)
def test_the_operator_is_named(features, received, runtime, tmp_path):
    remedy = (
        "Use Categorify without num_buckets before them or in their place, or use "
        'runtime="tensorflow" or runtime="fused_tensorflow".'
    )
    with pytest.raises(ExportError) as error:
        export(features, tmp_path / "models", runtime)
    assert f"Received: {received}. {remedy}" in str(error.value)
    assert not (tmp_path / "models").exists()


def test_a_hash_that_is_not_served_or_of_numbers_is_none(tmp_path):
    hashed = ["city"] >> ops.HashBucket(4) >> ops.Rename(postfix="_hash")
    features = (["user"] >> ops.HashBucket(4)) + hashed
    report = export(features, tmp_path / "models", "onnx", ["user"])
    assert report.plan.pipeline.features.unused == ("city_hash",)
