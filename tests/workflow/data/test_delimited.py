"""CSV and TSV as data: the values are those of Python's csv module, and bad lines are named."""

import csv
import gzip
import re
import zipfile
from datetime import UTC, date, datetime

import pandas as pd
import polars as pl
import pytest

from workflow import Workflow, WorkflowError, inspect_dataset, ops
from workflow.data.sources import Source, as_lazy_frame

HEADER = "user,city,price,day,flag\n"
ROWS = [
    (7, "Ulm", 1.5, date(2024, 7, 1), True),
    (9, "a, b", None, date(2024, 7, 2), False),
    (None, 'say "hi"', -2.0, None, None),
    (2**40, None, 4.0, date(2023, 1, 1), True),
]


def write(path, rows=ROWS, names=("user", "city", "price", "day", "flag"), separator=","):
    """As Python writes it: null is an empty field."""
    opened = gzip.open if path.name.endswith(".gz") else open
    with opened(path, "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(names)
        for row in rows:
            writer.writerow([str(v).lower() if isinstance(v, bool) else v for v in row])
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "a.tsv.gz", "A.CSV"])
def test_values_are_those_that_were_written(tmp_path, name):
    path = write(tmp_path / name, separator="\t" if "tsv" in name else ",")
    made = as_lazy_frame(path).collect()
    assert made.rows() == ROWS
    assert made.dtypes == [pl.Int64, pl.String, pl.Float64, pl.Date, pl.Boolean]


def test_a_glob_is_the_files_in_order_whatever_the_order_of_their_columns(tmp_path):
    write(tmp_path / "1.csv", ROWS[:2])
    write(tmp_path / "2.csv", [r[::-1] for r in ROWS[2:]], ("flag", "day", "price", "city", "user"))
    write(tmp_path / ".3.csv")
    assert as_lazy_frame(tmp_path / "*.csv").collect().rows() == ROWS
    in_a_list = [tmp_path / "2.csv", str(tmp_path / "1.csv")]
    assert as_lazy_frame(in_a_list).collect()["city"].to_list() == [
        r[1] for r in ROWS[2:] + ROWS[:2]
    ]


def test_a_folder_and_a_pattern_without_the_ending_are_of_text_if_their_files_are(tmp_path):
    folder = tmp_path / "raw[1]"
    folder.mkdir()
    write(folder / "1.csv", ROWS[:2])
    write(folder / "2.csv.gz", ROWS[2:])
    assert as_lazy_frame(folder).collect().rows() == ROWS
    assert as_lazy_frame(tmp_path / "raw[[]1]" / "*.csv*").collect().rows() == ROWS
    (folder / "notes.txt").write_text("no data")
    with pytest.raises(WorkflowError, match=r"CSV and TSV files alone.*also: .*notes\.txt"):
        as_lazy_frame(folder)
    pl.DataFrame({"user": [1]}).write_parquet(folder / "a.parquet")
    assert as_lazy_frame(folder).collect().rows() == [(1,)]


def test_a_file_that_a_link_names_again_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("n\n1\n")
    (tmp_path / "z.csv").symlink_to("a.csv")
    for data in (tmp_path, tmp_path / "*.csv"):
        with pytest.raises(
            WorkflowError, match=r"a\.csv and .*z\.csv, which are one file by a link"
        ):
            Workflow(["n"]).fit(data)


@pytest.mark.parametrize("data", ["", "*.csv"])
def test_a_link_to_nowhere_is_named(tmp_path, data):
    """As of a store of large files that were not fetched: its rows were missing without a word."""
    (tmp_path / "a.csv").write_text("n\n1\n")
    (tmp_path / "b.csv").symlink_to("nowhere")
    with pytest.raises(WorkflowError, match=r"b\.csv cannot be read: No such file"):
        Workflow(["n"]).fit(tmp_path / data)


