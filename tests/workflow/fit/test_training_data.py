"""Facts about the training data that a fitted workflow keeps, against plain Python."""

import math

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workflow import Workflow, WorkflowFormatError, ops
from workflow.data import column_facts
from workflow.schema.dtypes import SchemaError
from workflow.schema.training_data import Coverage, TrainedColumn, TrainingData

ROWS = {
    "user": [7, 7, None, 9, 11, 7],
    "price": [1.5, None, float("nan"), -2.0, 40.0, 3.0],
    "city": ["a", "b", "a", None, "a", "a"],
    "tags": [["x", "y"], [], None, ["x", None], ["x"], ["z", "z", "z"]],
    "count": [1, 2, None, 3, -4, 5],
    "flag": [True, None, False, True, True, True],
}


def graph():
    ids = ["user", "city", "tags"] >> ops.Categorify()
    return Workflow(ids + (["price", "count"] >> ops.Normalize()) + "flag")


def by_hand(name, frame):
    values = frame[name].to_list()
    if name == "tags":
        return sum(tag is not None for row in values for tag in row or []), None, None, None
    known = [v for v in values if v is not None and not (isinstance(v, float) and math.isnan(v))]
    ends = (min(known), max(known)) if name in ("price", "count") else (None, None)
    return len(values), len(values) - len(known), *ends


def expect_facts(found, frame):
    assert found.rows == frame.height
    for name, column in found.columns.items():
        have = column.values, column.nulls, column.minimum, column.maximum
        assert have == by_hand(name, frame), name


@pytest.mark.parametrize("form", ["frame", "lazy", "file", "files"])
def test_facts_are_those_of_the_rows(form, tmp_path):
    frame = pl.DataFrame(ROWS)
    data = frame
    if form == "lazy":
        data = frame.lazy().filter(pl.lit(True))
    elif form == "file":
        data = tmp_path / "a.parquet"
        frame.write_parquet(data, row_group_size=2)
    elif form == "files":
        data = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
        frame.head(2).write_parquet(data[0])
        pq.write_table(frame.tail(4).to_arrow(), data[1])
    workflow = graph().fit(data)
    expect_facts(workflow.training_data, frame)
    assert set(workflow.training_data.columns) == set(ROWS)


def test_nulls_in_the_names_of_folders_count(tmp_path):
    for day, prices in {"1": [1.0, 2.0], "__HIVE_DEFAULT_PARTITION__": [3.0, None, 4.0]}.items():
        (tmp_path / f"day={day}").mkdir()
        pl.DataFrame({"price": prices}).write_parquet(tmp_path / f"day={day}" / "0.parquet")
    graph = (["day"] >> ops.Categorify()) + (["price"] >> ops.Normalize())
    found = Workflow(graph).fit(tmp_path).training_data
    assert {name: column.nulls for name, column in found.columns.items()} == {"day": 3, "price": 1}


def test_files_without_rows_or_without_a_type_count(tmp_path):
    """As of a day without sales, and of pandas where all values are missing; no fact was known."""
    counts = pa.array([3, None, -4]), pa.array([], pa.int64()), pa.nulls(2)
    for number, own in enumerate(counts):
        pq.write_table(pa.table({"count": own}), tmp_path / f"{number}.parquet")
    found = Workflow(["count"] >> ops.Normalize()).fit(tmp_path).training_data
    count = found.columns["count"]
    assert (found.rows, count.nulls, count.minimum, count.maximum) == (5, 3, -4, 3)


def test_a_sample_of_many_row_groups_is_scaled(tmp_path, monkeypatch):
    monkeypatch.setattr(column_facts, "ROWS_OF_A_SAMPLE", 100)
    rows = pl.DataFrame({"price": [1.0, float("nan")] * 400, "tags": [["a"], ["a", "b"]] * 400})
    rows.write_parquet(tmp_path / "a.parquet", row_group_size=80)
    columns = (["price"] >> ops.Normalize()) + (["tags"] >> ops.Categorify())
    found = Workflow(columns).fit(tmp_path / "a.parquet").training_data
    assert found.rows == 800
    assert (found.columns["price"].nulls, found.columns["tags"].values) == (400, 1200)


