"""Filter and Dropna: which rows stay, and what may stand beside them."""

from __future__ import annotations

import pytest

from workflow import Workflow, WorkflowError, ops

ROWS = {
    "user": [1, 2, 3, None, 5],
    "price": [0.5, float("nan"), None, 2.0, float("inf")],
    "genres": [["x"], [], None, ["y", None], [None]],
}


def users(step, *columns: str) -> list:
    """The users that are left after a step."""
    workflow = Workflow(list(columns or ROWS) >> step).fit(ROWS)
    return workflow.transform(ROWS).collect()["user"].to_list()


def test_row_is_kept_where_the_condition_holds_and_dropped_where_it_is_null():
    assert users(ops.Filter(lambda df: df["price"] > 1)) == [None, 5]
    assert users(ops.Filter(lambda df: ~(df["price"] > 1))) == [1]
    assert users(ops.Filter(lambda df: df.price.is_null() | (df.user == 5))) == [2, 3, 5]
    assert users(ops.Filter(lambda df: df["genres"].list_length() == 0)) == [2, 3]


def test_missing_is_null_nan_and_where_named_an_empty_list():
    assert users(ops.Dropna()) == [1, 5]
    assert users(ops.Dropna("user")) == [1, 2, 3, 5]
    assert users(ops.Dropna(["genres"])) == [1, None, 5]


def test_lists_alone_are_not_passed_through_unlooked_at():
    with pytest.raises(WorkflowError, match=r"Dropna over genres: .*subset.* Received: genres"):
        users(ops.Dropna(), "genres")


def test_column_without_nulls_is_served_without_their_handling():
    schema = Workflow(list(ROWS) >> ops.Dropna(["user", "genres"])).fit(ROWS).output_schema
    assert [column.nullable for column in schema.columns] == [False, True, True]


def test_columns_of_other_rows_do_not_meet():
    rated = ["user", "price"] >> ops.Filter(lambda df: df["price"] > 1)
    with pytest.raises(WorkflowError, match="Filter changed the rows on the way to one of them"):
        Workflow(rated["user"] + ["genres"]).fit(ROWS)


def test_what_comes_after_learns_from_the_rows_that_stay():
    rated = list(ROWS) >> ops.Filter(lambda df: df["price"] > 1)
    workflow = Workflow(rated["genres"] >> ops.Categorify()).fit(ROWS)
    assert workflow.transform(ROWS).collect()["genres"].to_list() == [[3, 1], [1]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.Filter("price > 1"), r"Filter needs f as a function\. Received: 'price"),
        (lambda: ops.Filter(lambda df: df["price"] + 1), "needs a condition, one bool for each"),
        (lambda: ops.Filter(lambda df: df["genres"] == "x"), "needs a condition, one bool for"),
        (lambda: ops.Filter(lambda df: df["other"] > 1), "No column 'other'"),
        (lambda: ops.Filter(lambda df: df[df["price"] > 1]), "cannot be traced"),
        (lambda: ops.Dropna(3), "subset as a text, a list of texts or None. Received: 3"),
        (lambda: ops.Dropna([]), r"names in subset\. Received: \[\]"),
        (lambda: ops.Dropna(["other"]), "No column 'other'"),
    ],
)
def test_settings_are_checked(make, message):
    with pytest.raises(WorkflowError, match=message):
        Workflow(list(ROWS) >> make()).fit(ROWS)


def test_hundreds_of_filters_on_each_other():
    """They nested calls of Python, and each made Polars find its columns through all before."""
    node = ["x"]
    for lowest in range(500):
        node = node >> ops.Filter(lambda rows, lowest=lowest: rows["x"] >= lowest)
    rows = {"x": [600, 499, 498, 7, -1]}
    workflow = Workflow(node >> ops.Rename(postfix="_kept")).fit(rows)
    assert workflow.transform(rows).collect()["x_kept"].to_list() == [600, 499]
