"""The kinds of data that fit and transform take, and parquet that goes out."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workflow import Schema, Workflow, WorkflowError, ops
from workflow.data.sources import as_lazy_frame, parquet_files


@pytest.fixture
def folder(tmp_path, ratings):
    folder = tmp_path / "data"
    folder.mkdir()
    for number, part in enumerate([ratings[:2], ratings[2:2], ratings[2:]]):
        part.write_parquet(folder / f"part-{number}.parquet")
    (folder / "notes.txt").write_text("no parquet")
    return folder


def test_every_kind_of_data_is_the_same_data(folder, ratings):
    files = sorted(folder.glob("*.parquet"))
    kinds = [
        ratings,
        ratings.lazy(),
        ratings.to_dict(as_series=False),
        folder,
        str(folder / "*.parquet"),
        [str(folder / "part-0.parquet"), folder / "part-[12].parquet"],
        tuple(files),
        ratings.to_arrow(),
    ]
    for kind in kinds:
        assert as_lazy_frame(kind).collect().equals(ratings)


def test_pandas_is_taken_with_its_nulls():
    frame = pd.DataFrame(
        {"n": pd.array([1, None], "Int64"), "x": [1.5, None], "s": ["a", None], "l": [[1], None]}
    )
    made = as_lazy_frame(frame).collect()
    assert made.rows() == [(1, 1.5, "a", [1]), (None, None, None, None)]


def test_pandas_holds_ids_beyond_int64():
    """Hashes of 64 bits, which pandas has as Python's integers in lists and beside None."""
    frame = pd.DataFrame({"l": [[2**64 - 1, 7], None], "s": ["a", None], 0: [0.5, None]})
    frame["n"] = pd.Series([2**63, None], dtype=object)
    made = as_lazy_frame(frame).collect()
    assert made.rows() == [([2**64 - 1, 7], "a", 0.5, 2**63), (None, None, None, None)]
    assert made.dtypes == [pl.List(pl.UInt64), pl.String, pl.Float64, pl.UInt64]


@pytest.mark.parametrize("kind", [pa.table, pa.record_batch, pd.DataFrame, pl.DataFrame, dict])
def test_an_empty_name_is_a_name(kind, tmp_path):
    """R writes the names of rows in a column without a name."""
    data = kind({"": [7, 9], "n": [1, 2]})
    workflow = Workflow(([""] >> ops.Categorify()) + "n").fit(data)
    made = workflow.transform_to_parquet(data, tmp_path / "out")
    assert pl.read_parquet(made).to_dict(as_series=False) == {"": [3, 4], "n": [1, 2]}
    names = kind({"": ["x", None], "n": [1, 2]})
    assert Workflow("").fit_transform(names).collect().to_dict(as_series=False) == {"": ["x", None]}


def test_a_number_is_a_name_in_pandas():
    """`read_csv(header=None)` numbers its columns."""
    days = pd.Series([date(2024, 1, 1), None], dtype=object)
    months = pd.period_range("2024-01", periods=2, freq="M")
    data = pd.DataFrame({0: days, 1: [7, 8], 2: pd.Series(["a", None], dtype=object), 3: months})
    made = Workflow(["0", "1", "2"]).fit_transform(data).collect()
    assert made.rows() == [(1_704_067_200_000_000, 7, "a"), (None, 8, None)]
    with pytest.raises(WorkflowError, match=r"Expected column 3 as .*Received: period\[M\]"):
        Workflow(["3"]).fit(data)


def test_a_name_with_brackets_is_a_name(tmp_path, ratings):
    ratings.write_parquet(tmp_path / "a[1].parquet")
    [file] = parquet_files(tmp_path / "a[1].parquet")
    assert file.path == tmp_path / "a[1].parquet"
    assert as_lazy_frame(str(tmp_path / "a[1].parquet")).collect().equals(ratings)


