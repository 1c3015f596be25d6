"""Computed columns stand together as columns of the data do, wherever a list or a selector puts them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from workflow import ColumnSchema, ColumnSelector, Schema, Subgraph, Workflow, WorkflowError, ops
from workflow.graph.node import Node, as_node

DATA = pl.DataFrame(
    {
        "geo": ["US", "US", "CA", "CA", None, "US", "CA"],
        "user": ["A", "A", "A", "B", "B", None, "A"],
        "age": [1, 1, 2, 2, 3, None, 1],
        "rating": [1.0, 0.5, 0.0, 1.0, 0.25, 0.75, 1.0],
    }
)
# The same with the computed columns among the data's, so that names can say it all.
RENAMED = DATA.with_columns(geo_country=pl.col("geo"), age_years=pl.col("age"))


def country() -> Node:
    return ["geo"] >> ops.Rename(postfix="_country")


def both() -> Node:
    return ["geo", "user"] >> ops.Rename(f={"geo": "geo_country"})


OPERATORS: dict[str, Callable[[], Any]] = {
    "combo": lambda: ops.Categorify(encode_type="combo"),
    "joint": lambda: ops.Categorify(encode_type="joint"),
    "TargetEncoding": lambda: ops.TargetEncoding("rating", p_smooth=1),
    "JoinGroupby": lambda: ops.JoinGroupby("rating", stats=["count", "sum"]),
    "HashedCross": lambda: ops.HashedCross(50),
}
PAIR = ["geo_country", "user"]
# Left of >>, and what it is by names over the data that has the columns.
FORMS: dict[str, tuple[Callable[[], Any], Any]] = {
    "a sum in a list": (lambda: [country() + "user"], [PAIR]),
    "a node of two in a list": (lambda: [both()], [PAIR]),
    "a list in a list": (lambda: [[country(), "user"]], [PAIR]),
    "a tuple in a list": (lambda: [(country(), "user")], [PAIR]),
    "a group and a column": (lambda: [[country(), "user"], "age"], [PAIR, "age"]),
    "a group and a node": (lambda: [[country(), "user"], country()], [PAIR, "geo_country"]),
    "a group of one": (lambda: [[country()], "user"], ["geo_country", "user"]),
    "nodes of one": (lambda: [country(), "user"], ["geo_country", "user"]),
    "added": (lambda: country() + "user" + [country() + "user"], [*PAIR, PAIR]),
    "added to the left": (lambda: [country(), "user"] + as_node("age"), [PAIR, "age"]),
    "added with a name": (lambda: as_node("age") + [country(), "user"], ["age", PAIR]),
    "names are added as columns": (
        lambda: country() + ["user", "age"],
        ["geo_country", "user", "age"],
    ),
    "groups of names are added": (
        lambda: country() + [["user", "age"]],
        ["geo_country", ["user", "age"]],
    ),
    "a part": (lambda: [Subgraph("who", country() + "user"), "age"], [PAIR, "age"]),
    "in a part": (lambda: Subgraph("who", [[country(), "user"], "age"]), [PAIR, "age"]),
    "through operators": (
        lambda: [[country(), "user"], "age"] >> ops.AddTags(["mine"]) >> ops.Rename(f=str.lower),
        [PAIR, "age"],
    ),
    "through a change of names": (
        lambda: [["geo", "user"], "user"] >> ops.Rename(f={"geo": "geo_country"}),
        [PAIR, "user"],
    ),
    "a selector": (lambda: ["age", ColumnSelector(["geo", "user"])], ["age", ["geo", "user"]]),
    "a subgroup": (
        lambda: ColumnSelector("age", subgroups=ColumnSelector(["geo", "user"])),
        ["age", ["geo", "user"]],
    ),
    "subgroups": (
        lambda: ColumnSelector("age", subgroups=[ColumnSelector(["geo", "user"]), ["user", "age"]]),
        ["age", ["geo", "user"], ["user", "age"]],
    ),
    "a selector among names": (
        lambda: ColumnSelector(["age", ColumnSelector(["geo", "user"])]),
        ["age", ["geo", "user"]],
    ),
    "tags in a group": (
        lambda: ColumnSelector(subgroups=ColumnSelector(tags="who")),
        [["geo", "user"]],
    ),
    "a name and tags in a group": (
        lambda: ColumnSelector([["age", ColumnSelector(tags="who")]]),
        [["age", "geo", "user"]],
    ),
    "every column in a group": (lambda: country()[[["*"]]] + "user", ["geo_country", "user"]),
    "every column of a node in a group": (lambda: both()[[["*"]]], [PAIR]),
    "some of a node": (lambda: [(both() + "age")["geo_country", "user"], "age"], [PAIR, "age"]),
    "some of a node with groups": (
        lambda: ([[country(), "user"], "age"] >> ops.AddTags(["mine"]))["geo_country", "user"],
        [PAIR],
    ),
    "a group of what is left": (lambda: [(both() + "age") - "age"], [PAIR]),
}
TAGGED = Schema(
    [
        ColumnSchema("geo", "string", tags=("who",)),
        ColumnSchema("user", "string", tags=("who",)),
        ColumnSchema("age", "int64"),
        ColumnSchema("rating", "float64"),
    ]
)


def same(workflow: Workflow, wanted: Workflow) -> None:
    """Both make the same columns, under the same names and with the same domains."""
    made, by_names = workflow.transform(DATA).collect(), wanted.transform(RENAMED).collect()
    assert sorted(made.columns) == sorted(by_names.columns)
    for name in made.columns:
        assert made[name].equals(by_names[name]), name
        facts = [w.output_schema[name].properties for w in (workflow, wanted)]
        assert facts[0] == facts[1]


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
@pytest.mark.parametrize(("left", "names"), FORMS.values(), ids=FORMS)
def test_a_group_of_computed_columns_is_one_of_names(operator, left, names, tmp_path):
    try:
        wanted = Workflow(names >> operator()).fit(RENAMED)
    except WorkflowError as error:
        # HashedCross takes groups alone, and JoinGroupby no text; what names cannot, nodes cannot.
        with pytest.raises(WorkflowError, match=re.escape(str(error).split(":")[0])):
            Workflow(left() >> operator()).fit(DATA, schema=TAGGED)
        return
    workflow = Workflow(left() >> operator()).fit(DATA, schema=TAGGED)
    same(workflow, wanted)
    workflow.save(tmp_path / "saved")
    loaded = Workflow.load(tmp_path / "saved")
    same(loaded, wanted)
    loaded.fit(DATA)
    same(loaded, wanted)


def test_combination_of_a_computed_column_as_in_nvtabular():
    """Its own test: the pair of country and user, and both of them on their own."""
    cats = country() + "user" + [country() + "user"] >> ops.Categorify(encode_type="combo")
    workflow = Workflow(cats).fit(DATA)
    assert workflow.output_schema.names == ["geo_country", "user", "geo_country_user"]
    made = workflow.transform(DATA).collect()
    pairs = DATA.select(pair=pl.concat_str("geo", "user", separator="|"))["pair"].to_list()
    ids = made["geo_country_user"].to_list()
    for one, first in enumerate(pairs):
        for other, second in enumerate(pairs):
            if first is not None and second is not None:
                assert (ids[one] == ids[other]) == (first == second)
    with pytest.raises(ValueError, match="one level deep"):
        [[country() + "user"] + country() + "user"] >> ops.Categorify(encode_type="combo")


NESTED: dict[str, Callable[[], Any]] = {
    "a group in a group": lambda: [[country(), ["user", "age"]]],
    "a group in a sum": lambda: as_node("age") + [country(), ["user", "age"]],
    "a sum with a group": lambda: [country() + [["user", "age"]], "geo"],
    "a group of a group": lambda: [ColumnSelector([["user", "age"]]), country()],
    "a part with a group": lambda: [Subgraph("who", [["user", "age"]]), "geo"],
    "an operator over a group": lambda: [[["geo", "user"]] >> ops.AddTags(["x"]), "age"],
    "a selector with a group": lambda: ColumnSelector(["geo", ColumnSelector([["user", "age"]])]),
    "every column of groups": lambda: as_node([["user", "age"], "geo"])[[["*"]]],
}


@pytest.mark.parametrize("left", NESTED.values(), ids=NESTED)
def test_groups_within_groups_are_refused(left):
    with pytest.raises(WorkflowError, match="one level deep"):
        Workflow(left() >> ops.Categorify()).fit(DATA)


def test_groups_follow_columns_that_exchange_their_names():
    exchanged = ops.Rename(f={"geo": "user", "user": "geo"})
    left = [["geo", "age"], "user"] >> exchanged
    made = Workflow(left >> ops.TargetEncoding("rating", out_col=["pair", "one"])).fit(DATA)
    wanted = [["geo", "age"], "user"] >> ops.TargetEncoding("rating", out_col=["pair", "one"])
    encoded = Workflow(wanted).fit(DATA).transform(DATA).collect()
    assert made.transform(DATA).collect().equals(encoded)


ENDED: dict[str, Callable[[], Any]] = {
    "Groupby": lambda: (
        [["age", "rating"], "user"] >> ops.Groupby("user", aggs={"age": "max", "rating": "sum"})
    ),
    "DifferenceLag": lambda: [["age", "rating"]] >> ops.DifferenceLag("user"),
    "DropLowCardinality": lambda: (
        [["age", "rating"], "rating"]
        >> ops.Bucketize({"age": [0.5], "rating": [0.1, 0.2, 0.3, 0.4]})
        >> ops.DropLowCardinality(3)
    ),
    "and through others": lambda: (
        ([["age", "rating"]] >> ops.DifferenceLag("user") >> ops.FillMissing(0)) + "user"
    ),
}


@pytest.mark.parametrize("left", ENDED.values(), ids=ENDED)
def test_a_group_that_ended_on_the_way_is_not_flattened(left):
    Workflow(left()).fit(DATA)  # Where no operator takes groups none is missed.
    with pytest.raises(WorkflowError, match="the group age, rating did not pass through"):
        Workflow(left() >> ops.Categorify()).fit(DATA)


def test_columns_of_a_group_that_ended_are_grouped_anew():
    lags = [["age", "rating"]] >> ops.DifferenceLag("user")
    names = ["age_difference_lag_1", "rating_difference_lag_1"]
    crossed = lags[[names]] >> ops.Bucketize([0.0]) >> ops.HashedCross(50)
    assert Workflow(crossed).fit(DATA).output_schema.names == ["_X_".join(names)]


def test_a_single_column_may_end_on_the_way():
    low, high = ["age"] >> ops.Bucketize([0.5]), ["rating"] >> ops.Bucketize([0.1, 0.2, 0.3])
    crossed = [[high, "user"], low] >> ops.DropLowCardinality(3) >> ops.HashedCross(50)
    assert Workflow(crossed).fit(DATA).output_schema.names == ["rating_X_user"]


def test_a_group_that_no_operator_takes_changes_nothing():
    grouped = Workflow([["age", "rating"], "age"] >> ops.FillMissing(0)).fit(DATA)
    plain = Workflow(["age", "rating"] >> ops.FillMissing(0)).fit(DATA)
    assert grouped.transform(DATA).collect().equals(plain.transform(DATA).collect())


def test_without_an_input_the_groups_that_remain_whole_stay():
    encoded = [[country(), "user"], [country(), "age"], "user"] >> ops.TargetEncoding("rating")
    workflow = Workflow(encoded).fit(DATA)
    smaller = workflow.remove_inputs("age")
    assert smaller.output_schema.names == ["TE_geo_country_user_rating", "TE_user_rating"]
    made, whole = smaller.transform(DATA).collect(), workflow.transform(DATA).collect()
    assert made.equals(whole.select(made.columns))


def test_a_part_with_groups_stands_alone():
    encoded = Subgraph("te", [[country(), "user"]] >> ops.TargetEncoding("rating"))
    workflow = Workflow(encoded + "age").fit(DATA)
    part = workflow.get_subworkflow("te")
    assert part.output_schema.names == ["TE_geo_country_user_rating"]
    assert (
        part.transform(DATA)
        .collect()
        .equals(workflow.transform(DATA).collect().select("TE_geo_country_user_rating"))
    )


def test_a_group_of_nodes_is_drawn():
    workflow = Workflow([[country(), "user"]] >> ops.Categorify(encode_type="combo"))
    assert "[[*]]" in str(workflow.diagram())
    assert "geo_country_user" in str(workflow.fit(DATA).diagram())
