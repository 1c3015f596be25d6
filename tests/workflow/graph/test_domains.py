"""The names of domains: who shares an embedding table by them must share a vocabulary."""

from __future__ import annotations

import polars as pl
import pytest

from workflow import Subgraph, Workflow, ops

ROWS = {"city": ["a", "b", "a", None], "town": ["b", "c", "c", "a"], "price": [1.0, 2.0, 3.0, 4.0]}


def names(workflow: Workflow) -> dict[str, str]:
    return {n: c.properties["domain"]["name"] for n, c in workflow.output_schema.items()}


def twice(setting: dict) -> Workflow:
    again = ["city"] >> ops.Categorify(**setting) >> ops.Rename(postfix="_again")
    return Workflow((["city"] >> ops.Categorify()) + again).fit(ROWS)


@pytest.mark.parametrize("setting", [{"freq_threshold": 2}, {"num_buckets": 7}, {}], ids=str)
def test_two_vocabularies_of_one_column_have_names_of_their_own(setting, tmp_path):
    workflow = twice(setting)
    assert names(workflow) == {"city": "city", "city_again": "city_2"}
    workflow.save(tmp_path / "saved")
    assert Workflow.load(tmp_path / "saved").output_schema == workflow.output_schema


def test_columns_of_one_vocabulary_have_one_name():
    joint = [["city", "town"]] >> ops.Categorify()
    renamed = joint["city"] >> ops.Rename(name="twin")
    alone = ["town"] >> ops.Categorify() >> ops.Rename(name="alone")
    workflow = Workflow(joint + renamed + alone).fit(ROWS)
    shared = {"city": "city_town", "town": "city_town", "twin": "city_town"}
    assert names(workflow) == {**shared, "alone": "town"}


def test_a_name_of_the_data_is_not_taken_again(tmp_path):
    first = Workflow((["city"] >> ops.Categorify()) + "price").fit(ROWS)
    first.transform_to_parquet(ROWS, tmp_path / "ids")
    again = ["city"] >> ops.Categorify() >> ops.Rename(name="again")
    second = Workflow(again + "city").fit(tmp_path / "ids")
    assert names(second) == {"again": "city_2", "city": "city"}


def test_ids_in_groups_are_read_back_by_their_own_vocabulary():
    """A list of a group's ids is known by the domain alone."""
    ids = (["city"] >> ops.Categorify()) + (
        ["city"] >> ops.Categorify(vocabs={"city": ["b", "a"]}) >> ops.Rename(name="own")
    )
    workflow = Workflow((ids + "price") >> ops.Groupby("price", aggs="list")).fit(ROWS)
    assert workflow.reverse_mapping("city_list")["value"].to_list()[-2:] == ["a", "b"]
    assert workflow.reverse_mapping("own_list")["value"].to_list()[-2:] == ["b", "a"]


def test_a_part_keeps_the_dtypes_that_were_assigned():
    """Alone its vocabulary is the first of its name; it is the same column for all that."""
    again = Subgraph(
        "again", ["city"] >> ops.Categorify(freq_threshold=2) >> ops.Rename(name="rare")
    )
    workflow = Workflow((["city"] >> ops.Categorify()) + again).fit(ROWS)
    workflow.output_dtypes["rare"] = "int16"
    part = workflow.get_subworkflow("again")
    assert names(part) == {"rare": "city"}
    assert part.transform(ROWS).collect()["rare"].dtype == pl.Int16


def test_inputs_are_removed_whatever_the_names_of_the_others():
    both = ["city", "town"] >> ops.Categorify() >> ops.Rename(postfix="_2")
    again = ["town"] >> ops.Categorify() >> ops.ReduceDtypeSize()
    workflow = Workflow(both + again).fit(ROWS)
    assert workflow.remove_inputs("city").output_schema.names == ["town_2", "town"]
