"""The sizes of embedding tables: too few rows crash a model, or clip its ids silently."""

from __future__ import annotations

import pytest

from workflow import ColumnSchema, Schema, Workflow, WorkflowError, get_embedding_sizes, ops

DATA = {
    "user": [1, 2, 3, 3],
    "genres": [["x"], ["y", "z"], [], None],
    "age": [5.0, 20.0, None, 70.0],
    "rating": [1.0, 0.0, 1.0, 1.0],
}


def test_every_column_of_ids_has_a_table_that_holds_its_ids():
    ids = ["user", "genres"] >> ops.Categorify()
    hashed = ["user"] >> ops.HashBucket(10) >> ops.Rename(postfix="_bucket")
    binned = ["age"] >> ops.Bucketize([18, 65])
    target = ["user"] >> ops.TargetEncoding("rating")
    bins = ["rating"] >> ops.Bucketize([0.5]) >> ops.Rename(name="rating_bin")
    crossed = (["user"] + bins)[[["user", "rating_bin"]]] >> ops.HashedCross(7)
    workflow = Workflow(ids + hashed + crossed + binned + target).fit(DATA)
    single, multi = get_embedding_sizes(workflow)
    made = workflow.transform(DATA).collect()
    assert set(single) == {"user", "user_bucket", "user_X_rating_bin", "age"}
    assert set(multi) == {"genres"}
    for name, (rows, width) in {**single, **multi}.items():
        values = made[name].explode(empty_as_null=False) if name in multi else made[name]
        assert values.max() < rows
        assert width >= 16


def test_a_rule_of_the_users_sets_the_width_and_a_property_goes_before_it():
    properties = {"cardinality": 100_000, "embedding_size": 8}
    schema = Schema(
        [
            ColumnSchema("a", "int64", properties={"cardinality": 100_000}),
            ColumnSchema("b", "int64", properties=properties),
            ColumnSchema("c", "float32"),
        ]
    )
    assert get_embedding_sizes(schema) == {"a": (100_000, 512), "b": (100_000, 8)}
    assert get_embedding_sizes(schema, lambda _: 32) == {"a": (100_000, 32), "b": (100_000, 8)}


@pytest.mark.parametrize("cardinality", [0, -5, 2.5, "9", True], ids=repr)
def test_a_cardinality_that_is_none_is_refused_by_name(cardinality):
    schema = Schema([ColumnSchema("a", "int64", properties={"cardinality": cardinality})])
    with pytest.raises(WorkflowError, match="cardinality of column 'a'"):
        get_embedding_sizes(schema)


def test_a_rule_that_gives_no_width_is_refused():
    schema = Schema([ColumnSchema("a", "int64", properties={"cardinality": 9})])
    with pytest.raises(WorkflowError, match=r"width of the embedding of column 'a'.*Received: 4.5"):
        get_embedding_sizes(schema, lambda rows: rows / 2)
