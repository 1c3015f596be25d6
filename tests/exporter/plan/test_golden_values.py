"""Golden rows of data that hold the value which stands for null in requests."""

import polars as pl
import pytest

from exporter import ServingOptions
from serving.embedded.golden import read_golden
from training import models
from workflow import Workflow, ops


@pytest.mark.parametrize(
    ("dtype", "code"), [(pl.Int8, -128), (pl.Int64, -(2**63)), (pl.UInt8, 255)]
)
def test_a_category_that_stands_for_null_in_requests_is_not_sent_as_one(dtype, code, export):
    rows = pl.DataFrame({"hour": pl.Series([code, 1, 3, code, None], dtype=dtype)})
    workflow = Workflow(["hour"] >> ops.Categorify()).fit(rows)
    network = models.mlp(workflow.output_schema, hidden=(2,))
    with pytest.warns(UserWarning, match=rf"value {code} of 'hour' .*stands for null") as warned:
        report = export(network, workflow, labels=[], serving=ServingOptions(runtime="onnx"))
    assert len(warned) == 1
    sent = read_golden(report.paths["movies"] / "golden.json")
    coded = {row.name for row in sent if row.request["hour"][0, 0] == code}
    assert coded == {"nulls"}
    assert {1, 3} <= {int(row.request["hour"][0, 0]) for row in sent}
