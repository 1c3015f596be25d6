"""A user's own words about a column stay with all that is computed of it, through every operator."""

from __future__ import annotations

import polars as pl
import pytest

from workflow import ColumnSchema, Schema, Tags, Workflow, ops
from workflow.expressions.polars.series import column_schema
from workflow.operator.operator import OPERATORS, Example
from workflow.schema.tags import FACTS

OWN = {"p1": 1, "unit": {"of": ["a", "b"]}}
NAMED = [OPERATORS[name] for name in ops.__all__ if name in OPERATORS]
EXAMPLES = {f"{o.__name__} {n}": e for o in NAMED for n, e in enumerate(o.examples())}


def fitted(example: Example) -> Workflow:
    """The operator over columns that all carry properties of the user's, and no facts."""
    data = pl.DataFrame(dict(example.columns))
    columns = [column_schema(name, dtype) for name, dtype in data.schema.items()]
    schema = Schema(c.with_(properties={**c.properties, **OWN}) for c in columns)
    left = example.left or list(example.columns)
    return Workflow(left >> example.operator).fit(data, schema=schema)


def test_every_operator_has_an_example_here():
    assert {type(e.operator) for e in EXAMPLES.values()} == set(NAMED)
    assert set(ops.__all__) == set(OPERATORS)


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_properties_of_the_users_own_pass_through_every_operator(example, tmp_path):
    workflow = fitted(example)
    # Columns that come from another table are not computed of the data's.
    foreign = set()
    if isinstance(example.operator, ops.JoinExternal):
        foreign = set(workflow.output_schema) - set(example.columns)
    replaced = example.operator.properties if isinstance(example.operator, ops.AddMetadata) else {}
    workflow.save(tmp_path / "saved")
    for schema in (workflow.output_schema, Workflow.load(tmp_path / "saved").output_schema):
        for column in schema.columns:
            kept = {n: v for n, v in column.properties.items() if n in OWN}
            wanted = {} if column.name in foreign else {**OWN, **replaced}
            assert kept == {n: v for n, v in wanted.items() if n in OWN}, column.name


STATED = {"cardinality": 7_777, "embedding_size": 77, "domain": {"min": -5, "max": 7_771}}
COMPUTED = {
    "TargetEncoding": lambda: [["user", "item"], "user"] >> ops.TargetEncoding("price"),
    "JoinGroupby": lambda: [["user", "item"], "user"] >> ops.JoinGroupby("price"),
    "DifferenceLag": lambda: ["item"] >> ops.DifferenceLag("user"),
    "Groupby": lambda: (
        ["user", "item"] >> ops.Groupby("user", aggs={"item": ["sum", "mean", "count"]})
    )[["item_sum", "item_mean", "item_count"]],
    "combo": lambda: [["user", "item"]] >> ops.Categorify(encode_type="combo"),
    "HashedCross": lambda: [["user", "item"]] >> ops.HashedCross(9),
    "LambdaOp": lambda: ["user"] >> ops.LambdaOp(lambda c: c * 2),
    "Normalize": lambda: ["user"] >> ops.Normalize(),
}
ROWS = {"user": [1, 1, 2], "item": [1, 2, 2], "price": [0.5, 1.0, 1.5]}


@pytest.mark.parametrize("left", COMPUTED.values(), ids=COMPUTED)
def test_what_is_computed_of_columns_has_their_own_words_and_not_their_facts(left):
    user = {**STATED, "who": "u", "same": [1], "other": 1}
    item = {**STATED, "what": "i", "same": [1], "other": 2}
    schema = Schema(
        [
            ColumnSchema("user", "int64", properties=user),
            ColumnSchema("item", "int64", properties=item),
            ColumnSchema("price", "float64", properties={"currency": "EUR"}),
        ]
    )
    workflow = Workflow(left()).fit(ROWS, schema=schema)
    for column in workflow.output_schema.columns:
        properties = column.properties
        assert properties["same"] == [1]
        # Of several columns the words of each, but for what they contradict each other in.
        several = "who" in properties and "what" in properties
        assert ("other" in properties) == (not several)
        assert "who" in properties or "what" in properties
        assert "currency" not in properties
        assert not any(properties.get(fact) == STATED[fact] for fact in FACTS)


def test_statistics_are_served_without_what_they_describe_whatever_is_known_of_it():
    schema = Schema(
        [
            ColumnSchema("user", "int64", tags=(Tags.USER, "mine"), properties={"p1": 1}),
            ColumnSchema("price", "float64", tags=("other",), properties={"p1": 2, "p2": 1}),
        ]
    )
    for operator in (
        ops.JoinGroupby("price", stats=["mean", "count"]),
        ops.TargetEncoding("price"),
    ):
        workflow = Workflow(["user"] >> operator).fit(ROWS, schema=schema)
        smaller = workflow.remove_inputs("price")
        assert smaller.output_schema == workflow.output_schema
        for column in smaller.output_schema.columns:
            assert column.tags == ("user", "mine", "continuous")
            assert column.properties.keys() == {"p1", "fit_digest"}
            assert column.properties["p1"] == 1