@pytest.mark.parametrize("path", ["nowhere.parquet", "*.parquet", "empty"])
def test_a_path_that_matches_nothing_is_named(path, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(WorkflowError, match=f"No parquet file matches .*{path[-6:]}"):
        as_lazy_frame(tmp_path / path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "Received: 3"),
        (None, "Received: None"),
        ([], r"Received: \[\]"),
        ([""], "Expected a path. Received: an empty text"),
        ([[]], r"path of a parquet file. Received: \[\]"),
        (b"x", "Received: b'x'"),
        ([3], "path of a parquet file. Received: 3"),
        ([pd.DataFrame({"a": [1]})] * 2, r"Make one of several: .*pandas\.concat\(frames\)"),
        ([pl.LazyFrame({"a": [1]})] * 2, r"Make one of several: polars\.concat\(frames\)"),
        (pd.Series([1]), r"Received: 0    1.*A row is a frame, frame\.iloc\[\[0\]\]"),
        (pd.DataFrame({"a": [1], "b": ["x"]}).iloc[0], r"and so is a column, frame\[\[\"userId"),
        (pl.Series("a", [1]), r"Pass series\.to_frame\(\)"),
        ({"a": [1], "b": [1, 2]}, "make no table"),
        ({"a": pd.Series([1]), "b": pd.Series([1, 2])}, "make no table: .*same length"),
        ({"a": pa.array([1]), "b": pa.array([1, 2])}, "make no table: .*length 1 but got length 2"),
        (
            {"a": [1, "b"]},
            "Column 'a' of the dict cannot be read: it holds values of several types: int, str",
        ),
        ({1: [1]}, "names of columns as texts. Received: 1"),
        ({"a": (n for n in [1])}, "column 'a' as a list.*can be read only once"),
        (
            pd.DataFrame([[1, 2]], columns=["a", "a"]),
            "distinct names of columns. Received: 'a' twice",
        ),
        (
            pd.DataFrame({"a": [1, "x"]}),
            "Column 'a' of the pandas frame cannot be read: Could not convert 'x'",
        ),
        ({"a": [np.array(1), np.array(2)]}, "Column 'a' of the dict cannot be read"),
    ],
)
def test_what_is_no_table_is_refused(data, message):
    with pytest.raises(WorkflowError, match=f"(?s){message}"):
        as_lazy_frame(data)


UNREAD = {
    "complex": (np.array([1j]), r"Received: complex128\. .*\.real and \.imag"),
    "timedelta": (np.array([1], "timedelta64[h]"), r"Received: timedelta64\[h\]\. .*number of sec"),
    "years": (np.array([1], "datetime64[Y]"), r"Received: datetime64\[Y\]\. Take days"),
    "months": (np.array([1], "datetime64[M]"), r"Received: datetime64\[M\]\. Take days"),
    "weeks": (np.array([1], "datetime64[W]"), r"Received: datetime64\[W\]\. Take days"),
}


@pytest.mark.parametrize(("values", "message"), UNREAD.values(), ids=UNREAD)
def test_an_array_that_no_column_can_be_is_refused_where_it_is_used(values, message):
    data = {"a": values, "b": [7]}
    with pytest.raises(WorkflowError, match=f"Expected column 'a' as numbers.*{message}"):
        Workflow(["a"]).fit(data)
    assert Workflow(["b"]).fit_transform(data).collect()["b"].to_list() == [7]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pd.arrays.SparseArray([7, 0]), r"Received: Sparse\[int64, 0\]\. .*\.sparse\.to_dense\(\)"),
        (pd.arrays.IntervalArray.from_breaks([0, 1, 2]), r"Received: interval.*\.array\.left"),
        (
            pd.cut(pd.Series([1.0, 2.0]), 2),
            r"Received: category of interval.*\.astype\(\"string\"\)",
        ),
        (
            pd.Categorical(pd.period_range("2024-01-01", periods=2, freq="M")),
            r"Received: category of period\[M\].*\.astype\(\"string\"\)",
        ),
        (np.array([1j, 2]), r"Received: complex128\. .*\.real and \.imag"),
    ],
)
def test_a_column_of_pandas_that_no_column_can_be_is_refused_where_it_is_used(values, message):
    frame = pd.DataFrame({"a": values, "b": [7, 8]})
    for data in (frame, dict(frame.items()), {"a": frame["a"].array, "b": frame["b"]}):
        with pytest.raises(WorkflowError, match=f"Expected column 'a' as numbers.*{message}"):
            Workflow(["a"]).fit(data)
        assert Workflow(["b"]).fit_transform(data).collect()["b"].to_list() == [7, 8]


def test_an_arrow_table_of_categories_of_periods_is_refused():
    months = pd.Categorical(pd.period_range("2024-01-01", periods=2, freq="M"))
    table = pa.Table.from_pandas(pd.DataFrame({"a": months}))
    for data in (table, {"a": table["a"]}, {"a": table["a"].chunk(0)}):
        with pytest.raises(WorkflowError, match=r"Received: pandas\.period"):
            Workflow(["a"]).fit(data)


