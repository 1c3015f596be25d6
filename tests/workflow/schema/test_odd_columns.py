"""Columns of every type that Polars has, and of any name: they work throughout, or are refused by name."""

from __future__ import annotations

import datetime as dt
import decimal
import math

import polars as pl
import pytest

from workflow import Workflow, WorkflowError, ops

DAY = dt.datetime(2020, 2, 29, 5)  # noqa: DTZ001 - each column has its own time zone, or none
TAKEN = {
    "time zone": pl.Series([DAY, None, DAY], dtype=pl.Datetime("ms", "Europe/Rome")),
    "nanoseconds": pl.Series([DAY, None, DAY], dtype=pl.Datetime("ns")),
    "date": pl.Series([DAY.date(), None, DAY.date()]),
    "dates": pl.Series([[DAY.date()], None, []]),
    "categorical": pl.Series(["b", None, "a"], dtype=pl.Categorical),
    "enum": pl.Series(["b", None, "a"], dtype=pl.Enum(["b", "a"])),
    "categoricals": pl.Series([["b"], None, ["a", None]], dtype=pl.List(pl.Categorical)),
    "uint64": pl.Series([2**64 - 1, None, 0], dtype=pl.UInt64),
    "int8": pl.Series([-128, None, 127], dtype=pl.Int8),
    "bool": pl.Series([True, None, False]),
    "nothing": pl.Series([None] * 3, dtype=pl.Int32),
    "text": pl.Series(["", None, "日本\0"]),
    "array": pl.Series([[1, 2], None, [3, 4]], dtype=pl.Array(pl.Int16, 2)),
    "float32": pl.Series([1.5, math.nan, math.inf], dtype=pl.Float32),
}
REFUSED = {
    "null": pl.Series([None] * 3),
    "nulls": pl.Series([[None], None, []]),
    "time": pl.Series([DAY.time(), None, None]),
    "duration": pl.Series([dt.timedelta(1), None, None]),
    "decimal": pl.Series([decimal.Decimal("1.5"), None, None]),
    "binary": pl.Series([b"a", None, b"\xff"]),
    "struct": pl.Series([{"a": 1}, None, {"a": 2}]),
    "structs": pl.Series([[{"a": 1}], None, []]),
    "lists of lists": pl.Series([[[1]], None, []]),
    "int128": pl.Series([1, None, 2], dtype=pl.Int128),
    "objects": pl.Series([object(), None, 3], dtype=pl.Object),
}
NAMES = ["", " ", "Categorify", "日本", "a/b", "a.b", "a\nb", "x" * 500, "index", "__nnzs", "a@1"]


@pytest.mark.parametrize("kind", TAKEN)
def test_a_column_comes_out_as_the_schema_says_by_every_way(kind, tmp_path):
    data = pl.DataFrame({"x": TAKEN[kind], "key": [1, 2, 1]})
    ids = ["x"] >> (ops.Bucketize([0.0]) if kind == "float32" else ops.Categorify())
    workflow = Workflow("x" + (ids >> ops.Rename(name="id"))).fit(data)
    made = workflow.transform(data).collect()
    assert made["id"].to_list()[1] in (1, None, [])
    for rows in (data.clear(), data[:1]):
        assert workflow.transform(rows).collect().equals(made[: rows.height])
    data.write_parquet(tmp_path / "in.parquet")
    again = Workflow(workflow.nodes[-1]).fit(tmp_path / "in.parquet")
    assert again.output_schema == workflow.output_schema
    files = again.transform_to_parquet(tmp_path / "in.parquet", tmp_path / "out")
    assert pl.read_parquet(files).equals(made)
    workflow.save(tmp_path / "saved")
    assert Workflow.load(tmp_path / "saved").transform(data).collect().equals(made)


@pytest.mark.parametrize("kind", REFUSED)
def test_a_column_of_no_type_of_ours_is_named_with_its_type(kind):
    data = pl.DataFrame({"x": REFUSED[kind], "key": [1, 2, 1]})
    table = ["key"] >> ops.JoinExternal(data.unique("key") if kind != "objects" else data, on="key")
    for node in (["x"] >> ops.Categorify(), table):
        with pytest.raises(
            WorkflowError, match=r"Expected column 'x' as numbers.*Received: "
        ) as error:
            Workflow(node).fit(data)
        assert "\n" not in str(error.value)
    assert Workflow("key").fit_transform(data).collect()["key"].to_list() == [1, 2, 1]


def test_the_advice_for_lists_of_lists_makes_lists_of_them():
    data = pl.DataFrame({"x": REFUSED["lists of lists"]})
    node = ["x"] >> ops.Categorify()
    with pytest.raises(WorkflowError, match="Convert it before, in Polars: ") as error:
        Workflow(node).fit(data)
    advice = str(error.value).partition("in Polars: ")[2].rstrip(".")
    flat = data.with_columns(eval(advice, {"polars": pl}))  # noqa: S307 - of our own text
    assert flat["x"].to_list() == [[1], None, []]
    assert Workflow(node).fit_transform(flat).collect()["x"].to_list() == [[3], [], []]


@pytest.mark.parametrize("name", NAMES)
def test_a_column_may_have_any_name(name, tmp_path):
    data = pl.DataFrame({name: [7, 9, 7, None], "price": [1.0, None, 3.0, 5.0]})
    encoded = [name] >> ops.TargetEncoding("price")
    workflow = Workflow(([name] >> ops.Categorify()) + encoded + "price").fit(data)
    made = workflow.transform(data).collect()
    assert made[name].to_list() == [3, 4, 3, 1]
    assert workflow.fit_transform(data).collect().columns == made.columns
    workflow.save(tmp_path / "saved")
    loaded = Workflow.load(tmp_path / "saved")
    files = loaded.transform_to_parquet(data, tmp_path / "out")
    assert pl.read_parquet(files).equals(made)
