"""From the caller's data to columns: nothing is lost, nothing is guessed, and errors say why."""

import math
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pytest

from serving import ClientError
from serving.inputs.table import to_columns
from workflow.wire import WireColumn, encode


def convert(dtype, data, layout="scalar"):
    return to_columns([WireColumn("c", dtype, layout)], {"c": data})["c"]


def python_values(column):
    """The column as Python values, None where it is null."""
    values = column.array.tolist()
    if column.valid is not None:
        values = [v if ok else None for v, ok in zip(values, column.valid.tolist(), strict=True)]
    if column.lengths is None:
        return values
    ends = np.cumsum(column.lengths).tolist()
    return [values[a:b] for a, b in zip([0, *ends], ends, strict=False)]


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
            pl.Series(INTEGERS),
            pl.Series(INTEGERS, dtype=pl.Int16),
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


@pytest.mark.parametrize("data", [[None, None], pl.Series([None, None]), pd.Series([None, None])])
@pytest.mark.parametrize("dtype", ["int64", "float32", "string", "bool"])
def test_columns_of_nulls_alone(dtype, data):
    assert python_values(convert(dtype, data)) == [None, None]


ROWS = [[1, 2], None, [], [3]]
LISTS = [
    ROWS,
    [np.array([1, 2]), None, (), [3]],
    np.array(ROWS, object),
    pl.Series(ROWS),
    pl.Series(ROWS, dtype=pl.List(pl.Int8)),
    pd.Series(ROWS),
    pd.Series([np.array([1, 2]), None, np.array([], int), np.array([3])]),
]


@pytest.mark.parametrize("data", LISTS)
def test_lists_with_null_and_empty_rows(data):
    column = convert("int64", data, "flat")
    assert column.lengths.tolist() == [2, 0, 0, 1]
    assert python_values(column) == [[1, 2], [], [], [3]]


@pytest.mark.parametrize(
    "data", [[["a", None], [None, "b"]], pl.Series([["a", None], [None, "b"]])]
)
def test_nulls_inside_lists(data):
    column = convert("string", data, "flat")
    assert python_values(column) == [["a", None], [None, "b"]]
    tensors = encode(WireColumn("c", "string", "flat", nullable=True), column)
    assert tensors["c__values"].tolist() == [[b"a"], [b"\xff"], [b"\xff"], [b"b"]]


@pytest.mark.parametrize("data", [[[], None], pl.Series([[], None]), pd.Series([[], None])])
@pytest.mark.parametrize("dtype", ["int64", "string"])
def test_empty_lists_alone(dtype, data):
    column = convert(dtype, data, "flat")
    assert column.lengths.tolist() == [0, 0]
    assert len(column.array) == 0


def test_lists_of_equal_length_as_an_array():
    column = convert("int32", np.arange(6).reshape(3, 2), "flat")
    assert python_values(column) == [[0, 1], [2, 3], [4, 5]]
    column = convert("string", np.array([["a", "b"]]), "flat")
    assert python_values(column) == [["a", "b"]]
    array = pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int64, 2))
    assert python_values(convert("int64", array, "flat")) == [[1, 2], [3, 4]]


def test_a_list_column_may_be_its_two_halves():
    data = {"c__values": np.array([[5], [6], [7]]), "c__nnzs": np.array([[2], [0], [1]])}
    column = to_columns([WireColumn("c", "int64", "flat")], data)["c"]
    assert python_values(column) == [[5, 6], [], [7]]
    for lengths, reason in (([2, 2], "Received: 4"), ([4, -1], "one below 0")):
        with pytest.raises(ClientError, match=reason):
            to_columns([WireColumn("c", "int64", "flat")], {**data, "c__nnzs": lengths})


