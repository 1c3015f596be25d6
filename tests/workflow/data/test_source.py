"""Data listed once: kinds of tables, columns that nobody uses, files that come and go during a fit."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from workflow import ColumnSelector, Workflow, WorkflowError, ops
from workflow.data.sources import as_lazy_frame


class Capsule:
    """Rows of a library that this project does not know, as a query of DuckDB is."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def test_every_arrow_stream_is_read(ratings, tmp_path):
    ratings[:2].write_parquet(tmp_path / "0.parquet")
    ratings[2:].write_parquet(tmp_path / "1.parquet")
    table = ratings.to_arrow()
    batches = table.to_batches()
    kinds = [
        batches[0],
        pa.RecordBatchReader.from_batches(table.schema, batches),
        Capsule(table),
        tmp_path.glob("*.parquet"),
    ]
    for kind in kinds:
        assert as_lazy_frame(kind).collect().sort(pl.all()).equals(ratings.sort(pl.all()))


@pytest.mark.parametrize(
    "named",
    [
        lambda folder: folder,
        lambda folder: str(folder / "*.parquet"),
        lambda folder: folder / "part-00001.parquet",
        lambda folder: sorted(folder.glob("*.parquet")),
        lambda folder: folder.glob("part-*.parquet"),
        lambda folder: [folder],
        lambda folder: str(folder.parent / "*"),
    ],
)
def test_tags_beside_the_files_are_taken_however_these_are_named(named, ratings, tmp_path):
    marked = ["rating"] >> ops.AddTags(["mine"])
    ids = ["userId"] >> ops.Categorify()
    written = Workflow(marked + ids).fit(ratings)
    written.transform_to_parquet(ratings, tmp_path / "made", rows_per_file=2)
    again = Workflow(ColumnSelector(tags=["mine"]) + "userId").fit(named(tmp_path / "made"))
    assert again.output_schema.names == ["rating", "userId"]
    assert again.output_schema["userId"].properties == written.output_schema["userId"].properties


@pytest.mark.parametrize("start", [0, 1, 2])
def test_nulls_among_the_arrays_of_a_slice_are_read(start):
    rows = [None, [1, 2], [3, None], None, [5, 6]]
    table = pa.table({"n": pa.array(rows, pa.list_(pa.int16(), 2))}).slice(start, 3)
    column = table["n"]
    for data in (table, pa.concat_tables([table, table]), {"n": column}, {"n": column.chunk(0)}):
        made = Workflow(["n"]).fit_transform(data).collect()["n"].to_list()
        assert made == [row or [] for row in data["n"].to_pylist()]


@pytest.mark.parametrize("values", [[7, None, 9], [True, False, None]])
def test_chunks_of_encoded_values_in_a_dict_keep_their_type(values):
    chunk = pa.array(values).dictionary_encode()
    made = Workflow("a").fit_transform({"a": pa.chunked_array([chunk, chunk])}).collect()["a"]
    assert made.to_list() == values * 2


def test_a_column_of_pandas_without_values_in_a_dict_has_the_type_of_the_fit():
    workflow = Workflow(["a"] >> ops.Categorify()).fit({"a": [7, 9]})
    none = {"a": pd.Series([None, None], dtype=object)}
    assert workflow.transform(none).collect()["a"].to_list() == [1, 1]


def test_series_of_pandas_in_a_dict_are_put_together_by_their_places():
    data = {"a": pd.Series([1, 2], index=[7, 9]), "b": pd.Series(["x", "y"], index=[9, 7])}
    made = Workflow(["a", "b"]).fit_transform({**data, "c": [0.5, 1.5]}).collect()
    assert made.rows() == [(1, "x"), (2, "y")]


def test_strings_as_views_are_read():
    """Polars exports them so, and older pyarrow had no such type."""
    city = pl.DataFrame({"city": ["a", "a text too long to be held in a view", None]})
    workflow = Workflow(["city"] >> ops.Categorify())
    ids = workflow.fit_transform(Capsule(city)).collect()["city"]
    assert ids.to_list() == [3, 4, 1]


