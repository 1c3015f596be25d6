"""Workflows without some of their inputs, and parts of workflows: what is left is what it was."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from workflow import ColumnSelector, Subgraph, Workflow, WorkflowError, ops
from workflow.graph.node import as_node
from workflow.operator.frame_operator import ManyRowsOperator
from workflow.operator.operator import OPERATORS, Example, Operator
from workflow.schema.column import Column

DATA = {
    "userId": [7, 7, 9, None],
    "movieId": [1, 2, 1, 1],
    "price": [1.0, 2.0, 3.0, 9.0],
    "year": [1999, 2001, None, 2020],
    "rating": [5.0, 1.0, 4.0, 2.0],
}
EXAMPLES = [
    pytest.param(example, removed, id=f"{name}-{number}-{removed}")
    for name, operator in sorted(OPERATORS.items())
    for number, example in enumerate(operator.examples())
    for removed in example.columns
    if len(example.columns) > 1
]


def removed(workflow: Workflow, names, folder) -> Workflow:
    """The workflow without some inputs, saved and loaded, its outputs those of the whole one."""
    smaller = workflow.remove_inputs(names)
    smaller.save(folder / "smaller")
    loaded = Workflow.load(folder / "smaller")
    assert loaded.output_schema == smaller.output_schema
    assert set(loaded.program.inputs) <= set(loaded.input_schema)
    rows = pl.DataFrame(DATA)
    expected = workflow.transform(rows).collect().select(smaller.output_schema.names)
    assert loaded.transform(rows.drop(names)).collect().equals(expected)
    return smaller


def fitted_example(example: Example) -> tuple[Workflow, pl.DataFrame]:
    rows = pl.DataFrame(dict(example.columns))
    return Workflow((example.left or rows.columns) >> example.operator).fit(rows), rows


def could_remain(workflow: Workflow, operator: Operator, lost: str) -> set[str]:
    """The outputs that are made of other inputs alone; nothing is known of whole frames."""
    if isinstance(operator, ManyRowsOperator):
        return set()
    sources = {
        column.name: workflow.program.sources_of_steps([step])
        for column, step in workflow.program.outputs
    }
    return {name for name, read in sources.items() if read and lost not in read}


def smaller_or_nothing(workflow: Workflow, lost: str) -> Workflow | None:
    try:
        return workflow.remove_inputs(lost)
    except WorkflowError as error:
        if "Nothing remains" in str(error):
            return None
        raise


@pytest.mark.parametrize(("example", "lost"), EXAMPLES)
def test_an_operator_goes_on_with_the_inputs_that_remain(example: Example, lost: str):
    workflow, rows = fitted_example(example)
    if lost not in workflow.input_schema:
        with pytest.raises(WorkflowError, match=f"No input '{lost}'"):
            workflow.remove_inputs(lost)
        return
    remaining = could_remain(workflow, example.operator, lost)
    smaller = smaller_or_nothing(workflow, lost)
    if smaller is None:
        assert not remaining
        return
    names = smaller.output_schema.names
    assert remaining <= set(names)
    assert lost not in smaller.input_schema
    assert all(smaller.output_schema[n] == workflow.output_schema[n] for n in names)
    whole = workflow.transform(rows).collect().select(names)
    assert smaller.transform(rows.drop(lost)).collect().equals(whole, null_equal=True)


def test_the_whole_workflow_is_left_as_it_was(tmp_path):
    workflow = Workflow(["userId", "movieId"] >> ops.Categorify()).fit(DATA)
    before = workflow.output_schema
    removed(workflow, ["movieId"], tmp_path)
    assert workflow.output_schema == before
    assert workflow.input_schema.names == ["userId", "movieId"]


@pytest.mark.parametrize(
    ("names", "operator", "expected"),
    [
        (["mean", "std"], ops.Normalize(), lambda v: (v - v.mean()) / v.std(ddof=1)),
        (["min", "range"], ops.NormalizeMinMax(), lambda v: (v - v.min()) / np.ptp(v)),
    ],
)
def test_columns_may_have_the_names_of_a_state(names, operator, expected):
    values = [1.0, 3.0, 8.0]
    data = dict(zip(names, [values, [5.0, 7.0, 7.0]], strict=True)) | {"userId": [7, 8, 9]}
    workflow = Workflow((names >> operator) + "userId").fit(data)
    smaller = workflow.remove_inputs(names[1])
    assert smaller.output_schema.names == [names[0], "userId"]
    made = smaller.transform(data).collect()[names[0]]
    np.testing.assert_allclose(made, expected(np.array(values)), rtol=1e-6)


def test_what_is_derived_goes_through_all_kinds_of_nodes(tmp_path):
    scaled = Subgraph("numbers", ["price", "year"] >> ops.FillMissing(0) >> ops.Normalize())
    ids = ["userId", "movieId"] >> ops.Categorify(max_size={"movieId": 4})
    node = (scaled - "price") + scaled["price"] + ids + "rating"
    workflow = Workflow(node).fit(DATA)
    workflow.output_dtypes["userId"] = "int32"
    workflow.output_dtypes["year"] = "float64"
    smaller = removed(workflow, ["year", "movieId"], tmp_path)
    assert smaller.input_schema.names == ["price", "userId", "rating"]
    assert smaller.output_schema.names == ["price", "userId", "rating"]
    assert dict(smaller.output_dtypes) == {
        "price": "float32",
        "userId": "int32",
        "rating": "float64",
    }
    assert smaller.get_subworkflow("numbers").output_schema.names == ["price"]
    smaller.fit(DATA)  # What was set for a column that is gone is gone too.
    assert removed(workflow, ["price", "year"], tmp_path).nodes[0].label == "[userId, movieId]"


def test_selectors_by_tag_and_star_go_on(tmp_path):
    everything = Workflow(ColumnSelector("*") >> ops.FillMissing(0)).fit(DATA)
    names = removed(everything, ["year", "rating"], tmp_path).output_schema.names
    assert names == ["userId", "movieId", "price"]


def test_a_target_that_only_learning_needs_goes_without_loss(tmp_path):
    groups = ColumnSelector([["userId", "movieId"], "userId"])
    target = ["rating"] >> ops.LambdaOp(lambda rating: rating > 3)
    encoded = groups >> ops.TargetEncoding(target)
    workflow = Workflow(encoded + target).fit(DATA)
    smaller = removed(workflow, ["rating"], tmp_path)
    assert smaller.input_schema.names == ["userId", "movieId"]
    assert smaller.output_schema.names == ["TE_userId_movieId_rating", "TE_userId_rating"]
    with pytest.raises(WorkflowError, match="target 'rating' is not in the data"):
        smaller.fit(DATA)
    # Of several targets one is gone.
    encoded = ["userId"] >> ops.TargetEncoding(["rating", "price"])
    both = removed(Workflow(encoded).fit(DATA), ["price"], tmp_path)
    assert both.output_schema.names == ["TE_userId_rating", "TE_userId_price"]


def test_groups_that_remain_whole_remain(tmp_path):
    groups = ColumnSelector([["userId", "movieId"], "userId", ["userId", "year"]])
    workflow = Workflow(groups >> ops.TargetEncoding("rating")).fit(DATA)
    smaller = removed(workflow, ["movieId"], tmp_path)
    assert smaller.output_schema.names == ["TE_userId_rating", "TE_userId_year_rating"]
    # The target is among the inputs as before, so it can learn again.
    encoded = smaller.transform(DATA).collect()
    assert smaller.fit(DATA).transform(DATA).collect().equals(encoded)
    smaller = removed(workflow, ["movieId", "year"], tmp_path)
    assert smaller.output_schema.names == ["TE_userId_rating"]
    with pytest.raises(WorkflowError, match="Nothing remains of the workflow without userId"):
        workflow.remove_inputs("userId")


def test_an_operator_that_needs_all_its_columns_goes(tmp_path):
    share = ["price"] >> ops.LambdaOp(lambda price, df: price / df["year"], dependency=["year"])
    smaller = removed(Workflow(share + "userId").fit(DATA), ["year"], tmp_path)
    assert smaller.output_schema.names == ["userId"]
    assert smaller.input_schema.names == ["userId"]


@pytest.mark.parametrize("year", [["year"], ["year"] >> ops.FillMissing(2000)])
def test_an_operator_goes_on_with_the_columns_that_it_depends_on(year, tmp_path):
    share = ops.LambdaOp(lambda column, df: column / df["year"], dependency=year)
    workflow = Workflow((["price", "rating"] >> share) + "userId").fit(DATA)
    smaller = removed(workflow, ["rating"], tmp_path)
    assert smaller.output_schema.names == ["price", "userId"]


class Careless(ops.Normalize, abstract=True):
    """Keeps the moments of the first column, whichever remains."""

    def restrict(self, state, columns, names):  # noqa: ARG002
        yield {name: Column(moments.array[:1]) for name, moments in state.items()}


def test_an_operator_that_would_make_something_else_goes():
    workflow = Workflow((["price", "rating"] >> Careless()) + "userId").fit(DATA)
    assert workflow.remove_inputs("price").output_schema.names == ["userId"]
    assert workflow.remove_inputs("rating").output_schema.names == ["price", "userId"]


@pytest.mark.parametrize("names", [3, [["age"]], {"age": 1, "x": 2}])
def test_what_is_no_input_is_named(names):
    workflow = Workflow(["age", "price"]).fit({"age": [1], "price": [2.0]})
    with pytest.raises(WorkflowError, match=r"No input (3|\['age'\]|'x') in the workflow"):
        workflow.remove_inputs(names)


def test_inputs_that_cannot_be_removed_are_named():
    workflow = Workflow(["userId"] >> ops.Categorify())
    with pytest.raises(WorkflowError, match="not fitted"):
        workflow.remove_inputs("userId")
    workflow.fit(DATA)
    with pytest.raises(WorkflowError, match=r"No input 'age' .* The inputs are: userId"):
        workflow.remove_inputs(["age"])
    with pytest.raises(WorkflowError, match="Nothing remains"):
        workflow.remove_inputs("userId")


# Subgraphs


def two_towers() -> Workflow:
    users = Subgraph("user", ["userId"] >> ops.Categorify())
    items = Subgraph("item", ["movieId", "year"] >> ops.FillMissing(0) >> ops.Normalize())
    return Workflow(users + items + "rating")


def test_a_part_is_a_fitted_workflow_that_shares_the_state(tmp_path):
    workflow = two_towers().fit(DATA)
    workflow.output_dtypes["userId"] = "int32"
    workflow.save(tmp_path / "saved")
    rows = pl.DataFrame(DATA)
    for whole in (workflow, Workflow.load(tmp_path / "saved")):
        users = whole.get_subworkflow("user")
        assert users.input_schema.names == ["userId"]
        assert users.output_schema == whole.output_schema.select(["userId"])
        expected = whole.transform(rows).collect().select("userId")
        assert users.transform(rows.select("userId")).collect().equals(expected)
        [state] = users.states.values()
        assert any(state is other for other in whole.states.values())
        users.save(tmp_path / "users")
        assert Workflow.load(tmp_path / "users").transform(rows).collect().equals(expected)


def test_a_part_of_an_unfitted_workflow_is_unfitted():
    part = two_towers().get_subworkflow("item")
    assert not part.is_fitted
    assert part.fit(DATA).output_schema.names == ["movieId", "year"]


def test_parts_are_found_by_name():
    with pytest.raises(WorkflowError, match=r"No subgraph 'users'.*It has: 'user', 'item'"):
        two_towers().get_subworkflow("users")
    with pytest.raises(WorkflowError, match="It has: none"):
        Workflow(["userId"]).get_subworkflow("users")
    with pytest.raises(WorkflowError, match="Two subgraphs are named 'user'"):
        Workflow(Subgraph("user", "userId") + Subgraph("user", "movieId"))
    again = Subgraph("user", "userId")
    assert Workflow(again + as_node(again)["userId"]).get_subworkflow("user")
    for name in ("", None, 3):
        with pytest.raises(WorkflowError, match="Expected the name of a subgraph"):
            Subgraph(name, "userId")
