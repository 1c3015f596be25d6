"""Keys of Groupby, and what it sorts by, come from the data where the columns before it lack them."""

from __future__ import annotations

import polars as pl
import pytest

from workflow import ColumnSelector, Workflow, WorkflowError, ops

EVENTS = {"user": [7, 9, 7, 9, 7], "time": [3, 1, 2, 5, 1], "item": ["c", "x", "b", "y", "a"]}
LISTS = [["a", "b", "c"], ["x", "y"]]


def made_of(node) -> pl.DataFrame:
    return Workflow(node).fit(EVENTS).transform(EVENTS).collect()


def kept(column):
    return column


@pytest.mark.parametrize(
    "before",
    [
        ["item"],
        ColumnSelector(["item"]),
        ["item"] >> ops.LambdaOp(kept),
        (["item", "user", "time"] >> ops.Rename(postfix="_"))["item_"] >> ops.Rename(name="item"),
    ],
)
def test_keys_outside_of_the_selection_group_and_are_no_output(before):
    made = made_of(before >> ops.Groupby("user", sort_cols="time"))
    assert made.to_dict(as_series=False) == {"item_list": LISTS}


def test_keys_within_the_selection_are_outputs_as_they_are_there():
    assert made_of(["item", "user"] >> ops.Groupby("user", sort_cols="time")).to_dict(
        as_series=False
    ) == {"user": [7, 9], "item_list": LISTS}
    # Of the column that was computed, and not of the data's of the same name.
    older = "item" + (["user"] >> ops.LambdaOp(lambda user: user // 8))
    made = made_of(older >> ops.Groupby("user", sort_cols="time"))
    assert made.to_dict(as_series=False) == {"user": [0, 1], "item_list": LISTS}


def test_a_key_that_only_the_columns_before_have():
    renamed = ["user", "item", "time"] >> ops.Rename(postfix="_")
    workflow = Workflow(renamed >> ops.Groupby("user_", "time_", {"item_": "list"})).fit(EVENTS)
    made = workflow.transform(EVENTS).collect()
    assert made.to_dict(as_series=False) == {"user_": [7, 9], "item__list": LISTS}
    assert workflow.input_schema.names == ["user", "item", "time"]


def test_it_is_saved_loaded_fitted_anew_and_freed_of_inputs(tmp_path):
    node = ["item", "time"] >> ops.LambdaOp(kept) >> ops.Groupby("user", "time", {"item": "list"})
    workflow = Workflow(node).fit(EVENTS)
    workflow.save(tmp_path / "saved")
    loaded = Workflow.load(tmp_path / "saved")
    for fitted in (loaded, loaded.fit(EVENTS)):
        assert fitted.transform(EVENTS).collect()["item_list"].to_list() == LISTS
    with pytest.raises(WorkflowError, match="Nothing remains of the workflow without user"):
        workflow.remove_inputs(["user"])


def test_what_is_missing_everywhere_or_has_other_rows_is_named():
    with pytest.raises(WorkflowError, match="No column 'who' in the data"):
        made_of(["item"] >> ops.Groupby("who"))
    with pytest.raises(WorkflowError, match="Groupby over item: No column 'who'"):
        made_of(["item"] >> ops.LambdaOp(kept) >> ops.Groupby("who"))
    with pytest.raises(WorkflowError, match="item and user have different rows, since Dropna"):
        made_of(["item"] >> ops.Dropna() >> ops.Groupby("user"))


@pytest.mark.parametrize(("keys", "arrows"), [("user", 2), ("item", 1)])
def test_the_picture_shows_the_data_s_columns_where_they_are_used(keys, arrows):
    text = str(
        Workflow(["item"] >> ops.LambdaOp(kept) >> ops.Groupby(keys, aggs="count")).fit(EVENTS)
    )
    assert text.count("[item]") == 1
    assert text.count("[user]") == arrows - 1