@pytest.fixture(scope="module")
def duck():
    with duckdb.connect() as connection:
        yield connection.sql(
            "select range as item, range / 4 as price, 'c' || (range % 5) as city, "
            "[range, range + 1] as pair, date '2024-01-01' + range::int as day, "
            "case when range % 3 = 0 then null else range end as gap from range(4000)"
        )


def test_a_query_of_duckdb_is_data_as_often_as_it_is_needed(duck, tmp_path):
    ids = ["item", "city", "gap"] >> ops.Categorify()
    columns = ids + (["price"] >> ops.Normalize()) + (["day"] >> ops.DatePart(["weekday"])) + "pair"
    rows = range(4000)
    plain = pl.DataFrame(
        {
            "item": rows,
            "price": [row / 4 for row in rows],
            "city": [f"c{row % 5}" for row in rows],
            "pair": [[row, row + 1] for row in rows],
            "day": [date(2024, 1, 1) + timedelta(row) for row in rows],
            "gap": [row if row % 3 else None for row in rows],
        }
    )
    expected = Workflow(columns).fit_transform(plain).collect()
    workflow = Workflow(columns).fit(duck)
    assert workflow.transform(duck).collect().equals(expected)
    files = workflow.transform_to_parquet(duck, tmp_path / "made")
    assert pl.read_parquet(files).equals(expected)
    reader = duck.to_arrow_reader(700)
    assert Workflow(columns).fit_transform(reader).collect().equals(expected)


def test_a_reader_is_written_as_its_table_is(ratings, tmp_path):
    """A reader is an iterator, as paths may be, but of rows."""
    workflow = Workflow(["userId"] >> ops.Categorify()).fit(ratings)
    expected = workflow.transform(ratings).collect()
    for number, write in enumerate(
        (workflow.transform_to_parquet, workflow.fit_transform_to_parquet)
    ):
        files = write(ratings.to_arrow().to_reader(max_chunksize=2), tmp_path / str(number))
        assert pl.read_parquet(files).equals(expected)


def test_a_stream_that_was_read_says_that_it_can_be_read_once(ratings, duck):
    readers = [ratings.to_arrow().to_reader(), duck.select("item as userId").to_arrow_reader(10)]
    for reader in readers:
        workflow = Workflow(["userId"] >> ops.Categorify()).fit(reader)
        for use in (workflow.fit, workflow.transform):
            with pytest.raises(WorkflowError, match=r"RecordBatchReader, which can be read once.*"):
                use(reader)
    # A table without rows is one, each time.
    nothing = Capsule(ratings[:0].to_arrow())
    assert workflow.transform(nothing).collect().height == 0


class Failing:
    """A stream of a library with an error class of its own."""

    def __arrow_c_stream__(self, requested_schema=None):
        raise LookupError("the connection is closed")


def test_an_error_of_the_library_that_makes_the_stream():
    with pytest.raises(WorkflowError, match=r"stream of a Failing cannot be read: the connection"):
        Workflow("x").fit(Failing())


@pytest.mark.parametrize("kind", [LookupError, ValueError])
def test_an_error_of_the_generator_behind_a_reader(kind):
    def batches():
        yield pa.record_batch({"x": [1, 2]})
        raise kind("row 3 is broken")

    reader = pa.RecordBatchReader.from_batches(pa.schema({"x": pa.int64()}), batches())
    with pytest.raises(WorkflowError, match=r"cannot be read: .*row 3 is broken") as error:
        Workflow("x").fit(reader)
    assert isinstance(error.value.__cause__, kind)


def test_rows_as_dicts_are_refused_with_the_remedy():
    rows = [{"userId": 7}, {"userId": 9}]
    with pytest.raises(WorkflowError, match=r"list of rows.*polars\.DataFrame\(rows\)"):
        Workflow("userId").fit(rows)
    assert Workflow("userId").fit_transform(pl.DataFrame(rows)).collect().height == 2


