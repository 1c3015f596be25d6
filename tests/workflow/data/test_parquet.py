"""Parquet that goes in: files that cannot be read are named, and their types need not agree."""

from __future__ import annotations

import base64
import functools
import os
import re
import subprocess
import sys
import zlib
from datetime import UTC, datetime

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damaged import damage_rows
from pyarrow import orc
from pyarrow.parquet.encryption import (
    CryptoFactory,
    EncryptionConfiguration,
    KmsClient,
    KmsConnectionConfig,
)

from loader import KerasSequenceLoader, LoaderError
from workflow import Workflow, WorkflowError, inspect_dataset, ops
from workflow.data.parquet import ParquetTable, common_type
from workflow.data.parquet_file import ParquetFile
from workflow.data.sources import Source

IDS = ["userId"] >> ops.Categorify()
TOKYO = pl.Datetime("us", "Asia/Tokyo")


@pytest.fixture
def two(tmp_path):
    """Two files of one schema; what a test does to the second one has to be found."""
    folder = tmp_path / "two"
    folder.mkdir()
    for name in ("a", "b"):
        rows = {"userId": list(range(500)), "price": [0.5] * 500}
        pl.DataFrame(rows).write_parquet(folder / f"{name}.parquet", row_group_size=250)
    return folder


def cut(file):
    file.write_bytes(file.read_bytes()[:-100])


SPOILT = {
    "b.parquet cannot be read as parquet: it is empty.": lambda file: file.write_bytes(b""),
    "b.parquet cannot be read as parquet: it is not a parquet file.": lambda file: file.write_text(
        "userId,price\n1,2.5\n"
    ),
    "b.parquet cannot be read as parquet: it ends after": cut,
    "b.parquet cannot be read as parquet: its footer is damaged.": lambda file: file.write_bytes(
        b"PAR1" + b"\0" * 40 + b"\x14\0\0\0PAR1"
    ),
    "b.parquet is damaged in row group 0.": damage_rows,
}


@pytest.mark.parametrize("message", SPOILT)
def test_a_file_that_cannot_be_read_is_named(two, message):
    fitted = Workflow(IDS).fit(two)
    SPOILT[message](two / "b.parquet")
    with pytest.raises(WorkflowError, match=re.escape(message)) as fit:
        Workflow(IDS).fit(two)
    with pytest.raises(WorkflowError, match=re.escape(message)) as transform:
        fitted.transform_to_parquet(two, two.with_name("out"))
    for error in (fit, transform):
        assert error.value.__cause__ is not None
        assert "\n" not in str(error.value)


def test_a_pipe_is_told():
    reading, writing = os.pipe()
    os.close(writing)
    try:
        with pytest.raises(WorkflowError, match=r"it is a pipe or a device\. Write its content to"):
            Workflow(IDS).fit(f"/dev/fd/{reading}")
    finally:
        os.close(reading)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.txt"])
def test_the_advice_for_another_format_converts_it_into_another_file(tmp_path, name):
    file = tmp_path / name
    file.write_text("userId,price\n1,2.5\n")
    with pytest.raises(WorkflowError, match="is not a parquet file") as error:
        Workflow(IDS).fit([file, file])
    command = re.search(r'python -c "(import polars; .*?\))"', str(error.value)).group(1)
    before = {*tmp_path.iterdir()}
    exec(command)  # noqa: S102 - of our own text
    (made,) = {*tmp_path.iterdir()} - before
    assert file.read_text() == "userId,price\n1,2.5\n"
    assert pl.read_parquet(made).to_dicts() == [{"userId": 1, "price": 2.5}]


def write_orc(frame, path):
    orc.write_table(frame.to_arrow(), path)


@pytest.mark.parametrize(
    "write", [pl.DataFrame.write_avro, pl.DataFrame.write_ipc, pl.DataFrame.write_ndjson, write_orc]
)
def test_the_advice_for_another_format_names_its_reader(tmp_path, write):
    file = tmp_path / "rows"
    write(pl.DataFrame({"userId": [1]}), file)
    with pytest.raises(WorkflowError, match="is not a parquet file") as error:
        Workflow(IDS).fit(file)
    exec(re.search(r'python -c "(import polars.*?; .*?\))"', str(error.value)).group(1))  # noqa: S102
    assert pl.read_parquet(tmp_path / "*.parquet").to_dicts() == [{"userId": 1}]