def test_coverage_counts_the_values_that_new_rows_will_bring():
    """The estimate of Good and Turing: a value seen once stands for those that were not seen."""
    users = [1] * 50 + [2] * 30 + [3] * 10 + [4, 5, 6, 7] + [8] * 2 + [None] * 4
    for settings, size, unknown in (
        ({}, 8, 4 / 96),
        ({"freq_threshold": 2}, 4, (4 + 2) / 96),
        ({"max_size": 5}, 2, (4 + 2 + 10) / 96),
        ({"vocabs": {"user": [1, 2, 3]}}, 3, None),
    ):
        workflow = Workflow(["user"] >> ops.Categorify(**settings)).fit({"user": users})
        coverage = workflow.training_data.columns["user"].coverage
        assert coverage.size == size, settings
        assert coverage.unknown == (unknown if unknown is None else pytest.approx(unknown))


def test_further_rows_have_the_expected_share_of_unknown_values():
    drawn = pl.Series(range(1, 4_001)).sample(40_000, with_replacement=True, seed=3)
    drawn = (4_000 / drawn).cast(pl.Int64)
    seen, further = drawn.head(2_000), drawn.tail(20_000)
    workflow = Workflow(["item"] >> ops.Categorify()).fit({"item": seen})
    unknown = (~further.is_in(seen.unique().to_list())).mean()
    expected = workflow.training_data.columns["item"].coverage.unknown
    assert unknown == pytest.approx(expected, abs=0.01)


def test_facts_are_saved_and_kept_by_parts_of_a_workflow(tmp_path):
    workflow = graph().fit(ROWS)
    workflow.save(tmp_path / "saved")
    assert Workflow.load(tmp_path / "saved").training_data == workflow.training_data
    smaller = workflow.remove_inputs(["user", "tags"])
    assert set(smaller.training_data.columns) == {"price", "city", "count", "flag"}
    expect_facts(smaller.training_data, pl.DataFrame(ROWS))


def test_infinite_ends_are_not_known_and_do_not_prevent_saving(tmp_path):
    rows = pl.DataFrame({"price": [math.inf, 1.0, None], "city": ["a", "b", "a"]})
    rows.write_parquet(tmp_path / "rows.parquet")
    for data in (rows, tmp_path / "rows.parquet"):
        Workflow((["city"] >> ops.Categorify()) + "price").fit(data).save(tmp_path / "saved")
        found = Workflow.load(tmp_path / "saved").training_data.columns["price"]
        assert found == TrainedColumn(values=3, nulls=1, minimum=1.0, maximum=None)


def test_nothing_is_read_if_no_operator_learns():
    workflow = Workflow(["price"] >> ops.FillMissing(0)).fit(ROWS)
    assert workflow.training_data == TrainingData()


FACTS = TrainingData(4, {"age": TrainedColumn(4, 1, 7, 31.5, Coverage(3, 0.25))})


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("rows"),
        lambda d: d.update(further=1),
        lambda d: d.update(rows=-1),
        lambda d: d.update(rows=True),
        lambda d: d.update(rows=10**400),
        lambda d: d.update(columns=[]),
        lambda d: d["columns"].update(age=None),
        lambda d: d["columns"]["age"].pop("nulls"),
        lambda d: d["columns"]["age"].update(nulls="1"),
        lambda d: d["columns"]["age"].update(minimum=float("nan")),
        lambda d: d["columns"]["age"].update(minimum=-(10**400)),
        lambda d: d["columns"]["age"].update(maximum="x"),
        lambda d: d["columns"]["age"].update(coverage={"size": 3}),
        lambda d: d["columns"]["age"]["coverage"].update(size=1.5),
    ],
)
def test_a_hostile_description_is_refused(change):
    document = FACTS.to_json()
    assert TrainingData.from_json(document) == FACTS
    change(document)
    with pytest.raises(SchemaError, match="Received"):
        TrainingData.from_json(document)


def test_a_saved_workflow_with_invalid_facts_is_refused(tmp_path, monkeypatch):
    workflow = graph().fit(ROWS)
    monkeypatch.setattr(TrainingData, "to_json", lambda _: {"rows": "many", "columns": {}})
    workflow.save(tmp_path / "saved")
    with pytest.raises(WorkflowFormatError, match="whole number"):
        Workflow.load(tmp_path / "saved")