@pytest.mark.parametrize("data", ["closed", "*/*.csv"])
def test_a_folder_that_cannot_be_listed_is_no_empty_one(tmp_path, closed, data):
    for name in ("closed", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.csv").write_text("n\n1\n")
    closed(tmp_path / "closed")
    with pytest.raises(WorkflowError, match="closed cannot be listed: Permission denied"):
        Workflow(["n"]).fit(tmp_path / data)


def test_types_are_inferred_from_all_rows_and_all_files(tmp_path):
    late = tmp_path / "1.csv"
    late.write_text("n,x,code\n" + "1,1,\n" * 5000 + "2,0.5,\n")
    (tmp_path / "2.csv").write_text("n,x,code\n3,7,x1\n")
    made = as_lazy_frame(tmp_path / "*.csv").collect()
    assert made.dtypes == [pl.Int64, pl.Float64, pl.String]
    assert made["x"].sum() == 5000 + 0.5 + 7
    assert made["code"].null_count() == 5001


def test_times_are_times(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("at,zoned\n2024-01-02T03:04:05,2024-01-02T03:04:05+02:00\n")
    noon = datetime(2024, 1, 2, 3, 4, 5)  # noqa: DTZ001 - without a zone
    assert as_lazy_frame(path).collect().rows() == [
        (noon, datetime(2024, 1, 2, 1, 4, 5, tzinfo=UTC))
    ]


@pytest.mark.parametrize(
    "texts",
    [
        ["2024-01-02", "2024-01-02T03:04:05"],
        ["2024-13-01", "2024-01-02"],
        ["2024-01-02T25:00", ""],
        ["2024-01-02T03:04:05Z", "2024-01-02T03:04:05"],
        ["on 2024-01-02", "2024-01-02"],
        ["2024-1-2", "2024-01-02"],
        ["2024-01-02T03:04+25:00", "2024-01-02T03:04Z"],
        ["2024-01-02T03:04+01:60", "2024-01-02T03:04Z"],
    ],
)
def test_texts_that_are_not_all_times_of_one_kind_are_strings(tmp_path, texts):
    path = write(tmp_path / "a.csv", [(1, text) for text in texts], ("n", "at"))
    made = as_lazy_frame(path).collect()["at"]
    assert made.to_list() == [text or None for text in texts]


@pytest.mark.parametrize("text", ["2023-02-29", "1900-02-29 12:00", "2024-04-31T12:00:00Z"])
def test_a_day_that_no_calendar_has_is_named_with_its_line(tmp_path, text):
    rows = [(1, "2024-02-29" + text[10:]), (2, ""), (3, text)]
    path = write(tmp_path / "a.csv", rows, ("n", "at"))
    said = rf"in column 'at'. Received: '{text}' in line 4 of .*a\.csv, a day that no calendar has"
    inspection = inspect_dataset(path)
    assert re.search(said, inspection.unreadable["at"])
    assert [column.name for column in inspection.columns] == ["n"]
    assert Workflow(["n"]).fit(path).transform(path).collect()["n"].to_list() == [1, 2, 3]
    sound = write(tmp_path / "b.csv", rows[:2], ("n", "at"))
    for operator in (ops.DatePart(["month"]), ops.Categorify()):
        with pytest.raises(WorkflowError, match=said):
            Workflow(["at"] >> operator).fit(path)
        with pytest.raises(WorkflowError, match=said):
            Workflow(["at"] >> operator).fit(sound).transform(path)
    texts = pl.scan_csv(path, schema_overrides={"at": pl.String})
    assert as_lazy_frame(texts).collect()["at"].to_list() == [text or None for _, text in rows]


def test_lines_of_several_kinds_are_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfa,b\r\n1,"x\r\ny, z"\r\n2,"say ""no"" , more"\r\n3,q')
    made = as_lazy_frame(path).collect()
    assert made.rows() == [(1, "x\r\ny, z"), (2, 'say "no" , more'), (3, "q")]


def test_a_workflow_has_the_same_results_from_text_as_from_parquet(tmp_path):
    frame = pl.DataFrame(ROWS, ["user", "city", "price", "day", "flag"], orient="row")
    frame.write_parquet(tmp_path / "a.parquet")
    write(tmp_path / "a.csv")
    ids = ["user", "city"] >> ops.Categorify()
    price = ["price"] >> ops.FillMissing(0) >> ops.Normalize()
    day = ["day"] >> ops.DatePart(["weekday"])
    from_text, from_parquet = (Workflow(ids + price + day) for _ in range(2))
    from_text.fit(str(tmp_path / "*.csv"))
    from_parquet.fit(tmp_path / "a.parquet")
    expected = from_parquet.transform(frame).collect()
    assert from_text.input_schema == from_parquet.input_schema
    assert from_text.transform(tmp_path / "a.csv").collect().equals(expected)
    files = from_parquet.transform_to_parquet(tmp_path / "a.csv", tmp_path / "out")
    assert pl.read_parquet(files).equals(expected)
    again = Workflow(ids + price + day)
    files = again.fit_transform_to_parquet(tmp_path / "a.csv", tmp_path / "both")
    assert pl.read_parquet(files).equals(expected)


def test_text_is_read_in_the_types_of_the_fit(tmp_path):
    fitted = {"zip": ["007", "99"], "n": [1, 2], "x": [0.5, 1.5], "big": [2**64 - 1, 1]}
    data = pl.DataFrame(
        fitted, {"zip": pl.String, "n": pl.Int32, "x": pl.Float32, "big": pl.UInt64}
    )
    workflow = Workflow(
        (["zip", "n", "big"] >> ops.Categorify()) + (["x"] >> ops.LambdaOp(lambda x: x * 2))
    )
    workflow.fit(data)
    path = tmp_path / "a.csv"
    # Another reader would take 007 for 7, 2.0 for a float, 3 for an integer.
    path.write_text("x,zip,n,big,other\n3,007,2.0,18446744073709551615,q\n1,99,,1,\n")
    like = pl.DataFrame(
        {"zip": ["007", "99"], "n": [2, None], "x": [3.0, 1.0], "big": [2**64 - 1, 1]}, data.schema
    )
    assert workflow.transform(path).collect().equals(workflow.transform(like).collect())


def test_a_table_of_a_join_may_be_text(tmp_path):
    (tmp_path / "m.csv").write_text("movie,year\n1,1999\n2,2001\n")
    workflow = Workflow(["movie"] >> ops.JoinExternal(tmp_path / "m.csv", on="movie"))
    made = workflow.fit({"movie": [2, 1, 3]}).transform({"movie": [2, 1, 3]}).collect()
    assert made["year"].to_list() == [2001, 1999, None]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"header with the names of columns in .*a.csv. Received: none"),
        (b"a,a\n1,2\n", "header of different names.*'a', 'a'"),
        (b"a,\n1,2\n", "header of different names.*'a', ''"),
        (b"a;b\n1;2\n", r"names separated by ','.*Received: 'a;b'.*separator=';'"),
        (b"a,b\n1,2\n3\n4,5\n", r"2 fields in line 3 of .*a.csv.*Received: 1\."),
        (b"a,b\n1,2,3\n", "2 fields in line 2.*Received: 3"),
        (b'a,b\n"x\ny",2\n3\n', "2 fields in line 4.*Received: 1"),
        (b"a,b\n1,2\n\n3,4\n", "line 3.*Received: an empty line"),
        (b"a,b\n1,2\n3,\xff\n", "Line 3 of .*a.csv is not UTF-8"),
        (b'a,b\n1,"never closed\n', "Line 2 of .*a.csv cannot be read: unexpected end of data"),
        (b'a,b\n1,2\n"5"" TV,3\n', "Line 3 of .*a.csv cannot be read: .*Quotes within"),
        (b'a,b\n1,2\n3,5" TV\n4,PC\n', "Line 3 of .*a.csv .* '3,5\" TV'.*Quotes within"),
        (b'a,b\n1,"m\nn"\n3,5" TV\n', "Line 4 of .*a.csv .* '3,5\" TV'.*Quotes within"),
        (b'a,b\n5" TV,"m\nn"\n', "Line 2 of .*a.csv .*Quotes within"),
        (b'a,b\n1,"m,\n""n"\n"x" ,3\n', "Line 4 of .*a.csv .*Quotes within"),
        (b"a,b\r1,2\r3,4\r", "Line 1 of .*a.csv cannot be read: .*Lines end"),
        (b"a\r1\r2\r", "Line 1 of .*a.csv cannot be read: .*Lines end"),
        (b"a,b\r\n1,2\r\n3,4\r5,6\r\n", "Line 3 of .*a.csv cannot be read: .*Lines end"),
    ],
)
def test_bad_lines_are_named(tmp_path, content, message):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(WorkflowError, match=message):
        as_lazy_frame(path)