RECORDS = np.array([(1, 2.0), (3, 4.0)], [("a", "i4"), ("b", "f8")])
NOT_HELD = {
    "complex numbers": ([1 + 2j, 3j], r"complex in row 0\. Use its real"),
    "one complex number": ([1, 3j], r"complex in row 1\. Use its real"),
    "complex numbers in lists": ([[1.5], [2j]], r"complex in row 1\. Use its real"),
    "numpy's": ([np.complex64(1), np.complex64(2)], r"complex64 in row 0\. Use its real"),
    "objects that are complex": (np.array([1, 2j], object), r"complex in row 1\. Use its real"),
    "lists of arrays": ([np.array([1j]), np.array([2j])], r"complex128 in row 0\. Use its real"),
    "records": (RECORDS, r"void96 of the fields a, b\. Take each of its fields"),
    "a list of records": (list(RECORDS), r"void in row 0\. Take each of its fields"),
    "raw bytes": (np.array([b"ab", b"cd"], "V2"), "void16"),
    "objects": ([object(), object()], "object in row 0"),
    "more than doubles": (np.ones(2, "longdouble"), r"float128\. Round it"),
    "one value": (np.array(3), "no rows"),
    "no values": (pl.Int64(), "Int64 in row 0"),
}


@pytest.mark.parametrize("kind", NOT_HELD)
def test_values_that_no_column_has_are_named(kind):
    values, received = NOT_HELD[kind]
    fitted = Workflow("x").fit({"x": [1.5]})
    frames = [{"x": values}]
    if isinstance(values, list) or getattr(values, "dtype", None) is np.dtype(object):
        frames += [pd.DataFrame({"x": pd.Series(values, dtype=object)})]
        frames += [pl.DataFrame({"x": pl.Series(values, dtype=pl.Object)})]
    for frame in frames:
        for use in (Workflow("x").fit, fitted.transform):
            with pytest.raises(WorkflowError, match=f"'x' as numbers, .*Received: {received}"):
                use(frame)


DAY, TIME = date(2024, 1, 1), datetime(2024, 1, 1, 5)  # noqa: DTZ001 - times without a zone
MIXED = {
    "date, datetime": [DAY, TIME],
    "with a zone and without": [TIME, TIME.replace(tzinfo=UTC), None, pd.NaT],
}


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("said", MIXED)
def test_times_of_several_kinds_in_a_column_of_pandas_objects_are_refused(said, lists):
    values = [[value] for value in MIXED[said] if value] if lists else MIXED[said]
    series = pd.Series(values, dtype=object)
    for data in (series.to_frame("at"), {"at": series}):
        with pytest.raises(WorkflowError, match=rf"'at' of the pandas frame cannot be.*{said}"):
            Workflow(["at"]).fit(data)


def test_times_of_one_kind_in_a_column_of_pandas_objects_are_read():
    for value in (DAY, TIME, TIME.replace(tzinfo=UTC), pd.Timestamp(TIME)):
        values = pd.Series([value, None, pd.NaT, float("nan")], dtype=object)
        made = Workflow(["at"]).fit_transform(pd.DataFrame({"at": values})).collect()["at"]
        assert made.cast(pl.Datetime("us")).to_list() == [
            TIME if isinstance(value, datetime) else TIME.replace(hour=0),
            *[None] * 3,
        ]


def test_a_date_beside_a_time_of_numpy_is_refused():
    with pytest.raises(WorkflowError, match="values of several types: date, datetime"):
        Workflow(["at"]).fit({"at": [DAY, np.datetime64("2024-01-01T05:00")]})


@pytest.mark.parametrize(
    "values",
    [[2**53 + 1, float("nan")], [[2.5], [2**53 + 1]], [np.float32(0.5), np.uint64(2**64 - 1)]],
    ids=str,
)
def test_integers_that_floats_beside_them_would_round_are_refused(values):
    with pytest.raises(WorkflowError, match=r"it holds \d+ beside floats, which hold no such"):
        Workflow(["id"]).fit({"id": values})
    made = Workflow(["id"]).fit_transform({"id": [2**53, 0.5]}).collect()["id"]
    assert made.to_list() == [2**53, 0.5]


EMPTY = np.array([])  # of floats, whatever the other rows hold