@pytest.mark.parametrize("name", ["*", "^a.*$"])
def test_a_name_that_is_a_pattern_to_polars_is_refused(name):
    """It would stand for other columns in every query, and bring wrong ids without a word."""
    data = {name: [1, 2], "a": [3, 4]}
    uses = (
        lambda: Workflow("*" >> ops.Categorify()).fit(data),
        lambda: Workflow(["a"] >> ops.Rename(name=name)).fit(data),
        lambda: Workflow(["a"] >> ops.JoinExternal({"a": [3], name: [1]}, on="a")).fit(data),
        lambda: Workflow(["a"] >> ops.JoinExternal(data, on="a", on_ext=name)).fit(data),
    )
    for use in uses:
        with pytest.raises(WorkflowError, match="Rename the column before it enters"):
            use()
    assert Workflow("a").fit_transform(data).collect()["a"].to_list() == [3, 4]


LISTS = {
    "fraction in a later list": ([[1], [2.5]], [[1.0], [2.5]]),
    "fraction in a later array": ([[1], np.array([2.5])], [[1.0], [2.5]]),
    "fraction in a later series": ([pl.Series([1]), pl.Series([2.5])], [[1.0], [2.5]]),
    "fraction in one list": (([], None, [1, 2.5]), [[], None, [1.0, 2.5]]),
    "fraction of numpy": ([[np.int64(1)], [np.float64(2.5)]], [[1.0], [2.5]]),
    "objects": (np.array([[1], [2.5, 1], None], object), [[1.0], [2.5, 1.0], None]),
}


@pytest.mark.parametrize("case", LISTS)
def test_lists_of_a_dict_have_the_type_that_holds_all_of_them(case):
    given, expected = LISTS[case]
    made = as_lazy_frame({"scores": given}).collect()["scores"]
    assert (made.dtype, made.to_list()) == (pl.List(pl.Float64), expected)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([1, 2.5], [1.0, 2.5]),
        ((None, np.int64(1), np.float64(2.5)), [None, 1.0, 2.5]),
        ([np.float32(1), 0.1, 1e300], [1.0, 0.1, 1e300]),
        (np.array([1, 2.5, None], object), [1.0, 2.5, None]),
    ],
)
def test_numbers_of_several_types_are_floats_that_hold_them(given, expected):
    for values, wanted in ((given, expected), ([[v] for v in given], [[v] for v in expected])):
        assert as_lazy_frame({"a": values}).collect()["a"].to_list() == wanted


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ([None, np.bool_(True), False], pl.Boolean),
        ([np.int8(1), np.int64(300), None], pl.Int64),
        ([3, np.uint64(2**64 - 1)], pl.UInt64),
        ([np.int8(1), None], pl.Int8),
        ([np.str_("a"), "b"], pl.String),
        ([[None, np.bool_(True)], [np.bool_(False)]], pl.List(pl.Boolean)),
        ([[np.int8(1)], None, [300]], pl.List(pl.Int64)),
        ([np.array([1], np.int8), np.array([300])], pl.List(pl.Int64)),
        ([np.array([True]), [None, np.bool_(False)]], pl.List(pl.Boolean)),
        ([np.array([256], ">i8"), None], pl.List(pl.Int64)),
    ],
)
def test_values_of_numpy_keep_their_kind(given, dtype):
    made = as_lazy_frame({"x": given}).collect()["x"]
    plain = [list(row) if isinstance(row, list | np.ndarray) else row for row in given]
    assert (made.dtype, made.to_list()) == (dtype, plain)


@pytest.mark.parametrize(
    ("given", "dtype", "expected"),
    [
        (np.array([1, 256, -2], ">i4"), pl.Int32, [1, 256, -2]),
        (np.array([0.1, np.nan, -2], ">f4"), pl.Float32, [float(np.float32(0.1)), None, -2.0]),
        (
            [np.array([256], ">i8"), np.array([2], ">i8"), None],
            pl.List(pl.Int64),
            [[256], [2], None],
        ),
    ],
)
def test_pandas_may_hold_another_byte_order(given, dtype, expected):
    """Big-endian numbers, as files of HDF5 and FITS hold them."""
    frame = pd.DataFrame({"other": ["a", None, "b"], "x": given, "last": [1.5, 2.5, None]})
    for data in (frame, frame[["x"]]):
        made = as_lazy_frame(data).collect()
        x = made["x"].fill_nan(None) if made["x"].dtype.is_float() else made["x"]
        assert (x.dtype, x.to_list()) == (dtype, expected)
    assert as_lazy_frame(frame).collect().drop("x").rows() == [("a", 1.5), (None, 2.5), ("b", None)]