def test_names_with_quotes_are_those_that_were_written(tmp_path):
    names = ('say "hi"', "a, b", "two\nlines", '"', "user")
    path = write(tmp_path / "a.csv", [("007", 2, 3, 4, 5)], names)
    assert as_lazy_frame(path).collect().to_dict(as_series=False) == {
        'say "hi"': [7],
        "a, b": [2],
        "two\nlines": [3],
        '"': [4],
        "user": [5],
    }
    workflow = Workflow(['say "hi"', "user"] >> ops.Categorify())
    workflow.fit({'say "hi"': ["007", "7"], "user": [4, 5]})
    assert workflow.transform(path).collect().rows() == [(3, 4)]


def test_integers_beyond_int64_are_uint64(tmp_path):
    (tmp_path / "1.csv").write_text("user,n\n18446744073709551615,1\n7,2\n")
    (tmp_path / "2.csv").write_text("user,n\n7,\n,3\n")
    workflow = Workflow(["user"] >> ops.Categorify()).fit(tmp_path / "*.csv")
    assert str(workflow.input_schema) == "Schema(user: uint64?)"
    assert workflow.transform(tmp_path / "1.csv").collect()["user"].to_list() == [4, 3]
    values = workflow.reverse_mapping("user")["value"].drop_nulls().to_list()
    assert values == [7, 2**64 - 1]