@pytest.mark.parametrize("message", SPOILT)
def test_a_lazy_transform_names_the_file_as_far_as_it_reads_it(two, message):
    """The pages are read in the user's own `collect`, where what Polars raises is theirs to see."""
    fitted = Workflow(IDS).fit(two)
    SPOILT[message](two / "b.parquet")
    if "row group" in message:
        lazy = fitted.transform(two)
        with pytest.raises((pl.exceptions.PolarsError, OSError)):
            lazy.collect()
    else:
        with pytest.raises(WorkflowError, match=re.escape(message)):
            fitted.transform(two)


VALUES_READ = {
    "whole floats": lambda file: pl.read_parquet(file).cast({"userId": pl.Float64}),
    "wider integers": lambda file: pl.read_parquet(file).cast({"userId": pl.UInt64}),
    "an assigned dtype": pl.read_parquet,
}


@pytest.mark.parametrize("change", VALUES_READ)
def test_damage_that_a_lazy_transform_meets_by_itself_is_named(two, change):
    fitted = Workflow(["userId"]).fit(two)
    for file in two.iterdir():
        VALUES_READ[change](file).write_parquet(file)
    if change == "an assigned dtype":
        fitted.output_dtypes["userId"] = "int8"
    damage_rows(two / "b.parquet")
    with pytest.raises(WorkflowError, match=r"b\.parquet is damaged in row group 0\."):
        fitted.transform(two)


def test_damage_in_floats_that_have_to_be_integers_is_named(two):
    for file in two.iterdir():
        pl.read_parquet(file).cast({"userId": pl.Float64}).write_parquet(file)
    damage_rows(two / "b.parquet")
    with pytest.raises(WorkflowError, match=r"b\.parquet is damaged in row group 0\."):
        Workflow(["userId"] >> ops.HashBucket(10)).fit(two)


def test_the_search_for_damage_reads_each_of_many_files_once(tmp_path, monkeypatch):
    """Each file was sliced from the table of all files, whose rows were counted again for it."""
    pl.DataFrame({"userId": [1, 2]}).write_parquet(
        tmp_path / "000.parquet", compression="uncompressed"
    )
    content = (tmp_path / "000.parquet").read_bytes()
    for number in range(1, 100):
        (tmp_path / f"{number:03}.parquet").write_bytes(content)
    damage_rows(tmp_path / "099.parquet")
    table = ParquetTable([ParquetFile.read(path) for path in sorted(tmp_path.iterdir())])
    counted = 0
    rows = ParquetFile.rows.fget

    def count(file):
        nonlocal counted
        counted += 1
        return rows(file)

    monkeypatch.setattr(ParquetFile, "rows", property(count))
    assert table.damage() == f"{tmp_path / '099.parquet'} is damaged in row group 0."
    assert counted < 5 * 100


@pytest.mark.parametrize(
    ("text", "reader"),
    [
        ("userId,price\n1,2.5\n", "scan_csv"),
        ('{"userId": 1, "price": 2.5}\n', "scan_ndjson"),
        ('[{"userId": 1, "price": 2.5}]', "read_json"),
    ],
)
def test_another_format_is_refused_with_a_remedy_for_python_and_one_for_a_shell(
    text, reader, tmp_path
):
    table = tmp_path / "orders.txt"
    table.write_text(text)
    with pytest.raises(WorkflowError, match=rf"polars\.{reader}\(path\)") as error:
        Workflow(IDS).fit(table)
    command = str(error.value).partition("in a shell: ")[2]
    subprocess.run(command.replace("python", sys.executable, 1), shell=True, check=True)  # noqa: S602 - our own text
    assert Workflow(IDS).fit_transform(tmp_path / "orders.parquet").collect().height == 1


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("year", [1, 1600, 2263, 9999])
def test_times_that_int96_holds_and_polars_does_not_are_refused(tmp_path, year, lists):
    def write(name, *years):
        times = [datetime(y, 5, 6, 7, 8, 9, 123456, UTC) for y in years]
        columns = {"at": [[time] for time in times] if lists else times, "n": years}
        spark = {"use_deprecated_int96_timestamps": True, "store_schema": False}
        pq.write_table(pa.table(columns), tmp_path / name, **spark)

    write("a.parquet", 1970, 2024)
    write("b.parquet", 1678, 2262 - 1)
    at = ["at"] >> ops.DatePart(["year"])
    workflow = Workflow(at).fit(tmp_path)
    years = workflow.transform(tmp_path).collect()["at_year"]
    assert (years.list.first() if lists else years).to_list() == [1970, 2024, 1678, 2261]
    write("b.parquet", 1969, year)
    text = f"from 1677 to 2262 in column 'at' of {tmp_path / 'b.parquet'}, since INT96"
    for use in (Workflow(at).fit, workflow.transform):
        with pytest.raises(WorkflowError, match=re.escape(text)):
            use(tmp_path)
    assert Workflow(["n"]).fit_transform(tmp_path).collect()["n"].to_list()[3] == year
    assert inspect_dataset(tmp_path).unreadable["at"].startswith("Expected times from 1677")