def test_series_of_times_in_lists_may_have_several_units():
    times = [pl.Series([datetime(2024, 1, 1, 5)], dtype=pl.Datetime(u)) for u in ("ms", "us", "ns")]  # noqa: DTZ001
    made = as_lazy_frame({"a": times}).collect()["a"].to_list()
    assert made == [[datetime(2024, 1, 1, 5)]] * 3  # noqa: DTZ001


@pytest.mark.parametrize(
    ("given", "types"),
    [
        ([np.bool_(True), np.int64(2)], "bool, int"),
        ([[True], [2]], "bool, int"),
        ([[2], np.array([True])], "bool, int"),
        ([["x"], [1]], "int, str"),
        ([["x"], [b"y"]], "bytes, str"),
        ([[1], [Decimal("2.5")]], "Decimal, int"),
        ([[date(2024, 1, 1)], [datetime(2024, 1, 1, 5)]], "date, datetime"),  # noqa: DTZ001
        ([np.array(["2024-01-01"], "M8[D]"), np.array(["2024-01-01"], "M8[s]")], "date, datetime"),
    ],
)
def test_lists_of_several_types_in_a_dict_are_refused(given, types):
    with pytest.raises(WorkflowError, match=f"'a' of the dict .*several types: {types}. Give"):
        Workflow("a").fit_transform({"a": given})


def test_lists_of_times_with_and_without_a_zone_are_refused():
    times = [[datetime(2024, 1, 1, tzinfo=UTC)], [datetime(2024, 1, 1)]]  # noqa: DTZ001
    with pytest.raises(WorkflowError, match="times with a zone and without"):
        Workflow("a").fit_transform({"a": times})


@pytest.mark.parametrize("units", [("D", "D"), ("s", "ms"), ("ns", "ns"), ("h", "us")])
def test_arrays_of_times_in_lists_are_times(units):
    first, second = ["2024-01-01", "NaT"], ["1969-12-31"]
    rows = [np.array(first, f"M8[{units[0]}]"), None, np.array(second, f"M8[{units[1]}]")]
    made = as_lazy_frame({"at": rows}).collect()["at"]
    assert made.dtype.inner.is_temporal()
    assert made.cast(pl.List(pl.Date)).to_list() == [
        [date(2024, 1, 1), None],
        None,
        [date(1969, 12, 31)],
    ]


@pytest.mark.parametrize("values", [[1, 2, 3], [1.5, 2.5, 3.5], ["a", "b", "c"]])
def test_masked_values_of_an_array_are_nulls(values):
    masked = np.ma.array(values, mask=[False, True, False])
    made = Workflow("a").fit_transform({"a": masked}).collect()["a"].to_list()
    assert made == [values[0], None, values[2]]


MASKED = np.ma.array([[1, 2], [3, 4]], mask=[[False, True], [False, False]])


@pytest.mark.parametrize("dtype", ["int64", ">i4", "float32"])
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (lambda table: table, [[1, None], [3, 4]]),
        (list, [[1, None], [3, 4]]),
        (lambda table: [None, table[0], [5]], [None, [1, None], [5]]),
        (lambda table: pd.Series([table[0], None, [5]]), [[1, None], None, [5]]),
    ],
    ids=["table", "rows", "beside lists", "pandas"],
)
def test_masked_elements_of_lists_are_nulls(rows, expected, dtype):
    made = as_lazy_frame({"a": rows(MASKED.astype(dtype))}).collect()["a"]
    assert made.to_list() == expected
    assert made.dtype.inner.is_float() == (dtype == "float32")


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_matrix_of_numpy_is_read_as_an_array():
    """As the todense() of a sparse matrix makes it; its rows are matrices without end."""
    assert as_lazy_frame({"a": np.asmatrix([[1, 2], [3, 4]])}).collect().rows() == [
        ([1, 2],),
        ([3, 4],),
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, pd.NA, 2], [1, None, 2]),
        (["a", pd.NA], ["a", None]),
        ([np.ma.masked, 1], [None, 1]),
        ([pd.Timestamp("2024-01-01"), pd.NaT], [datetime(2024, 1, 1), None]),  # noqa: DTZ001
        ([datetime(2024, 1, 1), pd.NaT, None], [datetime(2024, 1, 1), None, None]),  # noqa: DTZ001
    ],
)
def test_missing_values_of_pandas_and_of_masks_are_nulls_in_a_dict(values, expected):
    for given, wanted in ((values, expected), ([values, None], [expected, None])):
        assert as_lazy_frame({"a": given}).collect()["a"].to_list() == wanted


