"""Loader and workflow open data through one door: what one takes the other takes, as the same values."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from packaging.version import Version

from loader import KerasSequenceLoader, LoaderError
from workflow import Workflow, WorkflowError
from workflow.data.parquet import ParquetTable
from workflow.data.sources import Source

TABLE = pa.table(
    {
        "n": pa.array(range(6), pa.int64()),
        "x": pa.array([0.5, 1.5, 2.5, 3.5, 4.5, 5.5], pa.float32()),
        "s": pa.array(["a", "b", "a", "ü", "", "long enough to be no inlined string"]),
        "tags": pa.array([[1, 2], [], [3], [4, 5, 6], [7], [8]], pa.list_(pa.int64())),
    }
)


class Stream:
    """Any object that exports its rows through the Arrow interface for C, and nothing else."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def rows_of_loader(data, names, **arguments):
    """The rows as Python has them, put together from batches."""
    loader = KerasSequenceLoader(
        data, 4, cat_names=list(names), label_names=[], shuffle=False, device="cpu", **arguments
    )
    rows = {name: [] for name in names}
    for batch in loader:
        for name in names:
            rows[name] += values_of(batch[name])
    return rows


def values_of(feature):
    if not isinstance(feature, tuple):
        return plain(feature)
    values, lengths = plain(feature[0]), plain(feature[1])
    return [[values.pop(0) for _ in range(length)] for length in lengths]


def plain(tensor):
    flat = tensor.numpy()[:, 0].tolist()
    return [v.decode() if isinstance(v, bytes) else v for v in flat]


def rows_of_workflow(data, names):
    """The rows as a workflow that changes nothing gives them, fitted to them and transformed."""
    workflow = Workflow([*names])
    return workflow.fit_transform(data).collect().to_dict(as_series=False)