# Compressed: the lists n [1, 2], [] and [3] as "repeated int32 n", and the numbers i 7, 8 and 9.
REPEATED = (
    "c-mEvJqyA>42E-Oi6_oEdeEVR9tyQo!L5s<oy5UWD5YQrYi<4bJN^g%pgBRP!<!HCknm==*)Itwp(G;31ri1TAXx"
    "+XjbriaSxii55;69Nq8M^itdWB}ldi$Xt~izFoID^o^?XsgEPYXdMiZFGLO{|?5e&}=w9*HCuxcBSJ0l^TTa?C1<"
    "duE4Vit9#Gkff@Xe>BVzl27sIKeDz^7eW!Z;PU77J1uVp5dcxyXsPht96{jOB1mJXX4G;@hd*6QXsG"
)


def test_a_repeated_field_without_the_annotation_of_a_list_is_refused(tmp_path):
    file = tmp_path / "a.parquet"
    file.write_bytes(zlib.decompress(base64.b85decode(REPEATED)))
    text = r"a.parquet: Expected column 'n' as a list .* Received: a repeated field"
    with pytest.raises(WorkflowError, match=text):
        Workflow(["n"]).fit(file)
    with pytest.raises(LoaderError, match=text):
        KerasSequenceLoader(file, 2, cat_names=["n", "i"])
    assert Workflow(["i"]).fit_transform(file).collect()["i"].to_list() == [7, 8, 9]
    made = Workflow(["n"]).fit_transform(pq.read_table(file)).collect()
    assert made["n"].to_list() == [[1, 2], [], [3]]


class Keys(KmsClient):
    """Wraps keys in nothing."""

    def wrap_key(self, key_bytes, _):
        return base64.b64encode(key_bytes)


@pytest.mark.parametrize("reads_footer", [True, False])
def test_an_encrypted_file_is_told(two, reads_footer):
    settings = EncryptionConfiguration(
        footer_key="a", column_keys={"b": ["userId"]}, plaintext_footer=reads_footer
    )
    secret = CryptoFactory(lambda _: Keys()).file_encryption_properties(
        KmsConnectionConfig(), settings
    )
    table = pq.read_table(two / "a.parquet")
    pq.write_table(table, two / "b.parquet", encryption_properties=secret)
    text = "b.parquet cannot be read as parquet: it is encrypted. Decrypt it"
    with pytest.raises(WorkflowError, match=text):
        Workflow(IDS).fit(two)
    with pytest.raises(LoaderError, match=text):
        KerasSequenceLoader(two, 100, cont_names=["price"])


