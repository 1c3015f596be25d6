"""Transform takes the same values in other types for a column that fit has seen."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest

from workflow import Workflow, WorkflowError, ops

DATA = {"user": [7, 7, 9, 2**53], "price": [1.5, 2.0, None, 4.0], "clicks": [[1, 2], [], None, [2]]}


@pytest.fixture
def workflow() -> Workflow:
    return Workflow((["user", "clicks"] >> ops.Categorify()) + "price").fit(DATA)


def ways(workflow, data, tmp_path):
    """The rows by each way from data to outputs."""
    yield workflow.transform(data).collect()
    yield pl.read_parquet(workflow.transform_to_parquet(data, tmp_path / "memory"))
    frame = pl.DataFrame(pl.from_pandas(data)) if isinstance(data, pd.DataFrame) else data
    pl.DataFrame(frame).write_parquet(tmp_path / "in.parquet")
    file = tmp_path / "in.parquet"
    yield workflow.transform(file).collect()
    yield pl.read_parquet(workflow.transform_to_parquet(file, tmp_path / "files"))


def test_integers_that_pandas_made_floats_are_integers(workflow, tmp_path):
    """One missing value is enough for pandas to make floats of a column of ids."""
    floats = pd.DataFrame(
        {"user": [7, None, 2**53], "price": [1, 2, 3], "clicks": [[1.0], [], [2.0]]}
    )
    assert floats["user"].dtype == np.float64
    want = {"user": [3, 1, 5], "clicks": [[4], [], [3]], "price": [1.0, 2.0, 3.0]}
    for made in ways(workflow, floats, tmp_path):
        assert made.to_dict(as_series=False) == want


def test_nan_of_a_column_of_integers_is_null(workflow):
    nan = {"user": [math.nan, 7.0], "price": [0.5, 1.0], "clicks": [[math.nan, 1.0], [None]]}
    made = workflow.transform(nan).collect()
    assert made["user"].to_list() == [1, 3]
    assert made["clicks"].to_list() == [[1, 4], [1]]


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("user", [7.0, None, 7.5], r"'user' as int64\?.*Received: 7\.5 in row 2"),
        ("user", [math.inf, 7.0, 7.0], r"Received: inf in row 0"),
        ("user", [7.0, 2.0**60, 7.0], r"up to 9007199254740992\. Received: 1\.15.* in row 1"),
        ("user", pl.Series([1, 2**25, 0], dtype=pl.Float32), r"up to 16777216\..* in row 1"),
        ("clicks", [[1.0], [2.5, None], []], r"'clicks' as list\[int64\]\?.* in row 1"),
    ],
)
def test_floats_that_are_no_integers_are_refused_with_their_row(workflow, column, values, message):
    data = {"user": [7] * 3, "price": [0.5] * 3, "clicks": [[1]] * 3, column: values}
    with pytest.raises(WorkflowError, match=message):
        workflow.transform(pl.DataFrame(data))


@pytest.mark.parametrize("number", [-129, 128, 2**40])
def test_integers_beyond_the_dtype_of_fit_are_refused(number, tmp_path):
    workflow = Workflow("age").fit({"age": pl.Series([7], dtype=pl.Int8)})
    pl.DataFrame({"age": [7, number]}).write_parquet(tmp_path / "a.parquet")
    for data in ({"age": [7, None, number]}, {"age": [7.0, number]}, tmp_path / "a.parquet"):
        with pytest.raises(WorkflowError, match=f"'age' as int8\\?, as in fit. Received: {number}"):
            workflow.transform(data)


@pytest.mark.parametrize("number", [-1e300, 3.5e38])
def test_floats_that_float32_of_fit_would_make_infinite_are_refused(number, tmp_path):
    fitted = {
        "x": pl.Series([0.5], dtype=pl.Float32),
        "l": pl.Series([[0.5]], dtype=pl.List(pl.Float32)),
    }
    workflow = Workflow(["x", "l"]).fit(pl.DataFrame(fitted))
    good = [0.1, None, math.inf, 3.4e38]
    made = workflow.transform({"x": good, "l": [good] * 4}).collect()
    wanted = [None if value is None else float(np.float32(value)) for value in good]
    assert made["x"].to_list() == wanted
    assert made["l"].to_list() == [wanted] * 4
    wrong = {"x": [0.5, None, number], "l": [[0.5]] * 3}
    with pytest.raises(
        WorkflowError, match=r"'x' as float32\?, as in fit\. Received: .* in row 2\."
    ):
        workflow.transform(wrong)
    pl.DataFrame({"x": [0.5, 0.5], "l": [[], [None, number]]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(WorkflowError, match=r"'l' as list\[float32\]\?, as in fit\. .* in row 1\."):
        workflow.transform(tmp_path / "a.parquet")


def test_keys_of_an_external_table_may_be_floats_that_are_integers():
    movies = pd.DataFrame({"movie": [10, None, 20], "year": [1999, 2001, 2003]})
    years = Workflow(["movie"] >> ops.JoinExternal(movies, on="movie"))
    made = years.fit_transform({"movie": [20, 10, 30]}).collect()
    assert made["year"].to_list() == [2003, 1999, None]
    with pytest.raises(WorkflowError, match=r"'movie' as int64\?.*Received: 10\.5 in row 0"):
        Workflow(["movie"] >> ops.JoinExternal({"movie": [10.5]}, on="movie")).fit({"movie": [1]})


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("user", ["7"]),
        ("user", [True]),
        ("user", [[7]]),
        ("price", ["1.5"]),
        ("price", [True]),
        ("clicks", [1]),
        ("user", pl.Series([0], dtype=pl.Datetime("us"))),
        ("user", pl.Series([{"a": 1}])),
        ("user", pl.Series([7], dtype=pl.Decimal(10, 2))),
    ],
)
def test_another_kind_of_values_is_refused(workflow, column, values):
    data = {"user": [7], "price": [0.5], "clicks": [[1]], column: values}
    with pytest.raises(
        WorkflowError, match=rf"Expected column '{column}' as .*Received: .*\. \w.*\.$"
    ):
        workflow.transform(pl.DataFrame(data))


@pytest.mark.parametrize("lists", [[[], []], [[None], None]])
@pytest.mark.parametrize("name", ["user", "price"])
def test_lists_without_a_value_are_no_single_values(workflow, name, lists, tmp_path):
    rows = pl.DataFrame({"user": [7, 9], "price": [1.5, 2.0], "clicks": [[1], [2]]})
    rows = rows.with_columns(pl.Series(name, lists))
    rows.write_parquet(tmp_path / "rows.parquet")
    for data in (rows, tmp_path / "rows.parquet"):
        with pytest.raises(WorkflowError, match=rf"column '{name}'.*List\(Null\). Send a single"):
            workflow.transform(data)
    clicks = rows.with_columns(pl.Series("clicks", lists), pl.Series(name, [7, 9]))
    made = workflow.transform(clicks).collect()["clicks"].to_list()
    assert made == [[] if row is None else [1] * len(row) for row in lists]


def test_the_advice_for_numbers_in_place_of_strings_keeps_nan_a_null():
    workflow = Workflow(["name"] >> ops.Categorify()).fit({"name": ["a", "b"]})
    frame = pl.DataFrame({"name": [math.nan, 1.0]})
    with pytest.raises(
        WorkflowError, match=r"Cast it: \.fill_nan\(None\)\.cast\(pl\.String\) in P"
    ):
        workflow.transform(frame)
    texts = frame.select(pl.col("name").fill_nan(None).cast(pl.String))
    assert workflow.transform(texts).collect()["name"].to_list() == [1, 2]


@pytest.mark.parametrize(
    ("fitted", "received", "advice", "convert"),
    [
        (
            [True, None, False],
            pd.Series([1.0, math.nan, 0.0]),
            'column.fill_nan(None) == value in Polars, column.astype("Float64") == value in pandas',
            lambda column: column.astype("Float64") == 1,
        ),
        (
            [True, None, False],
            pd.Series(["yes", None, "no"]),
            'column == value in Polars, column.astype("string") == value in pandas',
            lambda column: column.astype("string") == "yes",
        ),
        (
            [1, None, 0],
            pd.Series(["1", None, "0"]),
            '.astype("Int64") in pandas',
            lambda column: column.astype("Int64"),
        ),
    ],
)
def test_the_advice_for_pandas_keeps_nulls(fitted, received, advice, convert):
    workflow = Workflow(["flag"] >> ops.Categorify()).fit({"flag": fitted})
    expected = workflow.transform({"flag": fitted}).collect()
    frame = pd.DataFrame({"flag": received})
    with pytest.raises(WorkflowError, match=re.escape(advice)):
        workflow.transform(frame)
    converted = frame.assign(flag=convert(frame["flag"]))
    assert workflow.transform(converted).collect().equals(expected)


NARROW_LISTS = [pl.List(pl.Int64), pl.Array(pl.Int64, 2)]


@pytest.mark.parametrize("dtype", NARROW_LISTS, ids=str)
@pytest.mark.parametrize("number", [-1, 256])
def test_elements_beyond_the_dtype_of_fit_are_refused_with_their_row(dtype, number):
    fitted = pl.DataFrame({"l": [[1, 2]]}, schema={"l": pl.List(pl.UInt8)})
    workflow = Workflow(["l"]).fit(fitted)
    good = pl.DataFrame({"l": [[0, 255]]}, schema={"l": dtype})
    assert workflow.transform(good).collect()["l"].to_list() == [[0, 255]]
    data = pl.DataFrame({"l": [[1, 2], [3, 4], [5, number]]}, schema={"l": dtype})
    with pytest.raises(WorkflowError, match=rf"'l' as list\[uint8\].*\[5, {number}\] in row 2\."):
        workflow.transform(data)


@pytest.mark.parametrize(
    ("fitted", "received", "value"),
    [
        (pl.UInt64, pl.Int64, -1),
        (pl.Int64, pl.UInt64, 2**63),
        (pl.UInt8, pl.Int8, -1),
        (pl.Int32, pl.UInt32, 2**31),
    ],
)
def test_the_first_integer_beyond_the_dtype_of_fit_is_named_with_its_row(fitted, received, value):
    workflow = Workflow(["n"]).fit(pl.DataFrame({"n": pl.Series([1], dtype=fitted)}))
    largest = np.iinfo(pl.Series(dtype=received).to_numpy().dtype).max
    kept = min(int(largest), int(np.iinfo(pl.Series(dtype=fitted).to_numpy().dtype).max))
    data = pl.DataFrame({"n": pl.Series([0, kept], dtype=received)})
    assert workflow.transform(data).collect()["n"].to_list() == [0, kept]
    data = pl.DataFrame({"n": pl.Series([0, None, kept, value], dtype=received)})
    with pytest.raises(WorkflowError, match=rf"column 'n' as .*Received: {value} in row 3\."):
        workflow.transform(data)


def test_arrays_of_floats_that_are_integers_are_integers():
    workflow = Workflow(["l"]).fit(pl.DataFrame({"l": [[1, 2]]}))
    dtype = {"l": pl.Array(pl.Float64, 2)}
    data = pl.DataFrame({"l": [[3.0, 4.0], [5.0, None]]}, schema=dtype)
    assert workflow.transform(data).collect()["l"].to_list() == [[3, 4], [5, None]]
    with pytest.raises(WorkflowError, match=r"Received: \[1\.0, 0\.5\] in row 1\."):
        workflow.transform(pl.DataFrame({"l": [[3.0, 4.0], [1.0, 0.5]]}, schema=dtype))
