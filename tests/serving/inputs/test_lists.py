"""List columns from the caller's data: nulls, empty rows, arrays and halves."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from converting import convert, python_values

from serving import ClientError
from serving.inputs.table import to_columns
from workflow.wire.format import WireColumn, encode

ROWS = [[1, 2], None, [], [3]]
LISTS = [
    ROWS,
    [np.array([1, 2]), None, (), [3]],
    np.array(ROWS, object),
    pl.Series(ROWS),
    pl.Series(ROWS, dtype=pl.List(pl.Int8)),
    pl.Series(ROWS, dtype=pl.List(pl.Int128)),
    pd.Series(ROWS),
    pd.Series([np.array([1, 2]), None, np.array([], int), np.array([3])]),
]


@pytest.mark.parametrize("data", LISTS)
def test_lists_with_null_and_empty_rows(data):
    column = convert("int64", data, "flat")
    assert column.lengths.tolist() == [2, 0, 0, 1]
    assert python_values(column) == [[1, 2], [], [], [3]]


@pytest.mark.parametrize(
    "data",
    [
        [["a", None], [None, "b"]],
        pl.Series([["a", None], [None, "b"]]),
        # As pandas' groupby(...).agg(list) makes them of missing texts.
        pd.Series([["a", math.nan], [math.nan, "b"]]),
        [["a", math.nan], [np.float32("nan"), "b"]],
    ],
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
    overflowing = [2**62, 2**62, 2**62, 2**62, 3]
    for lengths, reason in (
        ([2, 2], "Received: 4"),
        ([4, -1], "one below 0"),
        (overflowing, f"Received: {2**64 + 3}"),
    ):
        with pytest.raises(ClientError, match=reason):
            to_columns([WireColumn("c", "int64", "flat")], {**data, "c__nnzs": lengths})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([1, 2], "Column 'c': expected lists of int64. Received: 1 in row 0. Send a list"),
        (np.array([1, 2]), r"shape \(2,\). The shape must be \(N, k\)"),
        (pl.Series([1]), "lists of int64. Received: Int64"),
        ([[[1]]], r"Received: \[1\] \(list\) in element 0"),
        ([[1.5]], "float64 with the value 1.5"),
        (pl.Series([[1.5]]), "float64 with the value 1.5"),
        (pl.Series([[[1]]]), r"lists of int64\. Received: List\(List\(Int64\)\)"),
    ],
)
def test_lists_that_cannot_be_sent_are_refused(data, reason):
    with pytest.raises(ClientError, match=reason):
        convert("int64", data, "flat")