def test_a_link_to_nowhere_is_named(two):
    (two / "b.parquet").unlink()
    (two / "b.parquet").symlink_to(two / "nowhere")
    with pytest.raises(WorkflowError, match=r"b\.parquet cannot be read.*No such file"):
        Workflow(IDS).fit(two)


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (pl.Int32(), pl.Int64(), pl.Int64()),
        (pl.UInt32(), pl.Int32(), pl.Int64()),
        (pl.UInt64(), pl.Int8(), None),
        (pl.Float32(), pl.Float64(), pl.Float64()),
        (pl.Int32(), pl.Float32(), pl.Float64()),
        (pl.Int16(), pl.Float32(), pl.Float32()),
        (pl.Int64(), pl.Float64(), None),
        (pl.Boolean(), pl.Int8(), None),
        (pl.String(), pl.Int64(), None),
        (pl.String(), pl.Categorical(), pl.String()),
        (pl.Null(), pl.String(), pl.String()),
        (pl.Datetime("ms"), pl.Datetime("ns"), pl.Datetime("us")),
        (pl.Datetime("ms", "Asia/Tokyo"), pl.Datetime("ns", "Asia/Tokyo"), TOKYO),
        (TOKYO, pl.Datetime("us", "Europe/Rome"), pl.Datetime("us", "UTC")),
        (pl.Datetime("us"), TOKYO, None),
        (pl.Date(), pl.Datetime("us"), None),
        (pl.List(pl.Date), pl.List(TOKYO), None),
        (pl.Datetime("us"), pl.Int64(), None),
        (pl.List(pl.Int8), pl.List(pl.Int16), pl.List(pl.Int16)),
        (pl.List(pl.Null), pl.List(pl.String), pl.List(pl.String)),
        (pl.List(pl.Int8), pl.Int8(), None),
        (pl.Struct({"a": pl.Int8}), pl.Int8(), None),
    ],
    ids=str,
)
def test_the_type_of_two_types_loses_nothing(one, other, common):
    assert common_type(one, other) == common_type(other, one) == common


def test_files_with_narrower_types_are_one_table(tmp_path):
    parts = [
        {"id": pl.Series([1, 2], dtype=pl.Int32), "note": pl.Series([None, None], dtype=pl.Null)},
        {"note": ["x", None], "id": pl.Series([2, 2**40], dtype=pl.Int64)},
    ]
    for number, part in enumerate(parts):
        pl.DataFrame(part).write_parquet(tmp_path / f"{number}.parquet")
    whole = {"id": [1, 2, 2, 2**40], "note": [None, None, "x", None]}
    want = Workflow(["id", "note"] >> ops.Categorify()).fit(whole).transform(whole).collect()
    workflow = Workflow(["id", "note"] >> ops.Categorify()).fit(tmp_path)
    assert workflow.transform(tmp_path).collect().equals(want)
    files = workflow.transform_to_parquet(tmp_path / "*.parquet", tmp_path / "out")
    assert pl.read_parquet(files).equals(want)


def with_a_missing_id(folder, ids, lists=False):
    """Files as pandas writes them: some ids are floats, since one is missing, or nothing but nulls."""
    folder.mkdir()
    for number, own in enumerate(([3, 2**60, 3], [None], ids)):
        column = pl.Series([[each] for each in own] if lists else own)
        rows = {"a": range(len(own)), "id": column, "z": range(len(own))}
        pl.DataFrame(rows).write_parquet(folder / f"{number}.parquet")
    return folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.xdist_group("cluster")
@pytest.mark.parametrize("lists", [False, True])
def test_ids_that_are_floats_in_some_files_are_integers(tmp_path, client, lists):
    folder = with_a_missing_id(tmp_path / "raw", [3.0, None, float("nan"), float(-(2**53))], lists)
    ids = [3, 2**60, 3, None, 3, None, None, -(2**53)]
    whole = {"id": pl.Series([[each] for each in ids] if lists else ids)}
    want = Workflow(["id"] >> ops.Categorify()).fit(whole)
    workflow = Workflow(["id"] >> ops.Categorify()).fit(folder)
    made = want.transform(whole).collect()
    assert workflow.transform(folder).collect().equals(made)
    assert pl.read_parquet(workflow.transform_to_parquet(folder, tmp_path / "out")).equals(made)
    fresh = Workflow(["id"] >> ops.Categorify())
    assert fresh.fit_transform(folder).collect().equals(made)
    files = fresh.fit(folder, client=client).transform_to_parquet(
        folder, tmp_path / "spread", client=client
    )
    assert pl.read_parquet(files).equals(made)
    assert workflow.input_schema["id"].dtype == "int64"
    table = ParquetTable([*map(ParquetFile.read, sorted(folder.iterdir()))], one_scan=False)
    assert table.with_whole_numbers().scan().collect()["id"].equals(whole["id"])
    if not lists:
        made = Workflow("*" >> ops.FillMissing(7)).fit_transform(folder).collect()
        assert made.columns == ["a", "id", "z"]
        assert made["id"].to_list() == [3, 2**60, 3, 7, 3, 7, 7, -(2**53)]


