"""ListSlice: which elements it takes, and what the schema says of them."""

from __future__ import annotations

import polars as pl
import pytest

from workflow import Workflow, WorkflowError, get_embedding_sizes, ops
from workflow.operator.operator import Operator

LISTS = {"x": [[0, 1, 2, 2, 767], [1, 2, 2, 3], [1, 223, 4], [], None]}


def transformed(operator: Operator, columns) -> pl.DataFrame:
    data = pl.DataFrame(columns)
    return Workflow(data.columns >> operator).fit(data).transform(data).collect()


def test_padded_slices_have_one_length():
    rows = transformed(ops.ListSlice(5, pad=True), LISTS)["x"].to_list()
    assert rows == [[0, 1, 2, 2, 767], [1, 2, 2, 3, 0], [1, 223, 4, 0, 0], [0] * 5, [0] * 5]


@pytest.mark.parametrize(
    "bounds", [(2,), (-2,), (0, 3), (1, 3), (1, -1), (-3, -1), (-2, 4), (3, 1), (0,), (9, 12)]
)
def test_slices_are_those_of_python(bounds):
    start, end = (
        bounds if len(bounds) == 2 else (0, bounds[0]) if bounds[0] > 0 else (bounds[0], None)
    )
    expected = [(row or [])[start:end] for row in LISTS["x"]]
    assert transformed(ops.ListSlice(*bounds), LISTS)["x"].to_list() == expected


def test_schema_says_how_long_padded_lists_are():
    def count(operator: Operator):
        workflow = Workflow(["x"] >> operator).fit(LISTS)
        return workflow.output_schema["x"].properties.get("value_count")

    assert count(ops.ListSlice(-4, pad=True)) == {"min": 4, "max": 4}
    assert count(ops.ListSlice(1, 4)) == {"min": 0, "max": 3}
    assert count(ops.ListSlice(1, -1)) is None
    lengths = ops.ValueCount()
    both = Workflow(["x"] >> lengths >> ops.ListSlice(1, -1)).fit(LISTS)
    assert both.output_schema["x"].properties["value_count"]["max"] == 5


@pytest.mark.parametrize(
    ("operator", "facts"),
    [
        (ops.ListSlice(2), {"cardinality": 7, "domain": {"min": 0, "max": 6, "name": "x"}}),
        (
            ops.ListSlice(2, pad=True),
            {"cardinality": 7, "domain": {"min": 0, "max": 6, "name": "x"}},
        ),
        # An embedding of 7 rows has none for these.
        (ops.ListSlice(2, pad=True, pad_value=7), {}),
        (ops.ListSlice(2, pad=True, pad_value=-1), {}),
    ],
)
def test_slices_of_ids_are_ids(operator, facts):
    data = {"x": [[10, 20, 30], [20], [40], None]}
    schema = Workflow(["x"] >> ops.Categorify() >> operator).fit(data).output_schema
    properties = dict(schema["x"].properties)
    del properties["value_count"], properties["fit_digest"]
    assert properties == facts
    # Without this the models that are made of a schema have no embedding for the column.
    assert get_embedding_sizes(schema) == (({}, {"x": (7, 16)}) if facts else {})


def test_slices_of_months_have_a_row_for_the_padding_before_the_first():
    rows = {"x": pl.Series([[0], []], dtype=pl.List(pl.Datetime("us")))}
    parts = ["x"] >> ops.ListSlice(2) >> ops.DatePart(["month"])
    schema = Workflow(parts >> ops.ListSlice(2, pad=True)).fit(rows).output_schema
    (month,) = schema.columns
    assert month.properties["domain"] == {"min": 0, "max": 12}
    assert month.properties["cardinality"] == 13


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": 0, "pad": True}, "known length"),
        ({"start": 1, "end": -1, "pad": True}, "known length"),
        ({"start": 3, "end": 3, "pad": True}, "known length"),
        ({"start": 2**62}, "bounds between"),
    ],
)
def test_slices_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(WorkflowError, match=message):
        ops.ListSlice(**arguments)


@pytest.mark.parametrize("value", [0.5, "?", 300])
def test_padding_that_the_column_cannot_hold_is_refused(value):
    data = {"x": pl.Series([[1]], dtype=pl.List(pl.Int8))}
    with pytest.raises(WorkflowError, match=r"'x'|string"):
        transformed(ops.ListSlice(2, pad=True, pad_value=value), data)


def test_scalars_are_not_sliced():
    with pytest.raises(WorkflowError, match=r"ListSlice needs lists\. .* 'x', int64"):
        transformed(ops.ListSlice(2), {"x": [1]})
