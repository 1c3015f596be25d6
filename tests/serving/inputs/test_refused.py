"""Rows that cannot be sent are refused before a request, and the error says why."""

from datetime import date, datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from converting import convert

from serving import ClientError, ColumnError
from serving.inputs.encoder import Encoder
from serving.inputs.table import to_columns
from workflow.wire.format import WireColumn

REFUSED = [
    ("int32", np.array([1, 2**31]), "int32. Received: int64 with the value 2147483648, out of"),
    ("int32", [1, 2**31], "value 2147483648, out of range"),
    ("int32", pl.Series([-(2**31) - 1]), "value -2147483649, out of range"),
    ("uint8", pd.Series([-1]), "uint8. Received: int64 with the value -1, out of range"),
    ("int64", [2**64], "value 18446744073709551616, out of range"),
    ("int64", [2**63], "value 9223372036854775808, out of range"),
    ("int64", [2**63, -1], "out of range"),
    ("int64", pl.Series([2**64]), "int64. Received: Int128 with a value out of range"),
    ("int64", pl.Series([2**64, -1]), "int64. Received: Int128 with a value out of range"),
    ("bool", [0, 2], "value 2, out of range"),
    ("int64", np.array([1.5]), "float64 with the value 1.5. Convert the column to int64"),
    ("int64", np.array([np.inf]), "float64 with the value inf. Convert the column to int64"),
    ("int64", np.array([2.0**60]), r"float64 with the value 1.15.* digits.*dtype_backend"),
    ("int64", pd.Series([2**60 + 1, None]), r"value 1.15.* digits.*dtype_backend"),
    ("uint64", pl.Series([None, -(2.0**60)]), r"value -1.15.* digits.*dtype_backend"),
    ("int64", [0.5, 2.0**60], "value 0.5. Convert the column to int64"),
    ("int32", np.array([2.0**31]), "value 2147483648, out of range"),
    ("int64", pd.Series([1.5, None]), "float64 with the value 1.5"),
    ("int64", pl.Series([1.5]), "float64 with the value 1.5"),
    ("int64", [1, 2.5], "float64 with the value 2.5"),
    ("int64", ["1"], r"Received: '1' \(str\) in row 0. Convert the column to int64"),
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
    ("int64", np.array(["2026-01-01"], "datetime64[s]"), r'datetime64.*\.dt\.epoch\("s"\)'),
    ("string", np.array(["2026-01-01"], "datetime64[s]"), r"datetime64.*\.dt\.strftime\(format\)"),
    ("int64", [datetime(2026, 1, 1, 3)], r'\(datetime\) in row 0.*\.dt\.epoch\("s"\)'),  # noqa: DTZ001
    ("string", [None, date(2026, 1, 1)], r"\(date\) in row 1.*\.dt\.strftime\(format\)"),
    ("string", [np.datetime64("2026-01-01")], r"\(datetime64\) in row 0.*\.dt\.strftime\(format\)"),
    ("float32", [pd.Timestamp("2026-01-01")], r'\(Timestamp\) in row 0.*\.dt\.epoch\("s"\)'),
    ("float64", np.array([1j]), "Received: complex128"),
    ("int64", pl.Series([{"a": 1}]), "Received: Struct"),
    ("int64", np.zeros((2, 2), int), r"shape \(2, 2\). The shape must be \(N,\) or \(N, 1\)"),
    ("int64", np.array(1), r"shape \(\)"),
    ("int64", [[1], [2]], r"Received: \[1\] \(list\) in row 0"),
    ("int64", pl.Series([[1]]), r"int64. Received: List\(Int64\)"),
    ("int64", 5, "an array, a list or a series. Received: int. A single row is a list of one"),
    ("string", "a", r"Received: str\. A single row is a list of one value"),
    ("int64", (x for x in [1]), r"Received: generator\. Convert it: list\(column\)"),
    ("string", pa.array(["a"]), r"Received: StringArray\. Convert it: column\.to_pylist\(\)"),
    ("string", pd.Index(["a"]), r"Received: Index\. Convert it: pandas\.Series\(column\)"),
    ("int64", pd.array([1, None]), r"Received: IntegerArray\. .*: pandas\.Series\(column\)"),
]


@pytest.mark.parametrize(("dtype", "data", "reason"), REFUSED)
def test_what_cannot_be_sent_is_refused(dtype, data, reason):
    with pytest.raises(ClientError, match=reason) as refusal:
        convert(dtype, data)
    assert refusal.value.code == "INVALID_INPUT"
    assert refusal.value.message.startswith("Column 'c': expected ")


@pytest.mark.parametrize(("dtype", "code"), [("int32", -(2**31)), ("uint8", 255)])
@pytest.mark.parametrize("kind", [list, np.array, pl.Series, pd.Series])
def test_a_value_that_stands_for_null_is_refused(dtype, code, kind):
    encoder = Encoder([WireColumn("c", dtype, nullable=True)])
    for others in ([], [7]):
        values = kind([code, *others])
        table = {pl.Series: pl.DataFrame, pd.Series: pd.DataFrame}.get(kind, dict)({"c": values})
        with pytest.raises(ClientError, match=f"'c' holds {code}, which is the null code"):
            encoder.encode(table)


def test_the_advice_for_ids_that_pandas_has_rounded_keeps_them(tmp_path):
    pl.DataFrame({"c": [2**60 + 1, None]}).write_parquet(tmp_path / "ids")
    with pytest.raises(ClientError, match='dtype_backend="pyarrow"'):
        convert("int64", pd.read_parquet(tmp_path / "ids")["c"])
    made = convert("int64", pd.read_parquet(tmp_path / "ids", dtype_backend="pyarrow")["c"])
    assert made.array[0] == 2**60 + 1
    assert made.valid.tolist() == [True, False]


def test_a_column_that_pandas_has_twice_is_refused():
    frame = pd.DataFrame([[1, 2, 3.0]], columns=["c", "c", "d"])
    with pytest.raises(
        ColumnError, match=r"one column 'c'. Received: 2 of that name. Rename or drop"
    ):
        to_columns([WireColumn("c", "int64")], frame)
