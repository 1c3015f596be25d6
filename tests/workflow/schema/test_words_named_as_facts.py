"""Properties with the name of a fact, of a form that is the user's own: words that say nothing."""

from __future__ import annotations

import itertools

import polars as pl
import pytest

from workflow import ColumnSchema, Schema, Workflow, ops
from workflow.expressions.polars.series import column_schema

WORDS = {
    "cardinality": ["many", None, 0],
    "embedding_size": ["wide", [8]],
    "domain": ["example.com", {"min": 0}, {"min": 0.5, "max": 1.5}, [0, 8], None],
    "value_count": ["few", 7, [1, 2], {"min": "a", "max": 3}],
}
PAIRS = [(name, word) for name, words in WORDS.items() for word in words]
ROWS = pl.DataFrame({"id": [1, None, 3], "ids": [[1, 2, 3], [4], []]})


def with_words(**properties: object) -> Schema:
    columns = (column_schema(name, dtype) for name, dtype in ROWS.schema.items())
    return Schema(column.with_(properties=properties) for column in columns)


@pytest.mark.parametrize(("name", "word"), PAIRS)
def test_operators_that_look_at_facts_take_words_of_the_users(name, word):
    outputs = {
        "filled": ["id"] >> ops.FillMissing(0),
        "kept": ["id"] >> ops.DropLowCardinality(),
        "cut": ["ids"] >> ops.ListSlice(1, -1),
        "padded": ["ids"] >> ops.ListSlice(2, pad=True),
        "small": ["id"] >> ops.ReduceDtypeSize(),
    }
    made = {n: Workflow(o).fit(ROWS, schema=with_words(**{name: word})) for n, o in outputs.items()}
    rows = {n: workflow.transform(ROWS).collect().to_series() for n, workflow in made.items()}
    assert rows["filled"].to_list() == [1, 0, 3]
    assert rows["kept"].to_list() == [1, None, 3]
    assert rows["cut"].to_list() == [[2], [], []]
    assert rows["padded"].to_list() == [[1, 2], [4, 0], [0, 0]]
    assert rows["small"].to_list() == [1, None, 3]
    assert rows["small"].dtype == pl.Int8
    # What the user said of values holds no longer of others.
    assert name not in made["filled"].output_schema["id"].properties or name == "value_count"


@pytest.mark.parametrize(
    "facts", list(itertools.permutations(["cardinality", "domain", "embedding_size"]))
)
def test_facts_keep_their_order_in_every_process(facts):
    """Not that of a set, which changes with the hashes of strings: two exports of one workflow had other files."""
    values = {"cardinality": 4, "domain": {"min": 0, "max": 3}, "embedding_size": 8}
    properties = {name: values[name] for name in facts}
    columns = Schema([ColumnSchema("ids", "int64", is_list=True, properties=properties)])
    workflow = Workflow(["ids"] >> ops.ListSlice(0, 2, pad=True)).fit(ROWS, schema=columns)
    kept = workflow.output_schema["ids"].properties
    assert [name for name in kept if name in facts] == [*facts]
