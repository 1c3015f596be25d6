"""A workflow before it has seen data: its facts and its methods."""

from __future__ import annotations

import polars as pl
import pytest

from workflow import (
    ColumnSchema,
    Schema,
    SchemaError,
    Workflow,
    WorkflowError,
    get_embedding_sizes,
    ops,
)
from workflow.data.sources import Source
from workflow.graph.input_schema import read_schema
from workflow.operator.operator import OPERATORS

EXAMPLES = [
    pytest.param(example, id=f"{name}-{number}")
    for name, operator in OPERATORS.items()
    for number, example in enumerate(operator.examples())
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_types_of_every_operator_are_those_of_a_fit(example):
    frame = pl.DataFrame(example.columns)
    node = (example.left or frame.columns) >> example.operator
    fitted = Workflow(node).fit(frame)
    known = read_schema(fitted.nodes, Source.of(frame), None)
    guessed = Workflow(node).fit_schema(known).output_schema
    for column in fitted.output_schema.columns:
        if column.name in guessed:  # DropLowCardinality learns which columns stay
            other = guessed[column.name]
            assert (column.is_list, column.tags) == (other.is_list, other.tags)
            if not isinstance(example.operator, ops.ReduceDtypeSize):
                assert column.dtype == other.dtype


def test_ids_have_no_size_before_they_have_seen_data():
    columns = Schema([ColumnSchema("user", "string"), ColumnSchema("age", "int64")])
    node = (["user"] >> ops.Categorify()) + (["age"] >> ops.HashBucket(10))
    workflow = Workflow(node).fit_schema(columns)
    assert workflow.output_schema.names == ["user", "age"]
    assert get_embedding_sizes(workflow) == {"age": (10, 16)}
    assert not workflow.is_fitted


@pytest.mark.parametrize(
    "use",
    [
        lambda workflow, _: workflow.transform({"user": ["a"]}),
        lambda workflow, path: workflow.transform_to_parquet({"user": ["a"]}, path / "out"),
        lambda workflow, path: workflow.save(path / "saved"),
        lambda workflow, _: workflow.remove_inputs(["user"]),
        lambda workflow, _: workflow.reverse_mapping("user"),
        lambda workflow, _: workflow.program,
    ],
)
def test_what_needs_a_vocabulary_is_refused(use, tmp_path):
    columns = Schema([ColumnSchema("user", "string")])
    workflow = Workflow(["user"] >> ops.Categorify()).fit_schema(columns)
    with pytest.raises(WorkflowError, match=r"Categorify must learn from data. Call fit\(data\)"):
        use(workflow, tmp_path)
    made = workflow.fit({"user": ["a"]}).transform({"user": ["a"]}).collect()
    assert made["user"].to_list() == [3]


def test_a_workflow_that_brings_its_own_tables_is_fitted_by_a_schema():
    joined = ["movie"] >> ops.JoinExternal({"movie": [1], "year": [1999]}, on="movie")
    workflow = Workflow(joined).fit_schema(Schema([ColumnSchema("movie", "int64")]))
    assert workflow.is_fitted
    assert workflow.transform({"movie": [1, 2]}).collect()["year"].to_list() == [1999, None]


def test_transform_needs_no_fit_where_nothing_is_learnt(tmp_path):
    prices = ["price"] >> ops.FillMissing(0.0) >> ops.LogOp()
    data = {"price": [0.0, None]}
    assert Workflow(prices).transform(data).collect()["price"].to_list() == [0.0, 0.0]
    (file,) = Workflow(prices).transform_to_parquet(data, tmp_path)
    assert pl.read_parquet(file)["price"].to_list() == [0.0, 0.0]
    with pytest.raises(WorkflowError, match="not fitted"):
        Workflow(["price"] >> ops.Normalize()).transform(data)


def test_a_node_knows_its_columns_after_a_fit():
    ids = ["user"] >> ops.Categorify()
    with pytest.raises(WorkflowError, match="in no workflow that is fitted"):
        get_embedding_sizes(ids)
    Workflow(ids + "price").fit({"user": [7, 9], "price": [1.0, 2.0]})
    assert get_embedding_sizes(ids) == {"user": (5, 16)}
    assert ids.output_schema.names == ["user"]


@pytest.mark.parametrize("columns", [["user"], "user", [("user", "int64")], [None]])
def test_a_schema_is_of_columns_with_types(columns):
    with pytest.raises(SchemaError, match=r"ColumnSchema\('userId', 'int64'\)\. Received: "):
        Schema(columns)