@pytest.mark.parametrize("other", ["-1", str(2**64)])
def test_integers_that_no_type_holds_are_refused(tmp_path, other):
    (tmp_path / "a.csv").write_text(f"user,n\n{2**63},1\n{other},2\n")
    assert as_lazy_frame(tmp_path / "a.csv").select("n").collect()["n"].to_list() == [1, 2]
    for columns in (["user"] >> ops.Categorify(), ["user"]):
        with pytest.raises(
            WorkflowError, match=r"column 'user'.*Int128\. .*scan_csv\(path, schema_over"
        ):
            Workflow(columns).fit(tmp_path / "a.csv")


def test_a_table_of_pandas_with_its_index_says_what_to_pass(tmp_path):
    frame = pd.DataFrame({"n": [7, 9]})
    frame.to_csv(tmp_path / "a.csv")
    with pytest.raises(
        WorkflowError, match=r"'', 'n'\. R, and pandas .* pass polars\.scan_csv\(path\)\.drop"
    ):
        as_lazy_frame(tmp_path / "a.csv")
    passed = pl.scan_csv(tmp_path / "a.csv").drop("")
    assert as_lazy_frame(passed).collect()["n"].to_list() == frame["n"].to_list()


@pytest.mark.parametrize("lost", [1, 4, 8, 20])
def test_a_truncated_archive_says_so(tmp_path, lost):
    whole = gzip.compress(b"a,b\n" + b"".join(b"%d,%d\n" % (n, n * n) for n in range(9000)))
    (tmp_path / "a.csv.gz").write_bytes(whole[:-lost])
    with pytest.raises(WorkflowError, match=r"a\.csv\.gz ends in the middle, .* Copy it again\."):
        as_lazy_frame(tmp_path / "a.csv.gz").collect()


def test_a_truncated_archive_and_one_that_is_none(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 9000)[:-20])
    with pytest.raises(WorkflowError, match=r"a\.csv\.gz ends in the middle"):
        as_lazy_frame(path)
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(WorkflowError, match=r"a\.csv\.gz cannot be read: Not a gzipped file"):
        as_lazy_frame(path)


def test_columns_that_differ_between_files_are_conflicts_of_their_readers_alone(tmp_path):
    (tmp_path / "1.csv").write_text("a,b,c\n1,2,3\n")
    (tmp_path / "2.csv").write_text("a,b\n1,x\n")
    source = Source.of(tmp_path / "*.csv")
    assert source.select(["a"]).frame.collect()["a"].to_list() == [1, 1]
    with pytest.raises(WorkflowError, match=r"'b' is Int64 in .*1\.csv and String in .*2\.csv"):
        Workflow(["b"] >> ops.Categorify()).fit(tmp_path / "*.csv")
    with pytest.raises(WorkflowError, match=r"2\.csv has no column 'c' in its header"):
        Workflow(["c"] >> ops.Categorify()).fit(tmp_path / "*.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n,x\n1,2\nmany,3\n", "int64.* in column 'n'.*Received: 'many' in line 3 of .*a.csv"),
        ("n,x\n1,2\n2,NA\n", "float64.* in column 'x'.*Received: 'NA' in line 3"),
        ("n\n1\n", "No column 'x' in the data. It has: n"),
        ("n,x\n1.5,2\n", "n"),
    ],
)
def test_values_that_are_not_those_of_the_fit(tmp_path, text, message):
    columns = (["n"] >> ops.Categorify()) + (["x"] >> ops.Normalize())
    workflow = Workflow(columns).fit({"n": [1, 2], "x": [0.5, 2.5]})
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(WorkflowError, match=message):
        workflow.transform_to_parquet(tmp_path / "a.csv", tmp_path / "out")