@pytest.mark.parametrize(
    ("rows", "dtype", "lists"),
    [
        ([np.array([5], "int32"), None, EMPTY], pl.Int32, [[5], [], []]),
        ([np.array([5], "int32"), EMPTY], pl.Int32, [[5], []]),
        ([[5], EMPTY], pl.Int64, [[5], []]),
        ([[], np.array([5], "int32"), [2**40]], pl.Int64, [[], [5], [2**40]]),
        ([np.array(["a"]), None, ["b", None]], pl.String, [["a"], [], ["b", None]]),
        ([None, np.array([2.5], "float32")], pl.Float32, [[], [2.5]]),
        ([np.array([2.5]), None, [1]], pl.Float64, [[2.5], [], [1.0]]),
        ([np.array([True]), [False], None], pl.Boolean, [[True], [False], []]),
        ([pl.Series([1], dtype=pl.Int32), [], None], pl.Int64, [[1], [], []]),
        ([np.array([5999], "M8[ns]"), [], None], pl.Int64, [[5], [], []]),
        ([np.array([5], "M8[s]"), EMPTY, None], pl.Int64, [[5_000_000], [], []]),
        ([EMPTY, None, np.array([2**53 + 1])], pl.Int64, [[], [], [2**53 + 1]]),
        (
            [np.array([1], "M8[D]"), [date(1970, 1, 3)]],
            pl.Int64,
            [[86400 * 10**6], [172800 * 10**6]],
        ),
    ],
    ids=str,
)
def test_lists_may_be_arrays_beside_missing_and_empty_ones(rows, dtype, lists):
    made = Workflow(["x"]).fit_transform({"x": rows}).collect()["x"]
    assert (made.dtype, made.to_list()) == (pl.List(dtype), lists)
    if any(row is EMPTY for row in rows):  # pyarrow takes it for one of floats, or crashes
        frame = pd.DataFrame({7: range(len(rows)), "x": pd.Series(rows)})
        made = Workflow(["7", "x"]).fit_transform(frame).collect()
        assert made["7"].to_list() == [*range(len(rows))]
        assert (made["x"].dtype, made["x"].to_list()) == (pl.List(dtype), lists)


def test_arrays_of_times_and_of_numbers_in_a_pandas_frame_are_refused():
    """Pyarrow crashes."""
    rows = [np.array([5], "M8[s]"), np.array([1.5])]
    with pytest.raises(WorkflowError, match="values of several types: datetime, float"):
        Workflow(["x"]).fit(pd.DataFrame({"x": pd.Series(rows)}))


def test_a_data_set_of_pyarrow_is_refused_with_a_frame_of_it(tmp_path):
    pl.DataFrame({"x": [1, 2]}).write_parquet(tmp_path / "x.parquet")
    data = pyarrow.dataset.dataset(tmp_path)
    with pytest.raises(WorkflowError, match=r"Pass polars\.scan_pyarrow_dataset\(dataset\)\."):
        Workflow("x").fit(data)
    found = Workflow("x").fit_transform(pl.scan_pyarrow_dataset(data)).collect()
    assert found["x"].to_list() == [1, 2]


def test_an_array_is_no_table_and_says_how_to_make_one():
    for array, said in ((RECORDS, "fields as columns"), (np.ones((2, 3)), "its columns names")):
        with pytest.raises(WorkflowError, match=rf"Received: a numpy array of shape .*{said}"):
            Workflow("x").fit(array)