@pytest.mark.parametrize("values", [[1, None, 3], [True, None], ["a", None]])
def test_arrays_of_objects_are_read_as_lists_are(values):
    made = Workflow("a").fit_transform({"a": np.array(values, object)}).collect()["a"].to_list()
    assert made == values


@pytest.mark.parametrize("schema", [{"a": "int64"}, [], "_schema.json"])
def test_what_is_no_schema_is_refused(schema):
    for use in (
        lambda: Workflow("a").fit({"a": [1]}, schema=schema),
        lambda: Workflow("a").fit_schema(schema),
    ):
        with pytest.raises(WorkflowError, match=r"Expected a workflow\.Schema"):
            use()


def test_parquet_has_the_rows_in_order_and_a_schema(tmp_path):
    rows = pl.DataFrame({"n": range(10_000), "s": [str(n % 7) for n in range(10_000)]})
    workflow = Workflow("n" + (["s"] >> ops.Categorify())).fit(rows)
    files = workflow.transform_to_parquet(rows, tmp_path / "out", rows_per_file=3000)
    assert [file.name for file in files] == [f"part-0000{n}.parquet" for n in range(4)]
    assert [pl.read_parquet(file).height for file in files] == [3000, 3000, 3000, 1000]
    assert pl.read_parquet(files).equals(workflow.transform(rows).collect())
    document = json.loads((tmp_path / "out" / "_schema.json").read_text())
    assert document["format"] == 2
    assert Schema.from_json(document["columns"]) == workflow.output_schema
    assert document["files"] == {
        file.name: {"rows": rows, "bytes": file.stat().st_size}
        for file, rows in zip(files, [3000, 3000, 3000, 1000], strict=True)
    }
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "_schema.json",
        *(f.name for f in files),
    }


def test_pandas_and_pyarrow_read_the_folder(tmp_path, fitted, ratings):
    fitted.transform_to_parquet(ratings, tmp_path / "out")
    want = fitted.transform(ratings).collect()
    assert pl.DataFrame(pd.read_parquet(tmp_path / "out")).shape == want.shape
    assert pl.DataFrame(pq.read_table(tmp_path / "out")).equals(want)


def test_no_rows_give_one_file_without_rows(tmp_path, fitted, ratings):
    [file] = fitted.transform_to_parquet(ratings.clear(), tmp_path / "out")
    assert pl.read_parquet(file).equals(fitted.transform(ratings.clear()).collect())


def test_a_folder_that_holds_parquet_is_left_alone(tmp_path, fitted, ratings):
    fitted.transform_to_parquet(ratings, tmp_path / "out")
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with pytest.raises(WorkflowError, match="holds parquet files already"):
        fitted.transform_to_parquet(ratings[:1], tmp_path / "out")
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize(
    "setting", [{"rows_per_file": 0}, {"rows_per_file": -1}, {"compression": "rar"}], ids=str
)
def test_settings_of_the_parquet_are_checked(tmp_path, fitted, ratings, setting):
    with pytest.raises(WorkflowError, match="Received"):
        fitted.transform_to_parquet(ratings, tmp_path / "out", **setting)
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_folders_place_is_our_error(tmp_path, fitted, ratings):
    (tmp_path / "out").write_text("")
    with pytest.raises(WorkflowError, match="is a file"):
        fitted.transform_to_parquet(ratings, tmp_path / "out")


@pytest.mark.parametrize("compression", ["snappy", "zstd", "lz4", "uncompressed"])
def test_every_compression_can_be_read_back(tmp_path, fitted, ratings, compression):
    files = fitted.transform_to_parquet(ratings, tmp_path / "out", compression=compression)
    assert pl.read_parquet(files).equals(fitted.transform(ratings).collect())