@pytest.mark.parametrize("word", ["NA", "n/a", "NULL", "-", "\\N", "?"])
def test_a_word_for_null_among_numbers_is_named_at_fit(tmp_path, word):
    (tmp_path / "a.csv").write_text(f"n,x\n1,2.5\n2,{word}\n3,-1e3\n4,\n")
    (tmp_path / "b.csv").write_text("n,x\n1,2\n")
    message = (
        rf"Received: numbers, and {re.escape(repr(word))} in line 3 of .*a\.csv.*null_values=\["
    )
    for path in ("a.csv", "*.csv"):
        with pytest.raises(WorkflowError, match=message):
            Workflow(["x"] >> ops.Normalize()).fit(tmp_path / path)
    # The column is not read here.
    assert Workflow(["n"] >> ops.Categorify()).fit(tmp_path / "a.csv").output_schema.names == ["n"]
    frame = pl.scan_csv(tmp_path / "a.csv", null_values=[word])
    made = Workflow(["x"] >> ops.FillMissing(0.0)).fit(frame).transform(frame).collect()
    assert made["x"].to_list() == [2.5, 0.0, -1000.0, 0.0]


@pytest.mark.parametrize(
    ("values", "word"),
    [("2024-01-02", "NA"), ("2024-01-02T03:04", "null"), ("2024-01-02 03:04Z", "-")],
)
def test_a_word_for_null_among_dates_is_named_at_fit(tmp_path, values, word):
    (tmp_path / "a.csv").write_text(f"at\n{values}\n{word}\n")
    workflow = Workflow(["at"] >> ops.DatePart(["month"]))
    message = rf"Received: (dates|times), and '{word}' in line 3 of .*--null-value {word} to the"
    with pytest.raises(WorkflowError, match=message) as error:
        workflow.fit(tmp_path / "a.csv")
    # The remedy works.
    advice = re.search(r"polars\.scan_csv\(path, (null_values.*?)\);", str(error.value)).group(1)
    frame = eval(f"pl.scan_csv({str(tmp_path / 'a.csv')!r}, {advice})")  # noqa: S307 - of our own text
    assert workflow.fit(frame).transform(frame).collect().rows() == [(1,), (None,)]


@pytest.mark.parametrize("fitted", [True, False], ids=["fitted", "new"])
def test_the_advice_for_a_word_for_null_reads_fractions_behind_many_whole_numbers(tmp_path, fitted):
    path = tmp_path / "a.csv"
    path.write_text("x\nNA\n" + "0\n" * 200 + "0.5\n")
    workflow = Workflow(["x"] >> ops.FillMissing(0.0))
    if fitted:
        workflow.fit({"x": [0.5]})
    with pytest.raises(WorkflowError) as error:
        workflow.transform(path).collect() if fitted else workflow.fit(path)
    advice = re.search(r"polars\.scan_csv\(path, (null_values.*?)\)[;.]", str(error.value)).group(1)
    frame = eval(f"pl.scan_csv(path, {advice})", {"pl": pl, "path": path, "word": "NA"})  # noqa: S307 - of our own text
    assert workflow.fit(frame).transform(frame).collect()["x"].to_list()[-1] == 0.5


