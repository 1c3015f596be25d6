"""Selectors left of `>>`: names, groups and tags; a saved graph keeps all of them."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow import (
    ColumnSchema,
    ColumnSelector,
    Schema,
    Subgraph,
    Tags,
    Workflow,
    WorkflowError,
    ops,
)
from workflow.graph.node import ConcatNode, SumNode, as_node
from workflow.graph.row_set import Resolved, RowSet
from workflow.graph.selection import regroup

DATA = pl.DataFrame(
    {
        "userId": [7, 7, 9, None, 9, 7],
        "movieId": [1, 2, 1, 3, None, 1],
        "genre": ["a", "b", "a", "c", None, "a"],
        "price": [1.0, 2.5, None, 4.0, 0.5, 3.0],
        "rating": [5.0, 1.0, 4.0, 2.0, 3.0, 5.0],
    }
)
TAGGED = Schema(
    [
        ColumnSchema("rating", "float64", tags=(Tags.TARGET,)),
        ColumnSchema("genre", "string", tags=(Tags.CATEGORICAL, Tags.ITEM)),
        ColumnSchema("userId", "int64", tags=(Tags.CATEGORICAL, "user")),
        ColumnSchema("price", "float64", tags=(Tags.CONTINUOUS,)),
        ColumnSchema("movieId", "int64", tags=(Tags.CATEGORICAL, Tags.ITEM)),
    ]
)


def saved_and_loaded(workflow: Workflow, folder) -> Workflow:
    """The workflow that was loaded, having proven that it is the one that was saved."""
    workflow.save(folder / "first")
    loaded = Workflow.load(folder / "first")
    assert loaded.output_schema == workflow.output_schema
    assert loaded.transform(DATA).collect().equals(workflow.transform(DATA).collect())
    loaded.save(folder / "second")
    first, second = (
        {f.name: f.read_bytes() for f in (folder / n).iterdir()} for n in ("first", "second")
    )
    assert first == second
    refitted = Workflow.load(folder / "first").fit(DATA)
    assert refitted.transform(DATA).collect().equals(workflow.transform(DATA).collect())
    return loaded


GRAPHS = {
    "names": lambda: ["userId", "movieId"] >> ops.Categorify(),
    "a name and a class": lambda: "userId" >> ops.Categorify,
    "a function": lambda: as_node("price") >> (lambda price: price * 2),
    "subset": lambda: (["userId", "movieId"] >> ops.Categorify())["movieId"],
    "subset of groups": lambda: (
        (["userId", "movieId", "price"] >> ops.FillMissing(0))[[["movieId", "userId"], "userId"]]
        >> ops.TargetEncoding("rating")
    ),
    "subtraction": lambda: (["userId", "movieId"] >> ops.Categorify()) - ["movieId"],
    "subtraction of what is not needed": lambda: as_node(["userId", "genre", "price"]) - "genre",
    "plus": lambda: ["rating"] + (["userId"] >> ops.Categorify()) + "movieId",
    "list of names and nodes": lambda: (
        [["userId"] >> ops.Categorify(), "price"] >> ops.FillMissing(0)
    ),
    "groups": lambda: ColumnSelector([["userId", "genre"], "userId"]) >> ops.JoinGroupby("price"),
    "groups as tuples": lambda: [("userId", "genre")] >> ops.TargetEncoding("rating"),
    "subgroups": lambda: (
        ColumnSelector("movieId", subgroups=[["userId", "genre"]]) >> ops.TargetEncoding("rating")
    ),
    "groups through an operator": lambda: (
        [["userId", "movieId"], "userId"] >> ops.FillMissing(0) >> ops.TargetEncoding("rating")
    ),
    "groups through a subset": lambda: (
        as_node([["userId", "movieId"], "price"])[["movieId", "userId"]]
        >> ops.TargetEncoding("rating")
    ),
    "groups through a part": lambda: (
        Subgraph("ids", [["userId", "movieId"], "genre"]) >> ops.TargetEncoding("rating")
    ),
    "dependency of a name": lambda: ["userId"] >> ops.TargetEncoding("rating"),
    "dependency of a node": lambda: (
        ["userId"] >> ops.TargetEncoding(["rating"] >> ops.LambdaOp(lambda rating: rating > 3))
    ),
    "dependency of a dependency": lambda: (
        ["userId"]
        >> ops.TargetEncoding(
            ["rating"]
            >> ops.LambdaOp(
                lambda rating, df: rating * df["price"], dependency=["price"] >> ops.FillMissing(1)
            )
        )
    ),
    "dependency of names and nodes": lambda: (
        ["userId"] >> ops.JoinGroupby(["price", ["rating"] >> ops.Normalize()], stats=["mean"])
    ),
    "parts within parts": lambda: (
        Subgraph(
            "all",
            Subgraph("ids", ["userId"] >> ops.Categorify()) + (["price"] >> ops.FillMissing(0)),
        )
        + "rating"
    ),
    "a key that an operator makes": lambda: (
        ["userId", "price"] >> ops.Rename(postfix="_") >> ops.Groupby("userId_", aggs=["sum"])
    ),
    "every column": lambda: ColumnSelector("*"),
    "every column but one": lambda: ColumnSelector("*") - "genre",
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_a_saved_graph_keeps_what_it_is(graph, tmp_path):
    workflow = Workflow(graph()).fit(DATA)
    loaded = saved_and_loaded(workflow, tmp_path)
    # A sum is saved as the list of its addends.
    kinds = [ConcatNode if type(node) is SumNode else type(node) for node in workflow.nodes]
    assert [type(node) for node in loaded.nodes] == kinds
    made = {tuple(m.columns): m.groups for m in workflow.made.values()}
    assert {tuple(m.columns): m.groups for m in loaded.made.values()} == made


def test_groups_decide_what_is_encoded_together():
    groups = ColumnSelector([["userId", "genre"], "userId"])
    made = Workflow(groups >> ops.TargetEncoding("rating")).fit(DATA).output_schema.names
    assert made == ["TE_userId_genre_rating", "TE_userId_rating"]


def test_tags_choose_columns_of_the_data(tmp_path):
    ids = ColumnSelector(tags=["categorical"]) >> ops.Categorify()
    scaled = ColumnSelector(tags=[Tags.CONTINUOUS]) >> ops.FillMissing(0) >> ops.Normalize()
    workflow = Workflow(ids + scaled).fit(DATA, schema=TAGGED)
    assert workflow.output_schema.names == ["userId", "movieId", "genre", "price"]
    assert workflow.output_schema["genre"].tags == ("categorical", "item")
    saved_and_loaded(workflow, tmp_path)


def test_tags_choose_columns_of_a_node():
    ids = ColumnSelector(["userId", "genre", "price"])
    node = ids[ColumnSelector(tags="user")] + (ids - ColumnSelector(tags=["item", "user"]))
    workflow = Workflow(node).fit(DATA, schema=TAGGED)
    assert workflow.output_schema.names == ["userId", "price"]


def test_tags_that_no_column_has_are_named_with_those_there_are():
    with pytest.raises(WorkflowError, match=r"tagged time.*rating \(target\), .*price \(no tag\)"):
        Workflow(ColumnSelector(tags="time")).fit(
            DATA.select("rating", "price"), schema=TAGGED.select(["rating"])
        )


def test_columns_are_in_the_order_in_which_they_are_written(tmp_path):
    node = ["price", "userId"] >> ops.FillMissing(0)
    both = (as_node(["userId", "price"]) >> (lambda c: c == 0))["price", "userId"]
    made = saved_and_loaded(Workflow(node).fit(DATA), tmp_path / "a")
    assert made.output_schema.names == ["price", "userId"]
    made = saved_and_loaded(Workflow(both).fit(DATA), tmp_path / "b")
    assert made.output_schema.names == ["price", "userId"]
    encoded = ["genre", "userId"] >> ops.TargetEncoding("rating")
    made = saved_and_loaded(Workflow(encoded).fit(DATA), tmp_path / "c")
    assert made.output_schema.names == ["TE_genre_rating", "TE_userId_rating"]


def test_groups_are_one_level_deep():
    for names in ([["userId", ["genre", "price"]]], [[]], [["userId", 3]]):
        with pytest.raises(WorkflowError, match="one level deep"):
            ColumnSelector(names)
    with pytest.raises(WorkflowError, match="one level deep"):
        ColumnSelector("userId", subgroups=[[["a"], "b"]])


def test_a_node_is_no_list():
    node = as_node(["userId", "price"])
    with pytest.raises(TypeError, match="cannot be looped over"):
        list(node)
    with pytest.raises(WorkflowError, match="Received: the node"):
        node[["userId"] >> ops.FillMissing()]


def test_output_schema_tells_cardinality_domain_and_tags(tmp_path):
    workflow = Workflow(["userId"] >> ops.Categorify()).fit(DATA, schema=TAGGED)
    loaded = saved_and_loaded(workflow, tmp_path)
    column = loaded.output_schema["userId"]
    assert column.properties["cardinality"] == 5
    assert column.properties["domain"].items() >= {"min": 0, "max": 4}.items()
    assert column.tags == ("categorical", "user")


# Schemas before data


def test_a_workflow_that_learns_nothing_needs_no_data(tmp_path):
    scaled = ColumnSelector(tags="continuous") >> ops.FillMissing(0) >> (lambda c: c.log1p())
    workflow = Workflow(scaled + "genre").fit_schema(TAGGED)
    assert workflow.input_schema == TAGGED.select(["genre", "price"])
    assert workflow.output_schema.names == ["price", "genre"]
    assert workflow.output_schema["price"].dtype == "float64"
    fitted = Workflow(scaled + "genre").fit(DATA, schema=TAGGED)
    assert workflow.output_schema == fitted.output_schema
    saved_and_loaded(workflow, tmp_path)


def test_a_schema_must_have_the_columns():
    with pytest.raises(WorkflowError, match=r"No column 'age' in the data. It has: rating, genre"):
        Workflow(["age"] >> ops.FillMissing()).fit_schema(TAGGED)


def test_a_schema_that_does_not_fit_leaves_the_workflow_as_it_was():
    workflow = Workflow(["price"] >> ops.FillMissing(0)).fit(DATA)
    text = Schema([ColumnSchema("price", "string")])
    with pytest.raises(WorkflowError, match="FillMissing over price"):
        workflow.fit_schema(text)
    assert workflow.output_schema["price"].dtype == "float64"


NAMES = st.sampled_from("abcdef")


@given(
    groups=st.lists(st.lists(NAMES, min_size=1, max_size=3, unique=True).map(tuple), max_size=5),
    names=st.lists(NAMES, unique=True),
)
def test_some_columns_are_grouped_as_among_all(groups, names):
    """The groups near some columns lead to the same result as all groups."""
    rows = RowSet(Schema(ColumnSchema(name, "int64") for name in "abcdef"))
    every = regroup(tuple(dict.fromkeys(groups)), list("abcdef"))
    assert Resolved(rows.features(), every, rows).grouped(names) == regroup(every, names)


def test_what_list_slice_makes_is_found_by_its_tag_as_in_nvtabular():
    last = ["clicks"] >> ops.ListSlice(-2)
    data = {"clicks": [[1, 2, 3], []], "price": [1.0, 2.0]}
    schema = Workflow(last + "price").fit(data).output_schema
    assert schema.tagged(Tags.LIST).names == ["clicks"]
    counted = Workflow(last >> ops.ValueCount()).fit(data)
    assert counted.transform(data).collect()["clicks"].to_list() == [[2, 3], []]


def test_an_id_is_of_one_kind():
    column = ["id"] >> ops.TagAsUserID() >> ops.AddTags([Tags.SESSION_ID])
    made = Workflow(column).fit({"id": [1]}).output_schema["id"]
    assert set(made.tags) == {"user", "id", "session", "session_id"}