EXACT = [
    ("int32", np.array([2**31 - 1, -(2**31)], np.int64)),
    ("int64", np.array([True, False])),
    ("int8", pl.Series([True, False])),
    ("int8", pd.Series([True, False])),
    ("uint64", [2**64 - 1, 0]),
    ("bool", [True, False]),
    ("bool", np.array([1, 0])),
    ("float32", np.array([2**24, -(2**24)])),
    ("float64", [2**53, 2**60]),
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


REFUSED = [
    ("int32", np.array([1, 2**31]), "int32. Received: int64 with the value 2147483648, out of"),
    ("int32", [1, 2**31], "value 2147483648, out of range"),
    ("int32", pl.Series([-(2**31) - 1]), "value -2147483649, out of range"),
    ("uint8", pd.Series([-1]), "uint8. Received: int64 with the value -1, out of range"),
    ("int64", [2**64], "value 18446744073709551616, out of range"),
    ("int64", [2**63], "value 9223372036854775808, out of range"),
    ("int64", [2**63, -1], "out of range"),
    ("bool", [0, 2], "value 2, out of range"),
    ("int64", np.array([1.5]), "float64 with the value 1.5. Convert the column to int64"),
    ("int64", np.array([np.nan]), "float64 with the value nan"),
    ("int64", np.array([np.inf]), "float64 with the value inf"),
    ("int64", np.array([2.0**60]), "float64 with the value 1.15"),
    ("int32", np.array([2.0**31]), "value 2147483648, out of range"),
    ("int64", pd.Series([1.5, None]), "float64 with the value 1.5"),
    ("int64", pl.Series([1.5]), "float64 with the value 1.5"),
    ("int64", [1, 2.5], "float64 with the value 2.5"),
    ("int64", ["1"], r"Received: '1' \(str\) in row 0"),
    ("int64", np.array(["1"]), r"Received: '1' \(str\) in row 0"),
    ("int64", pl.Series(["1"]), "int64. Received: strings. Convert the column to int64"),
    ("int64", pd.Series(["1"]), r"Received: '1' \(str\)"),
    ("string", np.array([1]), "string. Received: int64. Convert the column to string"),
    ("string", [1], r"Received: 1 \(int\) in row 0"),
    ("string", pl.Series([1.5]), "string. Received: float64"),
    ("string", [b"\xff"], "which are not UTF-8"),
    ("string", pl.Series([b"\xff"]), "not UTF-8"),
    ("float32", np.array([2**24 + 1]), "value 16777217, which has no exact float32"),
    ("float64", np.array([2**53 + 1]), "value 9007199254740993, which has no exact float64"),
    ("float64", [2**53 + 1, 0.5], "value 9007199254740993, which has no exact float64"),
    ("float64", np.array([2**63 - 1]), "which has no exact float64"),
    ("float32", [1e39], r"value 1e\+39, out of range"),
    ("float32", np.array([1e39]), r"value 1e\+39, out of range"),
    ("float32", pl.Series([-1e39]), r"value -1e\+39, out of range"),
    ("float32", ["1"], r"Received: '1' \(str\)"),
    ("int64", pl.Series([date(2026, 1, 1)]), r'Received: Date. .*\.dt\.epoch\("s"\)'),
    ("int64", pd.Series(pd.to_datetime(["2026-01-01"])), "Received: datetime64.*astype"),
    ("int64", np.array(["2026-01-01"], "datetime64[s]"), "Received: datetime64"),
    ("float64", np.array([1j]), "Received: complex128"),
    ("int64", pl.Series([{"a": 1}]), "Received: Struct"),
    ("int64", np.zeros((2, 2), int), r"shape \(2, 2\). The shape must be \(N,\) or \(N, 1\)"),
    ("int64", np.array(1), r"shape \(\)"),
    ("int64", [[1], [2]], r"Received: \[1\] \(list\) in row 0"),
    ("int64", pl.Series([[1]]), r"int64. Received: List\(Int64\)"),
    ("int64", 5, "expected an array, a list or a series. Received: int"),
]


@pytest.mark.parametrize(("dtype", "data", "reason"), REFUSED)
def test_what_cannot_be_sent_is_refused(dtype, data, reason):
    with pytest.raises(ClientError, match=reason) as refusal:
        convert(dtype, data)
    assert refusal.value.code == "INVALID_INPUT"
    assert refusal.value.message.startswith("Column 'c': expected ")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([1, 2], "Column 'c': expected lists of int64. Received: 1 in row 0. Send a list"),
        (np.array([1, 2]), r"shape \(2,\). The shape must be \(N, k\)"),
        (pl.Series([1]), "lists of int64. Received: Int64"),
        ([[[1]]], r"Received: \[1\] \(list\) in element 0"),
        (pl.Series([[[1]]]), r"Received: List\(Int64\)"),
        ([[1.5]], "float64 with the value 1.5"),
        (pl.Series([[1.5]]), "float64 with the value 1.5"),
    ],
)
def test_lists_that_cannot_be_sent_are_refused(data, reason):
    with pytest.raises(ClientError, match=reason):
        convert("int64", data, "flat")


COLUMNS = [WireColumn("userId", "int64"), WireColumn("genres", "string", "flat")]


@pytest.mark.parametrize("make", [dict, pl.DataFrame, pd.DataFrame])
def test_missing_columns_are_named_and_others_left_out(make):
    table = make({"userId": [1, 2], "genres": [["a"], []], "rating": [object, object]})
    columns = to_columns(COLUMNS, table)
    assert list(columns) == ["userId", "genres"]
    with pytest.raises(ClientError) as refusal:
        to_columns(COLUMNS, make({"user": [1]}))
    assert refusal.value.message == (
        "Expected the columns userId, genres. Received: user. Missing: userId, genres."
    )


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ClientError, match="Received: userId 2, genres 1"):
        to_columns(COLUMNS, {"userId": [1, 2], "genres": [["a"]]})


@pytest.mark.parametrize(
    ("data", "received"),
    [
        ([1], "list"),
        (pl.LazyFrame({"a": [1]}), r"LazyFrame\. Call \.collect\(\) first"),
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