COLUMNS = {
    "integers": [7, 9],
    "floats": [1.5, 2.0],
    "booleans": [True, False],
    "strings": ["a", "b"],
    "dates": [date(2024, 1, 1), date(2024, 1, 2)],
    "lists": [[1.0], [2.0, 3.0]],
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_without_values_has_the_type_of_the_fit(kind):
    """A night in which a column is empty: an object column of pandas, None in a dict, null in Arrow."""
    fitted = Workflow("x").fit({"x": COLUMNS[kind]})
    empty = {"x": [None, None]}  # a list without values is an empty one
    for frame in (empty, pl.DataFrame(empty), pa.table(empty), pd.DataFrame(empty)):
        found = fitted.transform(frame).collect()["x"]
        assert found.dtype == fitted.transform({"x": COLUMNS[kind]}).collect()["x"].dtype
        assert found.to_list() == ([[], []] if kind == "lists" else [None, None])


UNUSABLE = {
    "mixed": [b"x", 1, "y"],
    "complex": [1 + 2j, 3j, 0j],
    "object": [object(), object(), object()],
    "sparse": pd.arrays.SparseArray([0, 0, 1]),
    "period": pd.period_range("2024-01-01", periods=3, freq="D"),
    "interval": pd.arrays.IntervalArray.from_breaks([0, 1, 2, 3]),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_a_column_that_is_not_used_may_be_anything(kind):
    frame = pd.DataFrame({"userId": [7, 7, 9], "note": UNUSABLE[kind]})
    workflow = Workflow(["userId"] >> ops.Categorify()).fit(frame)
    assert workflow.transform(frame).collect()["userId"].to_list() == [3, 3, 4]
    table = frame.rename(columns={"userId": "id", "note": "name"})
    join = ops.JoinExternal(
        table, on="userId", on_ext="id", columns_ext=["id"], drop_duplicates_ext=True
    )
    joined = ["userId"] >> join
    assert Workflow(joined).fit_transform(frame).collect()["userId"].to_list() == [7, 7, 9]
    with pytest.raises(WorkflowError, match="'note'"):
        Workflow(["note"] >> ops.Categorify()).fit(frame)
    with pytest.raises(WorkflowError, match="'note'"):
        Workflow("*" >> ops.Categorify()).fit(frame)


def test_a_column_of_a_dict_that_is_not_used_may_be_mixed():
    data = {"userId": [7, 9], "note": [1, "x"]}
    assert Workflow("userId").fit_transform(data).collect().height == 2


@pytest.mark.parametrize("frequency", ["s", "D", "M"])
def test_periods_are_refused_with_the_remedy(frequency, tmp_path):
    """Polars reads them as the number of seconds, days or months since 1970."""
    frame = pd.DataFrame({"at": pd.period_range("2024-01-01", periods=3, freq=frequency)})
    frame.to_parquet(tmp_path / "periods.parquet")
    year = ["at"] >> ops.DatePart(["year"])
    whole = frame.assign(at=frame["at"].dt.to_timestamp())
    workflow = Workflow(year).fit(whole)
    for data in (frame, pa.table(frame), tmp_path / "periods.parquet"):
        for use in (Workflow(year).fit, workflow.transform):
            with pytest.raises(WorkflowError, match=r"'at' .*period.*\.dt\.to_timestamp\(\)"):
                use(data)
    assert set(workflow.transform(whole).collect()["at_year"]) == {2024}


def test_times_of_a_zone_that_polars_lacks_are_refused_with_the_remedy(tmp_path):
    """As pandas parses `2024-01-01T00:30:00+05:30`: Polars knows offsets of whole hours alone."""
    at = pd.to_datetime(["2024-01-01T00:30:00+05:30", "2024-07-01T23:00:00+05:30"])
    frame = pd.DataFrame({"userId": [7, 9], "at": at})
    frame.to_parquet(tmp_path / "times.parquet")
    hour = ["at"] >> ops.DatePart(["hour"], time_zone="Asia/Kolkata")
    for data in (frame, pa.table(frame), tmp_path / "times.parquet"):
        with pytest.raises(WorkflowError, match=r"'at'.*\.dt\.tz_convert\(\"UTC\"\)"):
            Workflow(hour).fit(data)
    made = Workflow(hour).fit_transform(frame.assign(at=frame["at"].dt.tz_convert("UTC"))).collect()
    assert made["at_hour"].to_list() == [0, 23]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1], None], pa.list_view(pa.int64())),
        pa.array([{"a": [1]}, None], pa.struct({"a": pa.list_view(pa.int64())})),
    ],
    ids=lambda column: str(column.type),
)
def test_a_column_for_which_polars_reads_nothing_of_a_file_is_named(column, tmp_path):
    pq.write_table(pa.table({"userId": [7, 9], "note": column}), tmp_path / "a.parquet")
    with pytest.raises(
        WorkflowError, match=r"a\.parquet .* column 'note', .*list_view.*Cast the column"
    ):
        Workflow(["userId"] >> ops.Categorify()).fit(tmp_path)