def write(path, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


@pytest.fixture
def file(tmp_path):
    pq.write_table(TABLE, tmp_path / "data.parquet")
    return tmp_path / "data.parquet"


def nested(file):
    for number in range(2):
        folder = file.parent / "nested" / f"year{number}" / "month"
        write(folder / "part.parquet", TABLE[number * 3 : number * 3 + 3])
    return file.parent / "nested"


KINDS = {
    "text": str,
    "path": lambda file: file,
    "list": lambda file: [file],
    "tuple": lambda file: (str(file),),
    "iterator": lambda file: iter([file]),
    "pattern": lambda file: str(file.parent / "*.parquet"),
    "folder": lambda file: file.parent,
    "nested folders": nested,
    "pattern of folders": lambda file: str(nested(file) / "year*"),
    "recursive pattern": lambda file: str(nested(file) / "**" / "*.parquet"),
    "polars": lambda _: pl.from_arrow(TABLE),
    "polars, lazy": lambda _: pl.from_arrow(TABLE).lazy(),
    "pandas": lambda _: TABLE.to_pandas(),
    "pandas of pyarrow": lambda _: TABLE.to_pandas(types_mapper=pd.ArrowDtype),
    "arrow": lambda _: TABLE,
    "arrow batch": lambda _: TABLE.to_batches()[0],
    "arrow reader": lambda _: TABLE.to_reader(),
    "arrow stream": lambda _: Stream(TABLE),
    "dict of lists": lambda _: TABLE.to_pydict(),
    "dict of arrays": lambda _: {"n": np.arange(6), "x": TABLE["x"].to_numpy()},
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_data_is_the_same_rows_for_both(file, kind):
    names = ["n", "x"] if kind == "dict of arrays" else TABLE.column_names
    expected = {name: TABLE[name].to_pylist() for name in names}
    assert rows_of_loader(KINDS[kind](file), names) == expected
    assert rows_of_workflow(KINDS[kind](file), names) == expected


@pytest.mark.parametrize(
    "kind", [3, [], None, [{"n": 1}], ds.InMemoryDataset(TABLE), pd.Series([1, 2])]
)
def test_what_is_no_table_is_refused_by_both_with_one_text(kind):
    with pytest.raises(WorkflowError) as of_workflow:
        Source.of(kind)
    with pytest.raises(LoaderError) as of_loader:
        rows_of_loader(kind, ["n"])
    assert str(of_loader.value) == str(of_workflow.value)


LISTS = pa.list_(pa.int64())
# Values of two files, of which each pair is one column.
PHYSICAL = {
    "int32, int64": (pa.array([1, -2], pa.int32()), pa.array([2**40], pa.int64())),
    "int8, uint16": (pa.array([-128], pa.int8()), pa.array([65535], pa.uint16())),
    "int32, float64": (pa.array([2**31 - 1], pa.int32()), pa.array([0.5], pa.float64())),
    "float32, float64": (pa.array([0.5], pa.float32()), pa.array([0.1], pa.float64())),
    "strings, dictionary": (pa.array(["a", "b"]), pa.array(["b", "c"]).dictionary_encode()),
    "dictionaries": (pa.array(["a"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()),
    "strings, large": (pa.array(["a"]), pa.array(["b"], pa.large_string())),
    "dictionary of integers": (pa.array([7, 8]).dictionary_encode(), pa.array([9])),
    "booleans": (pa.array([True, False]), pa.array([True])),
    "lists, large lists": (
        pa.array([[1], []], LISTS),
        pa.array([[2, 3]], pa.large_list(pa.int32())),
    ),
    "lists, arrays": (pa.array([[1], []], LISTS), pa.array([[2, 3]], pa.list_(pa.int64(), 2))),
    "arrays of two widths": (
        pa.array([[1, 2]], pa.list_(pa.int64(), 2)),
        pa.array([[1, 2, 3]], pa.list_(pa.int64(), 3)),
    ),
    "lists of strings, of dictionaries": (
        pa.array([["a", "b"], []]),
        pa.array([["b"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    ),
}
if Version(pa.__version__) >= Version("21"):  # older ones do not write views
    PHYSICAL["views, strings"] = (
        pa.array(["a", "b" * 20], pa.string_view()),
        pa.array(["c"]),
    )


@pytest.fixture
def two(tmp_path):
    def written(one, other):
        write(tmp_path / "two" / "0.parquet", {"c": one})
        write(tmp_path / "two" / "1.parquet", {"c": other})
        return tmp_path / "two"

    return written


@pytest.mark.parametrize("kind", PHYSICAL)
def test_files_of_two_types_are_one_column_for_both(two, kind):
    one, other = PHYSICAL[kind]
    expected = {"c": one.to_pylist() + other.to_pylist()}
    folder = two(one, other)
    assert rows_of_loader(folder, ["c"]) == expected
    assert rows_of_workflow(folder, ["c"]) == expected
    assert rows_of_loader([folder / "1.parquet"], ["c"]) == {"c": other.to_pylist()}


def test_categories_of_frames_are_strings(file):
    frame = pl.DataFrame(
        {
            "enum": pl.Series(["b", "a"], dtype=pl.Enum(["a", "b"])),
            "categories": pl.Series(["x", "y"], dtype=pl.Categorical),
            "arrays": pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int16, 2)),
        }
    )
    expected = frame.with_columns(pl.col("enum", "categories").cast(pl.String)).to_dict(
        as_series=False
    )
    frame.write_parquet(file)
    for data in (frame, file):
        assert rows_of_loader(data, frame.columns) == expected
        assert rows_of_workflow(data, frame.columns) == expected


def test_a_column_of_nothing_but_nulls_is_of_the_type_that_other_files_have(two):
    folder = two(pa.nulls(2), pa.array([0.5, 1.5]))
    assert np.isnan(rows_of_loader(folder, ["c"])["c"][:2]).all()
    assert rows_of_workflow(folder, ["c"])["c"] == [None, None, 0.5, 1.5]
    folder = two(pa.nulls(2), pa.array([1]))
    with pytest.raises(LoaderError, match=r"no nulls in 'c' \(int64\).*2 in 'c'"):
        rows_of_loader(folder, ["c"])


REFUSED = {
    "int64, float64": (pa.array([2**60 + 1]), pa.array([0.5])),
    "bool, int8": (pa.array([True]), pa.array([1], pa.int8())),
    "int64, strings": (pa.array([1]), pa.array(["1"])),
    "int64, lists": (pa.array([1]), pa.array([[1]])),
    "decimal": (pa.array([Decimal("1.5")]), pa.array([Decimal("1.5")])),
    "float16": (pa.array(np.ones(1, np.float16)), pa.array(np.ones(1, np.float16))),
    "bytes": (pa.array([b"a"]), pa.array([b"b"])),
    "structs": (pa.array([{"a": 1}]), pa.array([{"a": 2}])),
    "lists of lists": (pa.array([[[1]]]), pa.array([[[2]]])),
    "time of day": (pa.array([1], pa.time64("us")), pa.array([2], pa.time64("us"))),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_no_type_holds_is_refused_by_both_with_the_column(two, kind):
    folder = two(*REFUSED[kind])
    with pytest.raises(WorkflowError, match=r"'c'.*([Ww]rite it as one type|C(as|onver)t it)"):
        rows_of_workflow(folder, ["c"])
    with pytest.raises(LoaderError, match=r"'c'.*([Ww]rite it as one type|Cast it)"):
        rows_of_loader(folder, ["c"])


def test_times_enter_a_workflow_and_no_tensor(two):
    noon = pa.array([dt.datetime(2024, 1, 2, 12)], pa.timestamp("ms"))  # noqa: DTZ001
    with pytest.raises(LoaderError, match=r"'c' of .*0\.parquet .*DatePart"):
        rows_of_loader(two(noon, noon), ["c"])


# Folders that name the values of columns.


@pytest.fixture
def hive(tmp_path):
    """Files in folders of a day and a shop, one of which is unknown, as pyarrow writes them."""
    table = pa.table(
        {
            "n": range(6),
            "day": ["2024-01-01"] * 3 + ["2024-01-02"] * 3,
            "shop": [7, 7, None, 7, 12, 12],
            "name": ["a b", "ü/x", "a b", "=", "12", "=x"],
        }
    )
    pq.write_to_dataset(table, tmp_path / "hive", partition_cols=["day", "shop", "name"])
    return tmp_path / "hive"


def by_n(rows):
    order = np.argsort(rows["n"])
    return {name: [values[n] for n in order] for name, values in rows.items()}


EVERY = {
    "folder": lambda hive: hive,
    "pattern": lambda hive: str(hive / "*" / "*" / "*" / "*.parquet"),
    "recursive pattern": lambda hive: str(hive / "**" / "*.parquet"),
    "pattern of folders": lambda hive: str(hive / "day=*"),
    "list": lambda hive: list(hive.rglob("*.parquet")),
}


@pytest.mark.parametrize("kind", EVERY)
def test_keys_in_the_names_of_folders_are_columns_for_both(hive, kind):
    expected = {
        "n": list(range(6)),
        "day": [dt.date(2024, 1, 1)] * 3 + [dt.date(2024, 1, 2)] * 3,
        "shop": [7, 7, None, 7, 12, 12],
        "name": ["a b", "ü/x", "a b", "=", "12", "=x"],
    }
    data = EVERY[kind](hive)
    assert by_n(Source.of(data).frame.collect().to_dict(as_series=False)) == expected
    in_runs = ParquetTable(Source.of(data).files.files, one_scan=False)
    assert by_n(in_runs.scan().collect().to_dict(as_series=False)) == expected
    del expected["day"], expected["shop"]
    assert by_n(rows_of_loader(data, ["n", "name"])) == expected
    assert by_n(rows_of_workflow(data, ["n", "name"])) == expected
    for read in (rows_of_loader, rows_of_workflow):
        assert sorted(read(data, ["name"])["name"]) == sorted(expected["name"])


def test_pyarrow_reads_the_same_keys(hive):
    expected = sorted(pq.read_table(hive).to_pylist(), key=lambda row: row["n"])
    rows = Source.of(hive).frame.sort("n").collect()
    assert rows.with_columns(pl.col("day").cast(pl.String)).to_dicts() == expected


def test_an_unknown_key_is_null_to_a_tensor_too(hive):
    with pytest.raises(LoaderError, match=r"no nulls in 'shop' \(int64\).*in 'shop'"):
        rows_of_loader(hive, ["shop"])
    days = sorted(hive.glob("day=*2"))
    assert sorted(rows_of_loader(days, ["shop"])["shop"]) == [7, 12, 12]


def test_the_folder_itself_is_no_key(hive):
    """So that a path such as runs/lr=0.1/train gives no column that the next run has not."""
    assert Source.of(hive / "day=2024-01-01").names == ["n", "shop", "name"]
    assert Source.of(str(hive / "day=2024-01-01" / "*")).names == ["n", "shop", "name"]
    [file, *_] = hive.rglob("*.parquet")
    assert Source.of(file).names == ["n"]


def test_a_key_that_some_files_lack_is_named_where_it_is_used(hive):
    write(hive / "plain.parquet", {"n": [6]})
    assert sorted(rows_of_loader(hive, ["n"])["n"]) == list(range(7))
    for error, read in ((WorkflowError, rows_of_workflow), (LoaderError, rows_of_loader)):
        with pytest.raises(error, match=r"plain\.parquet.*'name'|'name' in .*plain\.parquet"):
            read(hive, ["n", "name"])


def test_a_column_in_the_file_counts_before_the_folders_name(tmp_path):
    for number in (1, 2):
        write(tmp_path / f"k=0{number}" / "0.parquet", {"k": [f"0{number}"], "n": [number]})
    for read in (rows_of_loader, rows_of_workflow):
        assert read(tmp_path, ["k", "n"]) == {"k": ["01", "02"], "n": [1, 2]}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("1", "-2"), [1, -2]),
        (("01", "2"), [1, 2]),
        (("1", "x"), ["1", "x"]),
        (("1", "1.5"), ["1", "1.5"]),
        (("9223372036854775808", "1"), ["9223372036854775808", "1"]),
        (("2024-01-01", "2024-02-30"), ["2024-01-01", "2024-02-30"]),
        (("1_000", "1"), ["1_000", "1"]),
        (("%31", "2"), [1, 2]),
        (("a%2Fb", "%"), ["a/b", "%"]),
        (("a+b", ""), ["a+b", ""]),
        (("__HIVE_DEFAULT_PARTITION__", "5"), [None, 5]),
    ],
)
@pytest.mark.parametrize("one_scan", [True, False])
def test_the_type_of_a_key_holds_all_of_its_values(tmp_path, texts, expected, one_scan):
    for number, text in enumerate(texts):
        write(tmp_path / str(number) / f"k={text}" / "0.parquet", {"n": [number]})
    files = ParquetTable(Source.of(tmp_path).files.files, one_scan=one_scan)
    rows = files.scan().sort("n").collect()
    assert rows["k"].to_list() == expected


def test_a_thousand_keys_are_one_scan(tmp_path):
    for number in range(50):
        write(tmp_path / f"k={number}" / "0.parquet", {"n": [number]})
    frame = Source.of(tmp_path).frame
    assert frame.explain(optimized=False).count("Parquet SCAN") == 1
    assert frame.select((pl.col("k") == pl.col("n")).all()).collect().item()


def test_keys_of_a_relative_path(hive, monkeypatch):
    monkeypatch.chdir(hive.parent)
    assert rows_of_loader("hive", ["n", "name"]) == rows_of_loader(hive, ["n", "name"])
    assert Source.of(Path("hive")).frame.collect().equals(Source.of(hive).frame.collect())
    elsewhere = Source.of(Path("hive")).files.absolute()
    monkeypatch.chdir(hive)
    assert elsewhere.scan().collect().equals(Source.of(hive).frame.collect())