def test_arrays_that_are_floats_in_some_files_are_lists_of_integers(tmp_path):
    """It was an error of Polars, whether the column was used or not."""
    for number, (own, dtype) in enumerate((([[1, 2]], pl.Int64), ([[3.0, None]], pl.Float64))):
        rows = {"ids": pl.Series(own, dtype=pl.Array(dtype, 2)), "price": [float(number)]}
        pl.DataFrame(rows).write_parquet(tmp_path / f"{number}.parquet")
    rows = Source.of(tmp_path).select().frame.collect()
    assert rows["ids"].to_list() == [[1, 2], [3, None]]
    assert rows["price"].to_list() == [0.0, 1.0]


def test_lists_in_one_file_and_numbers_in_another_leave_the_other_columns_alone(tmp_path):
    for number, ids in enumerate(([[1, 2]], [3.0])):
        pl.DataFrame({"ids": ids, "n": [number]}).write_parquet(tmp_path / f"{number}.parquet")
    assert Source.of(tmp_path).select(["n"]).frame.collect()["n"].to_list() == [0, 1]
    with pytest.raises(WorkflowError, match=r"'ids' is List\(Int64\) in .* and Float64 in "):
        Source.of(tmp_path).select(["ids"])


@pytest.mark.parametrize("value", [1.5, 2.0**53 + 2, float("inf")])
@pytest.mark.parametrize("lists", [False, True])
def test_floats_that_are_no_ids_are_an_error_that_names_their_file(tmp_path, value, lists):
    folder = with_a_missing_id(tmp_path / "raw", [3.0, value], lists)
    with pytest.raises(WorkflowError, match=r"'id' is .*Int64.* in .*Float64.* in .*2\.parquet"):
        Workflow(["id"] >> ops.Categorify()).fit(folder)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"userId": ["x"], "price": [0.5]},
            r"'userId' is Int64 in .*a\.parquet and String in .*b\.p",
        ),
        ({"price": [0.5]}, r"b\.parquet has no column 'userId', which .*a\.parquet has"),
    ],
)
def test_files_that_are_no_one_table_are_named_with_the_column(two, other, message, tmp_path):
    fitted = Workflow(IDS).fit(two)
    pl.DataFrame(other).write_parquet(two / "b.parquet")
    uses = (
        lambda: Workflow(IDS).fit(two),
        lambda: Workflow("*" >> ops.FillMissing()).fit(two),
        lambda: fitted.transform(two),
        lambda: fitted.transform_to_parquet(two, tmp_path / "out"),
        lambda: fitted.fit_transform(two),
    )
    for use in uses:
        with pytest.raises(WorkflowError, match=message):
            use()


def test_the_advice_for_a_column_that_a_file_lacks_makes_it_null_there(two):
    pl.DataFrame({"userId": [7, 9]}).write_parquet(two / "b.parquet")
    with pytest.raises(WorkflowError, match=r"polars\.concat\(map.*, how=\"diagonal\"\)\.$"):
        Workflow(["price"]).fit(two)
    rows = pl.concat(map(pl.scan_parquet, sorted(two.glob("*.parquet"))), how="diagonal")
    prices = Workflow(["price"]).fit_transform(rows).collect()["price"]
    assert prices.to_list() == [0.5] * 500 + [None] * 2


def test_columns_that_are_not_read_may_differ(two):
    pl.DataFrame({"userId": [1], "price": ["cheap"], "more": [1]}).write_parquet(two / "b.parquet")
    made = Workflow(IDS).fit_transform(two).collect()
    assert made.height == 501