def test_a_frame_whose_types_were_inferred_from_too_few_rows_says_how_to_read_it(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x\n" + "0\n" * 200 + "0.5\n")
    with pytest.raises(WorkflowError, match=r"at column 'x'.*infer_schema_length=None"):
        Workflow(["x"] >> ops.Normalize()).fit(pl.scan_csv(path))


def test_the_value_that_is_no_date_is_named(tmp_path):
    workflow = Workflow(["at"] >> ops.DatePart(["month"])).fit({"at": [date(2024, 1, 2)]})
    (tmp_path / "a.csv").write_text("at\n2024-01-02\n02.01.2024\n")
    with pytest.raises(WorkflowError, match=r"'02\.01\.2024' in line 3"):
        workflow.transform(tmp_path / "a.csv").collect()


@pytest.mark.parametrize("values", [[1, 2], ["a", "b"], [True, False], [date(2024, 1, 2)]])
def test_a_column_without_values_has_the_type_of_the_fit(tmp_path, values):
    workflow = Workflow(["a", "b"] >> ops.Categorify()).fit({"a": values, "b": values})
    (tmp_path / "a.csv").write_text("b,a\n,\n,\n")
    assert workflow.transform(tmp_path / "a.csv").collect().rows() == [(1, 1), (1, 1)]


def test_integers_with_leading_zeros_stay_text_beside_columns_of_a_fit(tmp_path):
    (tmp_path / "a.csv").write_text("n,zip,count,signed\n01,01,1,-05\n2,99,0,3\n")
    known = Workflow(["n"] >> ops.Categorify()).fit({"n": [1, 2]}).input_schema
    made = Source.of(tmp_path / "a.csv", known=known).frame.collect()
    assert made.rows() == [(1, "01", 1, "-05"), (2, "99", 0, "3")]
    # The same column of another file need not have them.
    (tmp_path / "b.csv").write_text("n,zip,count,signed\n3,7,1.5,1\n")
    made = Source.of(tmp_path / "*.csv", known=known).frame.collect()
    assert made["zip"].to_list() == ["01", "99", "7"]
    assert made["count"].to_list() == [1.0, 0.0, 1.5]


def test_lists_need_another_format(tmp_path):
    workflow = Workflow(["tags"] >> ops.Categorify()).fit({"tags": [["a"], ["b", "c"]]})
    (tmp_path / "a.csv").write_text('tags\n"[a, b]"\n')
    with pytest.raises(WorkflowError, match=r"lists, which CSV and TSV cannot hold.*as parquet"):
        workflow.transform(tmp_path / "a.csv")


@pytest.mark.parametrize("values", ["NA,DE,FR", "1,NA,DE", "NA,NA,NA"])
def test_a_word_among_texts_is_text(tmp_path, values):
    (tmp_path / "a.csv").write_text("\n".join(["country", *values.split(",")]))
    workflow = Workflow(["country"] >> ops.Categorify()).fit(tmp_path / "a.csv")
    assert "NA" in workflow.reverse_mapping("country")["value"].to_list()


def test_a_code_that_was_fitted_as_text_stays_text(tmp_path):
    workflow = Workflow(["code"] >> ops.Categorify()).fit({"code": ["1", "NA", "2"]})
    (tmp_path / "a.csv").write_text("code\n1\nNA\n2\n")
    made = workflow.transform(tmp_path / "a.csv").collect()
    assert made["code"].n_unique() == 3


def test_a_file_that_changes_meanwhile(tmp_path):
    path = write(tmp_path / "a.csv")
    source = Source.of(path)
    write(path, ROWS[:1])
    with (
        pytest.raises(WorkflowError, match=r"a\.csv as it was when the data was listed"),
        source.errors("The data cannot be read"),
    ):
        source.frame.collect()


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ("nowhere*.csv", r"No file matches '.*nowhere\*.csv'"),
        (["a.csv", "a.parquet"], "files of one kind.*a.csv and .*a.parquet"),
        ("s3://bucket/a.csv", "local CSV and TSV files. Received: s3://bucket/a.csv"),
    ],
)
def test_paths_that_cannot_be_read(tmp_path, paths, message):
    write(tmp_path / "a.csv")
    for_all = [paths] if isinstance(paths, str) else paths
    given = [path if "://" in path else str(tmp_path / path) for path in for_all]
    with pytest.raises(WorkflowError, match=message):
        Source.of(given)


@pytest.mark.parametrize("rows", [1, 9000])  # the header is read with the first lines
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_another_encoding_is_told_with_its_remedy(tmp_path, rows, name):
    path = tmp_path / name
    content = b"a,b\n" + b"1,x\n" * rows + "2,é\n".encode("latin1")
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(WorkflowError, match=f"Line {rows + 2} .* is not UTF-8") as error:
        as_lazy_frame(path)
    assert 'encoding="utf8-lossy"' in str(error.value)
    assert "null_values" not in str(error.value)
    assert pl.read_csv(path, encoding="utf8-lossy")["b"][-1] == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("name", ["a.csv.zip", "a.csv", "a.csv.gz", "a.parquet"])
def test_a_zip_archive_has_to_be_unpacked(tmp_path, name):
    path = tmp_path / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", "a,b\n1,2\n")
    with pytest.raises(WorkflowError, match=r"is a zip archive\. Unpack it first: unzip .*a"):
        as_lazy_frame(path)
