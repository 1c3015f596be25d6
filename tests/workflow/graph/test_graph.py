"""The syntax of the graph, and what a mistake in it says."""

from __future__ import annotations

import polars as pl
import pytest

from workflow import Workflow, WorkflowError, ops
from workflow.graph.node import ConcatNode, as_node
from workflow.graph.resolution import topological


def outputs(node, data) -> list[str]:
    return Workflow(node).fit(data).output_schema.names


def test_plus_minus_and_brackets_choose_columns(ratings):
    ids = ["userId", "movieId"] >> ops.Categorify()
    assert outputs(ids + "rating", ratings) == ["userId", "movieId", "rating"]
    assert outputs(["rating"] + ids, ratings) == ["rating", "userId", "movieId"]
    assert outputs(ids - "userId" + ["rating"], ratings) == ["movieId", "rating"]
    assert outputs(ids["movieId"], ratings) == ["movieId"]
    assert outputs(ids["movieId", "userId"], ratings) == ["movieId", "userId"]
    assert outputs([ids - ["movieId"], "rating"] >> ops.FillMissing(), ratings) == [
        "userId",
        "rating",
    ]


def test_an_operator_may_follow_a_single_name_or_be_a_class(ratings):
    assert outputs("userId" >> ops.Categorify(), ratings) == ["userId"]
    assert outputs(as_node("userId") >> ops.Categorify, ratings) == ["userId"]


def test_one_column_may_come_in_twice_by_two_ways(ratings):
    both = as_node(["userId"]) + ["userId", "rating"]
    workflow = Workflow(both).fit(ratings)
    assert workflow.output_schema.names == ["userId", "rating"]
    assert (
        workflow.transform(ratings)
        .collect()
        .equals(ratings.select("userId", "rating").fill_nan(None))
    )


def test_a_shared_node_is_one_node():
    ids = ["userId"] >> ops.Categorify()
    workflow = Workflow(ids + (ids >> ops.LambdaOp(lambda c: c + 1))["userId"] - "userId" + ids)
    assert sum(node is ids for node in workflow.nodes) == 1


def test_two_columns_of_one_name_are_refused(ratings):
    with pytest.raises(
        WorkflowError, match=r"named 'userId', one from \[userId\] and one from Categorify"
    ):
        Workflow(["userId"] + (["userId"] >> ops.Categorify())).fit(ratings)


def test_unknown_column_names_the_data_and_the_node(ratings):
    with pytest.raises(WorkflowError, match=r"No column 'age' in the data. It has: userId"):
        Workflow(["age"] >> ops.FillMissing()).fit(ratings)
    with pytest.raises(WorkflowError, match=r"No column 'age' in Categorify. It has: userId"):
        Workflow((["userId"] >> ops.Categorify())["age"]).fit(ratings)
    with pytest.raises(WorkflowError, match="No column 'age' in Categorify"):
        Workflow((["userId"] >> ops.Categorify()) - "age").fit(ratings)


@pytest.mark.parametrize("operator", [3, "Categorify", dict, ops.JoinExternal])
def test_only_an_operator_may_follow(operator):
    with pytest.raises(WorkflowError, match=r"Expected an operator after >>.*Received"):
        as_node(["userId"]) >> operator


@pytest.mark.parametrize("value", [[], [3], 3, None, [[]], [["userId", ["movieId"]]]])
def test_only_names_and_nodes_make_a_graph(value):
    with pytest.raises(WorkflowError, match=r"Expected a column name.*Received"):
        Workflow(value)


def test_an_operator_without_columns_is_told_from_a_node():
    with pytest.raises(WorkflowError, match=r"a node such as .* Received: the operator Categorify"):
        Workflow(ops.Categorify())


def test_a_graph_is_in_order_whatever_its_shape(ratings):
    node = ["userId"] >> ops.Categorify()
    for _ in range(30):
        node = ConcatNode(node, node)  # two to the thirtieth paths, thirty nodes
    order = topological(node)
    assert len(order) == 32
    assert all(order.index(p) < order.index(n) for n in order for p in n.parents)
    assert outputs(node, ratings) == ["userId"]


def test_a_graph_of_ten_thousand_nodes_needs_no_recursion():
    node = as_node("a")
    for _ in range(10_000):
        node = node["a"]
    workflow = Workflow(node).fit({"a": [1]})
    assert workflow.transform({"a": [5]}).collect()["a"].to_list() == [5]


def test_an_error_among_a_thousand_columns_can_be_read():
    data = {f"C{n}": [n] for n in range(1_000)} | {"text": ["a"]}
    with pytest.raises(WorkflowError) as raised:
        Workflow(list(data) >> ops.Normalize()).fit(data)
    assert "'text', string" in str(raised.value)
    with pytest.raises(WorkflowError) as missing:
        Workflow(["age"] + as_node(list(data))).fit(data)
    assert "It has: C0, C1, C2" in str(missing.value)
    assert "text (1001 in all)" in str(missing.value)
    assert len(str(raised.value)) < 500 > len(str(missing.value))


def test_wrong_kind_of_column_names_operator_and_column(ratings):
    with pytest.raises(WorkflowError, match=r"Categorify.*'rating', float64"):
        Workflow(["rating"] >> ops.Categorify()).fit(ratings)
    with pytest.raises(WorkflowError, match=r"Normalize.*'genres', list\[string\]"):
        Workflow(["genres"] >> ops.Normalize()).fit(ratings)
    with pytest.raises(WorkflowError, match=r"FillMissing over genres.*list\[string\]|string"):
        Workflow(["genres"] >> ops.FillMissing(0)).fit(ratings)
    pairs = pl.DataFrame({"pair": [{"a": 1}]})
    with pytest.raises(ValueError, match=r"'pair'.*Received: Struct"):
        Workflow(["pair"] >> ops.FillMissing()).fit(pairs)


def test_nothing_may_be_added_or_taken_away():
    ids = ["a"] >> ops.Categorify()
    for node in (ids + [], [] + ids, ids - []):
        assert Workflow(node).fit({"a": [1]}).output_schema.names == ["a"]


def test_a_column_has_to_remain():
    workflow = Workflow((["a"] >> ops.FillMissing(0)) - ["a"])
    with pytest.raises(WorkflowError, match=r"at least one output.*takes all columns away"):
        workflow.fit({"a": [1]})
    assert not workflow.is_fitted


def test_a_node_is_taken_from_a_node_by_its_columns(tmp_path):
    data = {"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5.0, 6.0]}
    logs = ["a", "b", "c"] >> ops.LogOp()
    for minuend in (logs, ["a", "b", "c"]):
        rest = minuend - (["b", "other"] >> ops.Rename(lambda name: name))["b"]
        workflow = Workflow(rest).fit(data | {"other": [1.0, 1.0]})
        assert workflow.output_schema.names == ["a", "c"]
        workflow.save(tmp_path / "saved")
        assert Workflow.load(tmp_path / "saved").output_schema.names == ["a", "c"]
        without = workflow.remove_inputs(["a"])
        assert without.output_schema.names == ["c"]
        assert "LogOp" in str(without) or minuend is not logs


def test_columns_that_are_not_there_are_not_missed_when_a_node_is_taken_away():
    rest = ["a", "b"] - (["b", "c"] >> ops.LogOp())
    data = {"a": [1.0], "b": [1.0], "c": [1.0]}
    assert Workflow(rest).fit(data).output_schema.names == ["a"]
