"""The caller's data becomes columns: nothing is lost, and nothing is guessed."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from converting import convert, python_values

from serving import ClientError
from serving.inputs.table import to_columns
from workflow.wire.format import WireColumn

INTEGERS = [1, None, -3]
FLOATS = [1.5, None, -3.25]
STRINGS = ["a", None, "ü"]
NULLS = [
    *[
        ("int32", data)
        for data in (
            INTEGERS,
            tuple(INTEGERS),
            np.array(INTEGERS, object),
            np.array(INTEGERS, object).reshape(-1, 1),
            np.ma.array([1, 0, -3], mask=[False, True, False]),
            np.ma.array([1.0, 0.5, -3.0], mask=[False, True, False]),
            pl.Series(INTEGERS),
            pl.Series(INTEGERS, dtype=pl.Int16),
            pl.Series(INTEGERS, dtype=pl.Int128),
            pd.Series(INTEGERS, dtype="Int64"),
            pd.Series(INTEGERS, dtype="Int32"),
            pd.Series(INTEGERS, dtype=object),
            pd.Series([1, pd.NA, -3], dtype=object),
            pd.Series(INTEGERS, dtype="int64[pyarrow]"),
            pd.Series(pd.Categorical(pd.array(INTEGERS, "Int64"))),
        )
    ],
    *[
        ("float32", data)
        for data in (
            FLOATS,
            np.array(FLOATS, object),
            pl.Series(FLOATS),
            pl.Series(FLOATS, dtype=pl.Float32),
            pd.Series(FLOATS),
            pd.Series(FLOATS, dtype="Float64"),
            pd.Series(FLOATS, dtype="float32"),
            pd.Series([1.5, math.nan, -3.25], dtype=object),
        )
    ],
    *[
        ("string", data)
        for data in (
            STRINGS,
            [b"a", None, "ü".encode()],
            np.array(STRINGS, object),
            pl.Series(STRINGS),
            pl.Series(STRINGS, dtype=pl.Categorical),
            pl.Series(STRINGS, dtype=pl.Enum(["ü", "a"])),
            pl.Series([b"a", None, "ü".encode()]),
            pd.Series(STRINGS),
            pd.Series(STRINGS, dtype=object),
            pd.Series(STRINGS, dtype="string"),
            pd.Series(STRINGS, dtype="category"),
            pd.Series(["a", math.nan, "ü"], dtype=object),
        )
    ],
]
EXPECTED = {"int32": INTEGERS, "float32": FLOATS, "string": STRINGS}


@pytest.mark.parametrize(("dtype", "data"), NULLS)
def test_every_kind_of_null(dtype, data):
    column = convert(dtype, data)
    assert python_values(column) == EXPECTED[dtype]
    assert column.array.dtype == (object if dtype == "string" else dtype)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float32"])
def test_a_null_among_pandas_booleans_is_null(dtype):
    column = convert(dtype, pd.Series([True, None, False], dtype="boolean"))
    assert column.array[column.valid].tolist() == [1, 0]
    assert column.valid.tolist() == [True, False, True]


@pytest.mark.parametrize("data", [[None, None], pl.Series([None, None]), pd.Series([None, None])])
@pytest.mark.parametrize("dtype", ["int64", "float32", "string", "bool"])
def test_columns_of_nulls_alone(dtype, data):
    assert python_values(convert(dtype, data)) == [None, None]


EXACT = [
    ("int32", np.array([2**31 - 1, -(2**31)], np.int64)),
    ("int64", np.array([True, False])),
    ("int8", pl.Series([True, False])),
    ("int8", pd.Series([True, False])),
    ("uint64", [2**64 - 1, 0]),
    ("uint64", pl.Series([2**64 - 1, 0], dtype=pl.Int128)),
    ("bool", [True, False]),
    ("bool", np.array([1, 0])),
    ("float32", np.array([2**24, -(2**24)])),
    ("float64", [2**53, 2**60]),
    ("int64", [2**60 + 1, 7.0]),
    ("float32", np.array([0.5, math.inf], np.float64)),
    ("float64", np.array([0.1, -0.0], np.float32)),
    ("float64", pl.Series([2**62])),
]


@pytest.mark.parametrize(("dtype", "data"), EXACT)
def test_lossless_conversions(dtype, data):
    column = convert(dtype, data)
    assert column.array.dtype == dtype
    assert python_values(column) == list(data)


@pytest.mark.parametrize("make", [list, np.array, pl.Series, pd.Series])
def test_a_float64_is_rounded_to_float32_as_in_training(make):
    assert convert("float32", make([0.1, 1])).array.tolist() == [np.float32(0.1), 1.0]
    lists = convert("float32", [[1], [2.5]], "flat")
    assert python_values(lists) == [[1.0], [2.5]]


@pytest.mark.parametrize(
    "data", [[1, float("nan")], pd.Series([1, None]), pl.Series([1.0, None]), [1.0, None]]
)
def test_ids_that_a_missing_value_made_float_arrive_as_ids(data):
    column = convert("int64", data)
    assert column.array.dtype == np.int64
    assert python_values(column) == [1, None]
    lists = convert("int64", [np.array([9.0, math.nan]), [3]], "flat")
    assert python_values(lists) == [[9, None], [3]]


COLUMNS = [WireColumn("userId", "int64"), WireColumn("genres", "string", "flat")]


@pytest.mark.parametrize("make", [dict, pl.DataFrame, pd.DataFrame])
def test_missing_columns_are_named_and_others_left_out(make):
    table = make({"userId": [1, 2], "genres": [["a"], []], "rating": [object, object]})
    columns = to_columns(COLUMNS, table)
    assert list(columns) == ["userId", "genres"]
    with pytest.raises(ClientError) as refusal:
        to_columns(COLUMNS, make({"user": [1]}))
    assert refusal.value.message == (
        "Expected the columns userId, genres. Received: user. Missing: userId, genres. "
        "If 'user' is 'userId', rename it."
    )


def test_a_column_that_is_the_index_of_a_pandas_frame_is_named():
    frame = pd.DataFrame({"userId": [1], "genres": [["a"]]}).set_index("userId")
    with pytest.raises(ClientError, match=r"Missing: userId\..*index: pass frame\.reset_index"):
        to_columns(COLUMNS, frame)
    assert to_columns(COLUMNS, frame.reset_index())["userId"].rows == 1


def test_a_missing_column_of_thousands_is_named_in_a_short_error():
    names = [f"feature_{number}" for number in range(2_000)]
    columns = [WireColumn(name, "float32") for name in names]
    with pytest.raises(ClientError) as refusal:
        to_columns(columns, {name: [0.5] for name in names if name != "feature_700"})
    assert "(2000 in all). Received: feature_0, " in refusal.value.message
    assert "(1999 in all). Missing: feature_700." in refusal.value.message
    assert len(refusal.value.message) < 2_000


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ClientError, match="Received: userId 2, genres 1"):
        to_columns(COLUMNS, {"userId": [1, 2], "genres": [["a"]]})


@pytest.mark.parametrize(
    ("data", "received"),
    [
        ([1], "list"),
        (pl.LazyFrame({"a": [1]}), r"LazyFrame\. Call \.collect\(\) first"),
        (pl.Series("a", [1]), r"Series\. Pass series\.to_frame"),
        ([{"a": 1}], r"list\. Make a frame of rows: polars\.DataFrame\(rows\)"),
        (pd.Series([1]), r"Series\. A row is a frame, frame\.iloc\[\[0\]\]"),
        (pd.DataFrame({"a": [1], "b": ["x"]}).iloc[0], r"Series\. A row is a frame"),
        (pa.table({"a": [1]}), r"Table\. Pass polars\.DataFrame\(data\)"),
        ("rows.parquet", r"str\. Read the file: polars\.read_parquet\(path\)"),
        (None, "None"),
    ],
)
def test_other_tables_are_refused(data, received):
    with pytest.raises(ClientError, match=f"a dict of columns. Received: {received}"):
        to_columns(COLUMNS, data)


def test_the_callers_data_is_not_changed():
    frame = pd.DataFrame({"userId": pd.array([1, None], "Int64"), "genres": [["a"], None]})
    before = frame.copy(deep=True)
    to_columns(COLUMNS, frame)
    pd.testing.assert_frame_equal(frame, before)
