"""JoinExternal: keys as pandas gives them, and names that collide."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from workflow import Workflow, WorkflowError, ops
from workflow.schema.column import Column

PLANES = {"number": [101, 102, 2**53], "seats": [150, 300, 7]}


@pytest.mark.parametrize("dtype", ["float64", "Float64", "float32"])
def test_keys_of_integers_may_come_as_floats(dtype):
    """As pandas has integers beside a missing one."""
    rows = pd.DataFrame({"number": pd.Series([102.0, None, 101.0, 99.0], dtype=dtype)})
    workflow = Workflow(["number"] >> ops.JoinExternal(PLANES, on="number"))
    made = workflow.fit_transform(pl.from_pandas(rows)).collect()
    assert made["number"].to_list() == [102, None, 101, 99]
    assert made["seats"].to_list() == [300, None, 150, None]
    assert workflow.transform(rows).collect()["seats"].to_list() == [300, None, 150, None]


@pytest.mark.parametrize(
    ("on", "rows"),
    [
        ("number", {"number": [101.0, 101.5]}),
        ("number", {"number": [[101.0], [102.0, 101.5]]}),
        (["hour", "number"], {"hour": [1, 2], "number": [101.0, 101.5]}),
    ],
)
def test_a_key_with_a_fraction_is_refused_with_its_row(on, rows):
    planes = PLANES | {"hour": [1, 2, 3]}
    workflow = Workflow([*rows] >> ops.JoinExternal(planes, on=on))
    wrong = r"JoinExternal needs integers, .*column 'number', .*float64.*101\.5.* in row 1\. .*cast"
    with pytest.raises(WorkflowError, match=wrong):
        workflow.fit(rows)
    # What is no key may have fractions.
    priced = ["number", "price"] >> ops.JoinExternal(PLANES, on="number")
    made = Workflow(priced).fit_transform({"number": [101.0], "price": [1.5]}).collect()
    assert made.to_dicts() == [{"number": 101, "price": 1.5, "seats": 150}]


def test_computed_floats_beyond_every_integer_find_nothing():
    table = {"number": [2**63 - 1, -(2**63), 2**53], "seats": [1, 2, 3]}
    rows = pl.DataFrame(
        {"number": [2.0**63, -(2.0**63), 2.0**53, 0.5, float("inf"), -float("inf")]}
    )
    computed = ["number"] >> ops.LambdaOp(lambda number: number * 1.0)
    workflow = Workflow(computed >> ops.JoinExternal(table, on="number"))
    made = workflow.fit_transform(rows).collect()
    assert made["seats"].to_list() == [None, 2, 3, None, None, None]


def test_a_name_of_both_tables_says_what_to_do():
    rows = {"number": [101], "seats": [9]}
    both = ["number", "seats"] >> ops.JoinExternal(PLANES, on="number")
    with pytest.raises(WorkflowError, match=r"'seats' is in the data .* columns_ext, or rename"):
        Workflow(both).fit(rows)
    joined = ["number"] >> ops.JoinExternal(PLANES, on="number")
    with pytest.raises(
        WorkflowError, match=r"Two columns are named 'seats'.*ops\.Rename\(postfix.*columns_ext"
    ):
        Workflow(["seats"] + joined).fit(rows)
    renamed = ["seats"] >> ops.Rename(postfix="_2")
    assert Workflow(renamed + joined).fit(rows).transform(rows).collect().row(0) == (9, 101, 150)


WEATHER = {
    "origin": ["EWR", "EWR", "JFK", "JFK", None],
    "hour": [1, 2, 1, 3, 1],
    "wind": [10.0, 12.5, None, 8.0, 99.0],
    "codes": [[1], [], [2, 3], None, [9]],
}


def test_several_keys_find_what_pandas_merge_finds(tmp_path):
    rows = {
        "origin": ["JFK", "EWR", "LGA", None, "EWR", "JFK"],
        "hour": [3, 2, 1, 1, None, 2],
        "flight": [1, 2, 3, 4, 5, 6],
    }
    joined = list(rows) >> ops.JoinExternal(WEATHER, on=["origin", "hour"])
    workflow = Workflow(joined).fit(rows)
    workflow.save(tmp_path / "saved")
    table = pd.DataFrame(WEATHER).dropna(subset=["origin"])[["origin", "hour", "wind"]]
    keyed = pd.DataFrame(rows).astype({"hour": "Int64"})
    merged = keyed.merge(table.astype({"hour": "Int64"}), on=["origin", "hour"], how="left")
    wanted = [None if pd.isna(wind) else wind for wind in merged["wind"]]
    assert wanted == [8.0, 12.5, None, None, None, None]
    for made in (workflow, Workflow.load(tmp_path / "saved")):
        frame = made.transform(rows).collect()
        assert frame["wind"].to_list() == wanted
        assert frame["codes"].to_list() == [[], [], [], [], [], []]
        again = Workflow.load(tmp_path / "saved").fit(rows).transform(rows).collect()
        assert again.equals(frame)


def test_keys_of_other_names_and_kinds():
    at = pl.Series(["2024-01-01 00:00:00", "2024-01-01 05:00:00"]).str.to_datetime()
    table = pl.DataFrame({"port": ["a", "b"], "time": at, "wide": [1, 2**40], "x": [0.5, 1.5]})
    rows = pl.DataFrame({"from": ["b", "a"], "at": at.reverse(), "number": [2.0**40, None]})
    on, on_ext = ["from", "at", "number"], ["port", "time", "wide"]
    workflow = Workflow(on >> ops.JoinExternal(table, on=on, on_ext=on_ext)).fit(rows)
    assert workflow.transform(rows).collect()["x"].to_list() == [1.5, None]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on": []}, "distinct names in on"),
        ({"on": ["a", "a"]}, "distinct names in on"),
        ({"on": ["origin", "origin"], "on_ext": ["origin", "hour"]}, "distinct names in on"),
        ({"on": ["origin", "hour"], "on_ext": "origin"}, "as many in on_ext"),
        ({"on": ["origin", "wind"]}, "'wind' is not among the input columns"),
        ({"on": "origin"}, r"keys of the external table occur more than once, .*\['EWR'\]"),
    ],
)
def test_keys_that_make_no_sense_are_refused(settings, message):
    rows = {"origin": ["EWR"], "hour": [1]}
    with pytest.raises(WorkflowError, match=message):
        Workflow(list(rows) >> ops.JoinExternal(WEATHER, **settings)).fit(rows)


def test_a_key_twice_among_several_keeps_the_first():
    table = {"a": [1, 1, 1], "b": [2, 2, 3], "x": ["first", "second", "other"]}
    rows = {"a": [1, 1], "b": [2, 3]}
    node = ["a", "b"] >> ops.JoinExternal(table, on=["a", "b"], drop_duplicates_ext=True)
    assert Workflow(node).fit(rows).transform(rows).collect()["x"].to_list() == ["first", "other"]


@pytest.mark.parametrize("pairs", [[2**62, 2**62 + 1], [-5, 14], [0, 1], [10, 16]])
def test_a_state_that_is_of_no_table_is_refused(pairs):
    table = {"a": [1, 2], "b": [3, 4], "x": [0.5, 1.5]}
    workflow = Workflow(["a", "b"] >> ops.JoinExternal(table, on=["a", "b"])).fit(
        {"a": [1], "b": [3]}
    )
    ((_, state),) = workflow.states.items()
    spoilt = {**state, "table.key1.pairs": Column(np.array(pairs))}
    config = {"on": ["a", "b"], "on_ext": None, "columns_ext": None, "drop_duplicates_ext": False}
    with pytest.raises(WorkflowError, match="a value of each key"):
        ops.JoinExternal.from_config(config, spoilt)


@pytest.mark.parametrize("names", [("", "year"), ("movie", "")])
def test_a_loaded_table_keeps_an_empty_name(names, tmp_path):
    key, column = names
    node = [key] >> ops.JoinExternal({key: [1, 2], column: [1999, 2001]}, on=key)
    rows = {key: [2, 3, 1]}
    Workflow(node).fit(rows).save(tmp_path / "saved")
    made = Workflow.load(tmp_path / "saved").fit(rows).transform(rows).collect()
    assert made.to_dict(as_series=False) == rows | {column: [2001, None, 1999]}


def test_nan_in_the_arrays_of_a_table_is_null():
    lists = pl.Series([[1.0, float("nan")], [3.0, None], None], dtype=pl.List(pl.Float64))
    for values in (lists, lists.cast(pl.Array(pl.Float64, 2))):
        table = pl.DataFrame({"id": [7, 8, 9], "x": values})
        joined = ["id"] >> ops.JoinExternal(table, on="id")
        made = Workflow(joined["x"] >> ops.FillMissing(0)).fit_transform({"id": [7, 8, 9]})
        assert made.collect()["x"].to_list() == [[1, 0], [3, 0], []]
