"""Golden rows of data that hold the value which stands for null in requests."""

from datetime import date

import polars as pl
import pytest

from exporter import ServingOptions
from serving.embedded.golden import read_golden
from training import models
from workflow import ColumnSelector, Workflow, ops


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


@pytest.mark.parametrize(("dtype", "code"), [(pl.Int8, -128), (pl.UInt16, 65_535)])
def test_a_number_that_stands_for_null_in_requests_is_told(dtype, code, export):
    """The client alone refused it, when the model was served."""
    rows = pl.DataFrame({"hour": pl.Series([code, 1, 3], dtype=dtype)})
    workflow = Workflow(["hour"] >> ops.FillMissing() >> ops.Normalize()).fit(rows)
    network = models.mlp(workflow.output_schema, hidden=(2,))
    with pytest.warns(UserWarning, match=rf"value {code} of 'hour' .*stands for null"):
        export(network, workflow, labels=[], serving=ServingOptions(runtime="onnx"))


DAY = 86_400_000_000  # microseconds
FIRST_DAY = date(1700, 1, 1)  # of the golden rows
AFTER_IT = (date(1700, 1, 2) - date(1970, 1, 1)).days * DAY


@pytest.mark.parametrize(
    ("known", "unseen"),
    [
        (pl.Series([0, 1, 2, 4, 254], dtype=pl.UInt8), 3),
        (pl.Series([FIRST_DAY, date(9999, 12, 31)]), AFTER_IT),
    ],
)
def test_a_category_is_unseen_beside_both_ends_of_the_dtype(known, unseen, export):
    """The row of unseen values had the smallest value, a known one: no row proved an unknown id."""
    workflow = Workflow(["hour"] >> ops.Categorify()).fit(pl.DataFrame({"hour": known}))
    network = models.mlp(workflow.output_schema, hidden=(2,))
    report = export(network, workflow, labels=[], serving=ServingOptions(runtime="onnx"))
    sent = read_golden(report.paths["movies"] / "golden.json")
    assert unseen in {int(row.request["hour"][0, 0]) for row in sent}


OF_EACH = pl.DataFrame(
    {
        "bool": [True, False, True],
        "uint16": pl.Series([0, 7, 65_534], dtype=pl.UInt16),
        "int64": [-1, 0, 2**62],
        "float32": pl.Series([0.5, -1.0, 2.0], dtype=pl.Float32),
        "string": ["", "a", "b"],
        "date": [date(1960, 1, 1), date(2024, 2, 29), date(2024, 2, 29)],
    }
)


STEPS = {"date": ops.DatePart(["month"]), "float32": ops.Bucketize([0.0, 1.0])}


@pytest.mark.parametrize("name", OF_EACH.columns)
def test_ids_of_each_kind_of_column_are_exported_and_proven(name, export):
    given = ColumnSelector([name])
    given = (given >> STEPS[name] if name in STEPS else given) >> ops.Categorify()
    workflow = Workflow(given).fit(OF_EACH)
    network = models.mlp(workflow.output_schema, hidden=(2,))
    report = export(network, workflow, labels=[], serving=ServingOptions(runtime="onnx"))
    sent = {row.name for row in read_golden(report.paths["movies"] / "golden.json")}
    # No request holds a null among booleans.
    assert ("nulls" in sent) == (name != "bool")