def test_an_error_of_polars_comes_without_its_hints(ratings):
    lazy = ratings.lazy().with_columns(userId=pl.col("genres").cast(pl.List(pl.Int64)).list.first())
    with pytest.raises(WorkflowError, match="The data cannot be fitted to") as error:
        Workflow(IDS).fit(lazy)
    assert "\n" not in str(error.value)
    assert isinstance(error.value.__cause__, pl.exceptions.PolarsError)


def numbered(start, end, dtype):
    """Numbers as a type: themselves, seconds since 1970 or lists of one."""
    if isinstance(dtype, pl.List | pl.Array):
        return pl.Series("id", [[number] for number in range(start, end)], dtype)
    ids = pl.Series("id", range(start, end))
    return pl.from_epoch(ids).cast(dtype) if isinstance(dtype, pl.Datetime) else ids.cast(dtype)


def of_two_types(folder, files, one=pl.Int32, other=pl.Int64):
    """Files of ten rows, whose types change from each to the next."""
    folder.mkdir()
    for number in range(files):
        ids = numbered(number * 10, number * 10 + 10, (one, other)[number % 2])
        ids.to_frame().write_parquet(folder / f"{number:03}.parquet", row_group_size=4)
    return ParquetTable([ParquetFile.read(path) for path in sorted(folder.iterdir())])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pl.Int32, pl.Int64),
        (pl.UInt32, pl.Int64),
        (pl.Int16, pl.Float32),
        (pl.Float32, pl.Float64),
        (pl.Datetime("ms"), pl.Datetime("us")),
        (pl.Datetime("ms", "UTC"), TOKYO),
        (pl.List(pl.Int16), pl.List(pl.Int64)),
    ],
    ids=str,
)
def test_files_of_two_types_in_turns_are_one_scan_in_order(tmp_path, one, other):
    table = of_two_types(tmp_path / "turns", 40, one, other)
    assert table.scan().explain(optimized=False).count("SCAN") == 1
    ids = numbered(0, 400, table.schema["id"])
    assert table.scan().collect()["id"].equals(ids)
    for rows in (7, 90, 1000):
        assert pl.concat(table.pieces(rows)).collect()["id"].equals(ids)
        assert pl.concat(table.slices(rows)).collect()["id"].equals(ids)


@pytest.mark.parametrize("table", ["of cuDF", "of a type that no scan casts"])
def test_scans_that_follow_each_other_are_sliced_at_their_ends_alone(tmp_path, table):
    if table == "of cuDF":
        table = ParquetTable(of_two_types(tmp_path / "turns", 40).files, one_scan=False)
    else:
        kinds = pl.List(pl.Int16), pl.Array(pl.Int16, 1)
        table = of_two_types(tmp_path / "turns", 12, *kinds)
    files = len(table.files)
    (piece,) = table.pieces(1000)
    cut = table.slice(3, files * 10 - 5)
    for frame, slices in ((piece, 0), (cut, 2)):
        plan = frame.explain(optimized=False)
        assert plan.count("SCAN") == files
        assert plan.count("SLICE") == slices
    assert cut.collect().equals(table.scan().collect()[3:-2])
    assert table.scan().collect()["id"].equals(numbered(0, files * 10, table.schema["id"]))


def test_a_file_that_a_list_names_twice_counts_twice(two, tmp_path):
    pl.DataFrame({"price": [1.0, 3.0]}).write_parquet(tmp_path / "c.parquet")
    pl.DataFrame({"price": [11.0]}).write_parquet(tmp_path / "d.parquet")
    c, d = tmp_path / "c.parquet", tmp_path / "d.parquet"
    workflow = Workflow(["price"] >> ops.Normalize()).fit([c, d, d])
    # Mean 6.5 of 1, 3, 11, 11; the squares of the deviations add up to 83.
    expected = [(value - 6.5) / (83 / 3) ** 0.5 for value in (1.0, 3.0)]
    assert workflow.transform([c, str(c)]).collect()["price"].to_list() == pytest.approx(
        expected * 2
    )
    assert (
        Workflow(IDS).fit([two, two / "a.parquet"]).transform([two, two]).collect().height == 2000
    )