def test_a_column_of_intervals_is_named(tmp_path):
    query = "select 7 as user, interval 1 day as span"
    duckdb.sql(f"copy ({query}) to '{tmp_path / 'a.parquet'}'")
    with pytest.raises(WorkflowError, match=r"column 'span', an interval, .*Cast the column"):
        Workflow(["user"]).fit(tmp_path)


@pytest.mark.parametrize("make", [lambda d: d, lambda d: [d]], ids=["single", "list"])
def test_decimals_too_wide_for_polars_are_refused_only_if_they_are_used(make, tmp_path):
    wide = pa.decimal256(50, 2)
    column = pa.array([make(Decimal("1.5")), None], wide if make(0) == 0 else pa.list_(wide))
    pq.write_table(pa.table({"userId": [7, 9], "price": column}), tmp_path / "a.parquet")
    workflow = Workflow(["userId"] >> ops.Categorify()).fit(tmp_path)
    assert workflow.transform(tmp_path).collect()["userId"].to_list() == [3, 4]
    with pytest.raises(WorkflowError, match=r"a\.parquet: .* column 'price' .*Decimal.*Cast"):
        Workflow(["price"] >> ops.Normalize()).fit(tmp_path)


@pytest.fixture
def between(monkeypatch):
    """Functions to call between the first phase of the next fit and its second one."""
    events = []
    finish = ops.Normalize.finish

    def then(self, partials, columns):
        if events:
            events.pop()()
        return finish(self, partials, columns)

    monkeypatch.setattr(ops.Normalize, "finish", then)
    return events


def phases():
    """A graph that learns in two phases."""
    return Workflow(["price"] >> ops.Normalize() >> ops.Normalize())


@pytest.fixture
def prices(tmp_path):
    folder = tmp_path / "prices"
    folder.mkdir()
    for number in range(3):
        pl.DataFrame({"price": [1.0, 2.0, 3.0 + number]}).write_parquet(
            folder / f"{number}.parquet"
        )
    return folder


def test_a_file_that_arrives_during_fit_is_read_by_no_operator(prices, between):
    late = pl.DataFrame({"price": [1e6] * 100})
    want = phases().fit_transform(prices).collect()
    for use in (
        lambda: phases().fit(prices).transform(sorted(prices.glob("[012].parquet"))).collect(),
        lambda: phases().fit_transform(prices).collect(),
        lambda: pl.read_parquet(phases().fit_transform_to_parquet(prices, prices.with_name("out"))),
    ):
        between.append(lambda: late.write_parquet(prices / "9.parquet"))
        made = use()
        assert made.height == 9
        np.testing.assert_allclose(made["price"], want["price"], rtol=1e-6)
        (prices / "9.parquet").unlink()


def replace(file):
    """Writing over a file that Polars has mapped would end the process by a bus error."""
    new = file.with_suffix(".new")
    pl.DataFrame({"price": [5.0]}).write_parquet(new)
    new.replace(file)


@pytest.mark.parametrize(
    ("change", "received"),
    [(lambda file: file.unlink(), "No such file"), (replace, "written since")],
    ids=["gone", "replaced"],
)
def test_a_file_that_changes_during_fit_is_named(prices, between, change, received):
    for number, use in enumerate(
        (
            lambda: phases().fit(prices),
            lambda: phases().fit_transform_to_parquet(prices, prices.with_name("out")),
        )
    ):
        between.append(lambda number=number: change(prices / f"{number}.parquet"))
        with pytest.raises(WorkflowError, match=rf"{number}\.parquet.*Received: .*{received}"):
            use()
        pl.DataFrame({"price": [1.0]}).write_parquet(prices / f"{number}.parquet")


