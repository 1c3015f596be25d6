"""Ids become values again: a wrong answer recommends the wrong item."""

from __future__ import annotations

import polars as pl
import pytest

from workflow import Workflow, WorkflowError, ops

DATA = {
    "user": [7, 7, 9, None],
    "genres": [["x", "y"], [], ["y", None], None],
    "city": ["", "Rome", "Rome", None],
}


def fitted(node, data=DATA) -> Workflow:
    return Workflow(node).fit(data)


def meanings(workflow: Workflow, output: str) -> dict:
    """The meaning of each id: the value, or else its kind."""
    return {
        id_: value if kind == "value" else kind
        for id_, kind, value in workflow.reverse_mapping(output).rows()
    }


RESERVED = {0: "padding", 1: "null", 2: "out of vocabulary"}


@pytest.mark.parametrize(
    ("column", "values"),
    [("user", {3: 7, 4: 9}), ("genres", {3: "y", 4: "x"}), ("city", {3: "Rome", 4: ""})],
)
def test_every_id_of_a_column_has_its_value(column, values):
    assert meanings(fitted([column] >> ops.Categorify()), column) == RESERVED | values


def test_values_keep_their_dtype():
    data = {"c": pl.Series([2**64 - 1, 5], dtype=pl.UInt64)}
    mapping = fitted(["c"] >> ops.Categorify(), data).reverse_mapping("c")
    assert mapping.schema["id"] == pl.Int64
    assert mapping.schema["value"] == pl.UInt64
    assert mapping["value"].to_list() == [None, None, None, 5, 2**64 - 1]


@pytest.mark.parametrize(
    ("settings", "data"),
    [
        ({}, {"a": ["p", "q", "q"], "b": ["q", None, "r"]}),
        (
            {"num_buckets": 5, "single_table": True},
            {"a": [1, 2, 2], "b": [2, None, 3], "c": [4, 5, 5]},
        ),
        ({"vocabs": {"a_b": [3, 1, 2]}}, {"a": [1, 2, 2], "b": [2, None, 3]}),
        ({"encode_type": "combo"}, {"a": [1, None, 2], "b": ["x", "y", None], "c": [True] * 3}),
        (
            {"encode_type": "combo", "single_table": True},
            {"a": [1, 1, 2], "b": ["x", None, "x"], "c": [7] * 3},
        ),
    ],
    ids=str,
)
def test_mapping_undoes_transform(settings, data):
    group = [name for name in data if name != "c"]
    left = [group, *(["c"] if "c" in data else [])]
    if settings.get("encode_type") == "combo" and "c" in data:
        left = [list(data), "a"]
    workflow = fitted(left >> ops.Categorify(**settings), data)
    frame, made = pl.DataFrame(data), workflow.transform(data).collect()
    for name in made.columns:
        values = frame[name] if name in data else frame.select(name.split("_")).to_struct()
        mapping = workflow.reverse_mapping(name)
        found = made[name].to_frame("id").join(mapping, on="id", how="left", maintain_order="left")
        assert found["value"].to_list() == values.to_list()
        assert mapping["id"].is_unique().all()
        assert mapping["id"].max() == workflow.output_schema[name].properties["domain"]["max"]


def test_it_follows_a_column_through_the_graph():
    rated = ["user", "city"] >> ops.Filter(lambda df: ~df["city"].is_null())
    ids = rated >> ops.Categorify(dtype="int32") >> ops.Rename(postfix="_id")
    workflow = fitted(ids)
    workflow.output_dtypes["user_id"] = "int16"
    assert meanings(workflow, "user_id") == RESERVED | {3: 7, 4: 9}
    after = ["user", "city"] >> ops.Categorify() >> ops.Filter(lambda df: df["city"] > 1)
    assert meanings(fitted(after), "city") == RESERVED | {3: "Rome", 4: ""}


def test_sessions_of_ids_have_the_meaning_of_the_ids():
    ids = ["city", "user"] >> ops.Categorify()
    sessions = Workflow(ids >> ops.Groupby(["user"], aggs={"city": ["list", "nunique"]})).fit(DATA)
    assert meanings(sessions, "city_list") == RESERVED | {3: "Rome", 4: ""}
    with pytest.raises(WorkflowError, match="'city_nunique' is not made by Categorify"):
        sessions.reverse_mapping("city_nunique")


def test_two_vocabularies_of_one_column_are_told_apart():
    rare = ["city"] >> ops.Categorify(freq_threshold=2) >> ops.Rename(postfix="_rare")
    workflow = fitted(rare + (["city"] >> ops.Categorify()))
    assert meanings(workflow, "city_rare") == RESERVED | {3: "Rome"}
    assert meanings(workflow, "city") == RESERVED | {3: "Rome", 4: ""}


def test_ids_of_another_dtype_and_of_chosen_rows_have_their_values():
    narrow = ops.LambdaOp(lambda ids: ids.cast("int32"))
    known = ops.Filter(lambda frame: ~frame["city"].is_null())
    ids = ["user"] >> ops.Categorify()
    for node in (ids >> narrow, (ids + "city") >> known, ((ids >> narrow) + "city") >> known):
        assert meanings(fitted(node), "user") == RESERVED | {3: 7, 4: 9}


def test_it_outlives_saving(tmp_path):
    workflow = fitted([["user", "city"], "city"] >> ops.Categorify(encode_type="combo"))
    workflow.save(tmp_path / "saved")
    loaded = Workflow.load(tmp_path / "saved")
    for name in ("user_city", "city"):
        assert loaded.reverse_mapping(name).equals(workflow.reverse_mapping(name))


def test_what_is_no_id_is_refused():
    shifted = ["user"] >> ops.Categorify() >> ops.LambdaOp(lambda c: c + 1)
    workflow = fitted(shifted + ["city"])
    with pytest.raises(WorkflowError, match="'user' is not made by Categorify"):
        workflow.reverse_mapping("user")
    with pytest.raises(WorkflowError, match="'city' is not made by Categorify"):
        workflow.reverse_mapping("city")
    with pytest.raises(WorkflowError, match=r"No output 'age'. The outputs are: user, city"):
        workflow.reverse_mapping("age")


def test_a_combination_may_have_a_column_with_an_empty_name():
    data = {"": [7, 7, 9], "city": ["Rome", "Rome", "Oslo"]}
    workflow = fitted([["", "city"]] >> ops.Categorify(encode_type="combo"), data)
    values = [{"": 7, "city": "Rome"}, {"": 9, "city": "Oslo"}]
    assert meanings(workflow, "_city") == RESERVED | dict(enumerate(values, 3))