@pytest.mark.parametrize("above", ["shop=9", "price=x"])
def test_a_folder_above_the_data_names_no_column_of_a_file(tmp_path, above):
    """Polars takes the name of every folder of a path for a column, before that of the file."""
    root = tmp_path / above / "raw"
    for day, shops in (("1", [3, 4]), ("2", [5])):
        folder = root / f"day={day}"
        folder.mkdir(parents=True)
        rows = pl.DataFrame({"shop": shops, "price": [0.5] * len(shops)})
        rows.write_parquet(folder / "a.parquet")
    rows = Workflow("*" >> ops.FillMissing(0)).fit(root).transform(root).collect()
    assert rows["shop"].to_list() == [3, 4, 5]
    assert rows["price"].to_list() == [0.5] * 3
    assert rows["day"].to_list() == [1, 1, 2]


def test_a_name_of_two_columns_is_an_error_that_says_so(tmp_path):
    """As of a join in pyarrow; it was a damaged footer."""
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["userId", "userId"])
    pq.write_table(table, tmp_path / "0.parquet")
    text = r"0\.parquet cannot be read as parquet: .*'userId' has more than one .*Write each column under"
    with pytest.raises(WorkflowError, match=text):
        Workflow(IDS).fit(tmp_path)
    with pytest.raises(LoaderError, match=text):
        KerasSequenceLoader(tmp_path, batch_size=1, cat_names=["userId"])


def write_kinds(folder, count):
    """Files of two types in turns, and one whose strings are categories, which the metadata tells."""
    folder.mkdir()
    for n in range(count):
        rows = pl.DataFrame({"userId": [n], "kind": ["a"]})
        rows.cast({"userId": [pl.Int64, pl.Int32][n % 2]}).write_parquet(folder / f"{n:03}.parquet")
    rows = rows.cast({"kind": pl.Enum(["b", "a"])})
    rows.write_parquet(folder / f"{count:03}.parquet")
    return folder


def schemas_read(monkeypatch, work):
    """The number of footers whose schema Polars reads."""
    read, count = pl.read_parquet_schema, []
    with monkeypatch.context() as patch:
        patch.setattr(pl, "read_parquet_schema", lambda source: (count.append(1), read(source))[1])
        work()
    return len(count)


def test_the_schema_of_alike_footers_is_read_once(tmp_path, monkeypatch):
    few, many = (write_kinds(tmp_path / str(count), count) for count in (4, 40))

    def load(folder):
        return KerasSequenceLoader(folder, 8, cat_names=["userId", "kind"], device="cpu")

    for work in (lambda folder: Workflow(["userId", "kind"]).fit(folder), load):
        counts = [
            schemas_read(monkeypatch, functools.partial(work, folder)) for folder in (few, many)
        ]
        assert counts == [3, 3]


def test_footers_that_differ_in_their_metadata_have_schemas_of_their_own(tmp_path):
    table = ParquetTable(Source.of(write_kinds(tmp_path / "kinds", 2)).files.files)
    types = [file.schema["kind"] for file in table.files]
    assert types == [pl.String, pl.String, pl.Enum(["b", "a"])]
    assert [file.schema["userId"] for file in table.files] == [pl.Int64, pl.Int32, pl.Int64]


@pytest.mark.parametrize(("version", "refused"), [("1.0", ["id", "ids"]), ("2.6", [])])
def test_columns_that_cudf_would_read_as_another_type_are_refused_for_a_gpu(
    version, refused, tmp_path
):
    """pyarrow stores uint32 as int64 in version 1.0, which was its default before version 6.

    Polars 2 reads it as int64, as cuDF does.
    """
    path, high = tmp_path / "old.parquet", 2**32 - 1
    columns = {"id": pa.array([1, high], pa.uint32()), "ids": [[high], []], "id.x": [3, 4]}
    types = {"ids": pa.list_(pa.uint32())}
    table = pa.table({n: pa.array(v, types.get(n)) for n, v in columns.items()})
    pq.write_table(table, path, version=version)
    file = ParquetFile.read(path)
    are_alike = pl.read_parquet_schema(path)["id"] == pl.Int64
    assert sorted(ParquetTable([file], one_scan=False).conflicts) == ([] if are_alike else refused)
    assert ParquetTable([file]).scan().collect()["id"].to_list() == [1, high]