def test_an_operators_own_error_passes_as_it_is(prices, between):
    def wrong():
        raise TypeError("a mistake of the operator's author")

    between.append(wrong)
    with pytest.raises(TypeError, match="operator's author"):
        phases().fit(prices)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_name_that_is_not_utf8_is_an_error_that_says_so(suffix, tmp_path):
    """As of an old Windows archive; it was "Object does not have a .read() method"."""
    path = tmp_path / os.fsdecode(b"caf\xe9." + suffix.encode())
    rows = pl.DataFrame({"user": [1, 2]})
    path.write_bytes(rows.write_csv().encode())
    if suffix == "parquet":
        with path.open("wb") as file:
            rows.write_parquet(file)
    workflow = Workflow(["user"] >> ops.Categorify())
    for data in [path, tmp_path] if suffix == "parquet" else [path]:
        with pytest.raises(WorkflowError, match=r"path in UTF-8.*caf\\xe9.*Rename the file"):
            workflow.fit(data)


@pytest.mark.parametrize(
    ("fitted", "later"),
    [(("1", "x"), "1"), (("007", "b"), "007"), (("2024-01-01", "all"), "2024-01-01")],
)
def test_names_of_folders_are_texts_if_those_of_fit_were(fitted, later, tmp_path):
    """Tomorrow's folder may be one that looks like a number, or like a date."""
    for root, names in (("all", fitted), ("new", [later])):
        for number, name in enumerate(names):
            folder = tmp_path / root / f"shop={name}"
            folder.mkdir(parents=True)
            pl.DataFrame({"n": [number]}).write_parquet(folder / "0.parquet")
    workflow = Workflow(["shop"] >> ops.Categorify()).fit(tmp_path / "all")
    ids = workflow.transform({"shop": [later]}).collect()["shop"].to_list()
    assert ids != [2]  # that of an unknown value
    assert workflow.transform(tmp_path / "new").collect()["shop"].to_list() == ids
    written = workflow.transform_to_parquet(tmp_path / "new", tmp_path / "out")
    assert pl.read_parquet(written)["shop"].to_list() == ids


@pytest.mark.parametrize("fitted", ["1", "2024-01-01", "a"])
def test_folders_that_are_all_null_have_the_type_of_fit(fitted, tmp_path):
    for name in (fitted, "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / name / f"shop={name}").mkdir(parents=True)
        rows = pl.DataFrame({"n": [1, 2]})
        rows.write_parquet(tmp_path / name / f"shop={name}" / "0.parquet")
    workflow = Workflow((["shop"] >> ops.Categorify()) + ["n"]).fit(tmp_path / fitted)
    null = workflow.transform(tmp_path / "__HIVE_DEFAULT_PARTITION__").collect()
    assert null["shop"].to_list() == [1, 1]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_name_with_a_tilde_is_no_home(suffix, tmp_path, monkeypatch):
    """Polars read another file than the one whose footer was read, or found none."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for folder, user in (("home", 7), ("~", 1)):
        (tmp_path / folder).mkdir()
        rows = pl.DataFrame({"user": [user, user]})
        write = rows.write_csv if suffix == "csv" else rows.write_parquet
        write(tmp_path / folder / f"a.{suffix}")
    workflow = Workflow(["user"] >> ops.LambdaOp(lambda user: user + 1)).fit(f"~/a.{suffix}")
    assert workflow.transform(f"~/a.{suffix}").collect()["user"].to_list() == [2, 2]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_lazy_frame_reads_the_same_files_in_another_folder(suffix, tmp_path, monkeypatch):
    """As after Hydra's change of the folder; it read what lies there under the name."""
    for folder, user in (("one", 1), ("two", 7)):
        (tmp_path / folder).mkdir()
        rows = pl.DataFrame({"user": [user, user]})
        write = rows.write_csv if suffix == "csv" else rows.write_parquet
        write(tmp_path / folder / f"a.{suffix}")
    monkeypatch.chdir(tmp_path / "one")
    workflow = Workflow(["user"] >> ops.LambdaOp(lambda user: user + 1)).fit(f"a.{suffix}")
    frames = [workflow.transform(data) for data in (f"a.{suffix}", [f"a.{suffix}"], f"*.{suffix}")]
    monkeypatch.chdir(tmp_path / "two")
    assert [frame.collect()["user"].to_list() for frame in frames] == [[2, 2]] * 3
