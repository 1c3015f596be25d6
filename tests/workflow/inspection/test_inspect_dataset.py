"""Facts about columns, compared with numpy, pandas and scikit-learn's or a paper's formulas."""

import datetime as dt
import json
import re
import subprocess
import sys
from dataclasses import replace
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest

from workflow import (
    Inspection,
    Workflow,
    WorkflowError,
    WorkflowFormatError,
    generate_dataset,
    inspect_dataset,
    ops,
)
from workflow.expressions.polars.series import to_column, to_series
from workflow.inspection.suggestion import suggestion
from workflow.wire.format import decode_request, encode_request, wire_inputs

ROWS = 6_000


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(3)
    amounts = random.lognormal(0, 2, ROWS)
    amounts[:50] = np.nan
    amounts[50:53] = np.inf
    lengths = random.integers(0, 5, ROWS)
    tags = [[f"t{n}" for n in random.zipf(1.8, length) % 40] for length in lengths]
    return pl.DataFrame(
        {
            "userId": pl.Series(random.zipf(1.3, ROWS) % 700).set(
                pl.Series(np.arange(ROWS) % 10 == 0), None
            ),
            "amount": amounts,
            "city": pl.Series(
                random.choice(["Ulm", "Köln", "", "日本"], ROWS), dtype=pl.Categorical
            ),
            "on": random.random(ROWS) < 0.25,
            "tags": pl.Series(tags).set(pl.Series(np.arange(ROWS) % 20 == 0), None),
            "day": [dt.date(2024, 2, 28) + dt.timedelta(n % 9) for n in range(ROWS)],
            "wide": pl.Series([2**64 - 1, 5] * (ROWS // 2), dtype=pl.UInt64),
        }
    )


@pytest.fixture(scope="module")
def files(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    for n in range(4):
        rows[n * 1_500 : (n + 1) * 1_500].write_parquet(folder / f"{n}.parquet", row_group_size=400)
    return folder


@pytest.fixture(scope="module")
def inspection(files):
    return inspect_dataset(files)


def test_counts_are_those_of_pandas(inspection, rows):
    user = rows["userId"].to_pandas().dropna().astype(int)
    counts = user.value_counts()
    found = inspection["userId"]
    assert (inspection.rows, found.nulls, found.count) == (ROWS, ROWS // 10, len(user))
    assert (found.distinct, found.once) == (len(counts), (counts == 1).sum())
    expected = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:20]
    assert [tuple(pair) for pair in found.common] == expected
    assert found.commonest == counts.max() / len(user)
    shares = counts / len(user)
    assert found.entropy == pytest.approx(-(shares * np.log2(shares)).sum())
    cumulative = counts.cumsum().to_numpy() / len(user)
    assert found.shares == pytest.approx([cumulative[rank - 1] for rank in found.ranks])
    assert found.ranks[-1] == found.distinct


def test_moments_and_quantiles_are_those_of_numpy(inspection, rows):
    amounts = rows["amount"].to_numpy()
    finite = amounts[np.isfinite(amounts)]
    found = inspection["amount"]
    assert (found.nans, found.infinities, found.count) == (50, 3, ROWS - 50)
    assert (found.minimum, found.maximum) == (finite.min(), finite.max())
    assert found.mean == pytest.approx(finite.mean())
    assert found.std == pytest.approx(finite.std(ddof=1))
    quantiles = [np.quantile(finite, q / 100, method="inverted_cdf") for q in range(101)]
    assert found.quantiles == quantiles
    user = rows["userId"].drop_nulls().unique().to_numpy()
    spread = [np.quantile(user, q / 100, method="inverted_cdf") for q in range(101)]
    assert inspection["userId"].spread == spread


def test_lists_texts_times_and_booleans(inspection, rows):
    tags = rows["tags"].to_list()
    lengths = [len(row) for row in tags if row is not None]
    elements = pd.Series([tag for row in tags if row is not None for tag in row])
    found = inspection["tags"]
    assert (found.type, found.nulls, found.count) == ("list[string]", ROWS // 20, len(elements))
    assert found.null_elements == 0  # Empty lists have none.
    assert found.distinct == elements.nunique()
    assert found.common[0] == [elements.value_counts().index[0], elements.value_counts().iloc[0]]
    assert found.lengths == [
        np.quantile(lengths, q / 100, method="inverted_cdf") for q in range(101)
    ]
    city = inspection["city"]
    assert (city.dtype, city.distinct, city.minimum, city.maximum) == ("string", 4, 0, 4)
    assert dict(inspection["on"].common)[True] == rows["on"].sum()
    day = inspection["day"]
    assert (day.type, day.readable(day.minimum), day.readable(day.maximum)) == (
        "date",
        "2024-02-28",
        "2024-03-07",
    )
    assert inspection["wide"].maximum == 2**64 - 1


def test_the_middle_of_lengths_and_of_values_are_told_apart():
    text = " ".join(str(inspect_dataset({"paid": [[1.5], [7.5, 2.5, 9.5], [3.5]]})).split())
    assert "lists of 1 to 3 values, median length 1, median 3.5, 99% up to 9.5" in text


def test_the_exponent_of_two_values_is_exact():
    """A share of 3/4 for the first of two ranks: 1 / (1 + 2**-s) = 3/4."""
    assert inspect_dataset({"a": [5, 7, 7, 7]})["a"].zipf == pytest.approx(np.log2(3), abs=1e-4)


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.5])
def test_the_exponent_of_zipf_is_that_of_the_source(exponent):
    weights = np.arange(1, 201.0) ** -exponent
    counts = np.round(weights / weights.sum() * 500_000).astype(int)
    ids = np.repeat(np.random.default_rng(0).permutation(200), counts)
    assert inspect_dataset({"id": ids})["id"].zipf == pytest.approx(exponent, abs=0.01)


def test_many_ranks_have_the_exponent_too():
    counts = np.round(3_000_000 * np.arange(1, 60_001.0) ** -0.8 / 400).astype(int) + 1
    from workflow.inspection.frequencies import zipf_exponent

    logs, ranks = counts / counts.sum() @ np.log(np.arange(1, 60_001)), np.arange(1, 60_001)
    grid = np.linspace(0.6, 0.9, 301)
    expected = [(ranks**-s * np.log(ranks)).sum() / (ranks**-s).sum() for s in grid]
    assert zipf_exponent(counts) == pytest.approx(
        grid[np.argmin(np.abs(np.array(expected) - logs))], abs=0.002
    )


def test_more_different_values_than_are_counted_are_estimated():
    random = np.random.default_rng(1)
    ids = np.where(random.random(200_000) < 0.05, 7, random.integers(0, 60_000, 200_000))
    exact = inspect_dataset({"id": ids})["id"]
    found = inspect_dataset({"id": ids}, most_values=5_000)["id"]
    assert found.is_estimated
    assert not exact.is_estimated
    assert found.distinct == pytest.approx(exact.distinct, rel=0.05)
    assert found.entropy == pytest.approx(exact.entropy, rel=0.05)
    assert found.commonest == pytest.approx(exact.commonest, rel=0.1)
    assert found.common[0][0] == 7
    assert (found.mean, found.maximum) == (pytest.approx(exact.mean), exact.maximum)
    assert "~" in str(inspect_dataset({"id": ids}, most_values=5_000))


def test_ids_that_never_repeat_are_estimated_to_occur_once_each():
    """The counts of a sample, multiplied, made each of them one of many equal ones."""
    ids = np.random.default_rng(1).permutation(600_000) * 7
    found = inspect_dataset({"id": ids}, most_values=50_000)["id"]
    assert found.is_estimated
    assert (found.count, found.distinct, found.once) == (600_000,) * 3
    assert [count for _, count in found.common] == [1] * 20
    assert found.commonest == 1 / 600_000
    assert found.is_unique
    repeated = inspect_dataset({"id": [*ids, *ids[:60_000]]}, most_values=50_000)["id"]
    assert not repeated.is_unique
    assert repeated.once == pytest.approx(540_000, rel=0.02)


def test_the_most_frequent_of_many_values_are_counted_in_all_rows():
    ids = np.random.default_rng(2).zipf(1.3, 1_000_000)
    values, counts = np.unique(ids, return_counts=True)
    exact = dict(zip(values.tolist(), counts.tolist(), strict=True))
    found = inspect_dataset({"id": ids}, most_values=5_000)["id"]
    assert found.is_estimated
    assert found.common == [[value, exact[value]] for value, _ in found.common]
    assert found.commonest == counts.max() / 1_000_000


@pytest.mark.parametrize(
    "values", [range(6), [0.5, None, float("nan"), 2.0], ["a", "b"], [[1, 2], [3]]]
)
def test_few_values_are_estimated_too(values):
    """A hash may choose none of so few."""
    for most in (1, 2):
        found = inspect_dataset(pl.DataFrame({"id": values}, strict=False), most_values=most)
        assert 1 <= found["id"].distinct <= found["id"].count
        assert found["id"].once <= found["id"].distinct == found["id"].ranks[-1]
        assert found["id"].shares[-1] == 1


def test_frames_csv_and_files_have_the_same_facts(rows, inspection, tmp_path):
    for column in inspect_dataset(rows).columns:
        assert same(column, inspection[column.name])
    plain = rows.drop("tags").with_columns(pl.col("city").cast(pl.String))
    plain = plain.with_columns(city=pl.lit("x") + pl.col("city"))
    plain.write_csv(tmp_path / "rows.csv")
    for name in ("userId", "city", "on", "day"):
        assert same(inspect_dataset(tmp_path / "rows.csv")[name], inspect_dataset(plain)[name])


def same(one, other):
    """Equality, except for the last digits of sums in another order."""
    return pytest.approx(one.mean) == other.mean and (
        replace(one, mean=None, std=None) == replace(other, mean=None, std=None)
    )


def test_memory_does_not_grow_with_the_rows(tmp_path):
    frame = pl.DataFrame({"id": pl.arange(1_000_000, eager=True) % 1_000})
    frame = frame.with_columns(x=pl.col("id") * 0.5)
    for n in range(12):
        frame.write_parquet(tmp_path / f"{n}.parquet", row_group_size=100_000)
    program = (
        "import sys; from benchmarks.measure import memory_gb, peak_memory\n"
        "from workflow import inspect_dataset\n"
        "with peak_memory() as one: inspect_dataset(sys.argv[1] + '/0.parquet')\n"
        "with peak_memory() as all: assert inspect_dataset(sys.argv[1])['id'].distinct == 1000\n"
        "print((all[0] - one[0]) * 1024)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    # The columns of all files have 190 MB.
    assert float(result.stdout) < 100


def test_many_columns_of_few_rows_are_read_together():
    read = []

    def seen(frame):
        read.append(frame.width)
        return frame

    wide = pl.DataFrame({f"x{n}": [n, None, n + 1] for n in range(60)})
    wide = wide.with_columns(pl.format("t{}", pl.all()).name.prefix("t"))
    wide = wide.with_columns(pl.concat_list("x0", "x1").alias("l"))
    inspection = inspect_dataset(wide.lazy().map_batches(seen, schema=wide.schema))
    assert len(read) < 5
    assert inspection.rows == 3
    assert {column.name: column.nulls for column in inspection.columns} == {
        name: wide[name].null_count() for name in wide.columns
    }
    assert inspection["x7"].common == [[7, 1], [8, 1]]


def test_it_is_saved_and_loaded(inspection, tmp_path):
    inspection.save(tmp_path / "facts.json")
    assert Inspection.load(tmp_path / "facts.json") == inspection


@pytest.mark.long
def test_many_columns_and_long_texts_are_saved_and_loaded(tmp_path):
    frame = pl.DataFrame({f"x{n}": [n, 2 * n, n + 9] for n in range(2_000)})
    frame = frame.with_columns(pl.lit("long" * 50_000 + str(n)).alias(f"t{n}") for n in range(9))
    inspection = inspect_dataset(frame)
    inspection.save(tmp_path / "facts.json")
    assert Inspection.load(tmp_path / "facts.json") == inspection


def test_what_could_not_be_loaded_is_not_saved(tmp_path, monkeypatch):
    facts = inspect_dataset({"a": [1, 2]})
    facts.save(tmp_path / "facts.json")
    monkeypatch.setattr("workflow.inspection.inspection.MOST_BYTES", 1_000)
    with pytest.raises(WorkflowError, match=r"at most 1,000 bytes.*Received: .*top=0"):
        facts.save(tmp_path / "other.json")
    with pytest.raises(WorkflowFormatError, match=r"at most 1,000 bytes.*Received"):
        Inspection.load(tmp_path / "facts.json")
    assert [path.name for path in tmp_path.iterdir()] == ["facts.json"]


@pytest.mark.parametrize("values", [[1.7e308, 1.7e308, 3.0], [1.7e308, -1.7e308], [1e200, 3.0]])
def test_numbers_near_the_ends_of_float64_are_saved_and_loaded(values, tmp_path):
    inspection = inspect_dataset({"price": values})
    inspection.save(tmp_path / "a.json")
    assert Inspection.load(tmp_path / "a.json") == inspection
    column = inspection["price"]
    assert (column.minimum, column.maximum, column.std) == (min(values), max(values), None)
    with np.errstate(over="ignore"):
        mean = np.mean(values)
    assert column.mean == (mean if np.isfinite(mean) else None)
    made = pl.read_parquet(generate_dataset(inspection, 50, tmp_path / "a.parquet"))["price"]
    assert made.is_between(min(values), max(values)).all()


def test_top_0_keeps_no_texts_of_the_data(rows, tmp_path):
    inspect_dataset(rows, top=0).save(tmp_path / "facts.json")
    assert "Ulm" not in (tmp_path / "facts.json").read_text()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d | {"extra": 1}, "no object of format, rows, columns, unreadable"),
        (lambda d: d | {"rows": -1}, "rows -1"),
        (
            lambda d: d | {"format": 1},
            "format 1; this version reads format 2. Inspect the data again",
        ),
        (lambda d: d | {"columns": [{"name": "x"}]}, "a column without exactly name, dtype"),
        (lambda d: d | {"columns": d["columns"] * 2}, "a column occurs twice"),
        (lambda d: edited(d, distinct="5"), "distinct='5' in column 'userId'"),
        (lambda d: edited(d, nulls=-5), "nulls below 0 in column 'userId'"),
        (lambda d: edited(d, dtype="int7"), "dtype 'int7'"),
        (lambda d: edited(d, distinct=5), "ranks or shares that do not ascend"),
        (lambda d: edited(d, quantiles=[1, 2]), "not 101 percentiles"),
        (lambda d: edited(d, quantiles=[]), "no quantiles in column 'userId'"),
        (lambda d: edited(d, common=[["a", 1]]), "common values that are not pairs of int64"),
        (lambda d: edited(d, common=[[1, 0]]), "common values that are not pairs of int64"),
        (lambda d: edited(d, formats=['%Y")']), "formats ['%Y\")']"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(inspection, tmp_path, change, reason):
    inspection.save(tmp_path / "facts.json")
    document = change(json.loads((tmp_path / "facts.json").read_text()))
    (tmp_path / "facts.json").write_text(json.dumps(document))
    with pytest.raises(WorkflowFormatError, match=re.escape(reason)):
        Inspection.load(tmp_path / "facts.json")


def edited(document, **facts):
    return document | {"columns": [document["columns"][0] | facts]}


def test_columns_of_other_types_are_named_and_the_rest_is_inspected():
    frame = pl.DataFrame({"id": [1, 2], "record": [{"a": 1}] * 2, "nested": [[[1]], [[2]]]})
    found = inspect_dataset(frame)
    assert [column.name for column in found.columns] == ["id"]
    assert set(found.unreadable) == {"record", "nested"}
    assert "not readable" in str(found)
    assert "struct" in found.to_html().lower()


@pytest.mark.parametrize("kind", [dict, pd.DataFrame])
def test_data_without_a_readable_column_is_refused(kind):
    with pytest.raises(
        WorkflowError, match=r"Received: none\. Column 'a'.*cannot be read.*one type"
    ):
        inspect_dataset(kind({"a": [1, "x"]}))


def test_no_rows_and_no_values():
    found = inspect_dataset(
        {"id": pl.Series([], dtype=pl.Int64), "x": pl.Series([], dtype=pl.Float32)}
    )
    assert (found.rows, found["id"].distinct, found["x"].mean) == (0, 0, None)
    assert "no values" in str(found)
    assert inspect_dataset({"x": pl.Series([None, None], dtype=pl.String)})["x"].nulls == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": ["usrId"]}, "Expected columns among userId, .*Received: 'usrId'"),
        ({"top": -1}, "Expected top as a whole number from 0. Received: -1"),
        ({"most_values": 0}, "Expected most_values as a whole number from 1. Received: 0"),
    ],
)
def test_wrong_arguments(rows, arguments, message):
    with pytest.raises(WorkflowError, match=message):
        inspect_dataset(rows, **arguments)


def test_a_line_has_80_cells_at_most(rows):
    long = rows.rename({"userId": "番号" * 30, "amount": "a" * 79 + "\n" + "b" * 40})
    lines = str(inspect_dataset(long)).splitlines()
    from workflow.picture.diagram import width_of

    assert max(map(width_of, lines)) <= 80
    assert any("番号" * 10 in line for line in lines)


def test_html_shows_each_column_and_no_markup_of_the_data():
    page = inspect_dataset({"<script>": ["<b>", "<b>", "x"]}).to_html()
    assert "<script>" not in page
    assert "<b>'" not in page
    assert "&lt;b&gt;" in page
    assert "Categorify" in page


@pytest.mark.parametrize(
    ("values", "operators"),
    [
        ({"userId": list(range(100)) * 2}, "ops.Categorify()"),
        ({"orderId": list(range(100))}, ""),
        ({"x": [1.5] * 9}, ""),
        ({"x": [0.5, 1.5, None]}, "ops.FillMedian() >> ops.Normalize()"),
        # As pandas makes them of integers beside a missing value.
        ({"userId": [7.0, 9.0, None]},
         'ops.LambdaOp(lambda c: c.cast("int64")) >> ops.Categorify()'),
        # One value, or none: as two values.
        ({"seen": [1.0, None, 1.0]}, 'ops.LambdaOp(lambda c: c.cast("int64")) >> ops.Categorify()'),
        ({"seen": [1.0, float("nan")]},
         'ops.LambdaOp(lambda c: c.cast("int64")) >> ops.Categorify()'),
        ({"seen": [[7], [7, None]]}, "ops.Categorify()"),
        ({"x": [0.5] * 95 + [2000.0] * 5}, "ops.LogOp() >> ops.Normalize()"),
        ({"x": [-0.5] * 95 + [2000.0] * 5}, "ops.Normalize()"),
        ({"n": list(range(-200, 200))}, "ops.Normalize()"),
        ({"n": list(range(400)) * 2}, "ops.Normalize()"),
        ({"prev": [[n, n + 1] for n in range(400)]}, "ops.Categorify()"),
        ({"change": [[n, n + 1] for n in range(-200, 200)]}, "ops.Normalize()"),
        ({"city": [f"c{n}" for n in range(90)] + ["c1"]}, "ops.Categorify(freq_threshold=2)"),
        ({"day": [dt.date(2024, 1, n) for n in (1, 2)]},
         'ops.DatePart(["month", "weekday"]) >> ops.Categorify()'),
        ({"at": [dt.datetime(2024, 1, n, tzinfo=dt.UTC) for n in (1, 2)]},
         'ops.DatePart(["month", "weekday", "hour"]) >> ops.Categorify()'),
    ],
)  # fmt: skip
def test_suggestions(values, operators):
    assert suggestion(inspect_dataset(values).columns[0]).operators == operators


@pytest.mark.parametrize("top", [0, 1, 3])
def test_advice_does_not_depend_on_how_many_values_are_kept(rows, top):
    times = [f"2012-01-{n:02}T10:00:00Z" for n in range(1, 29)]
    texts = pl.DataFrame(
        {"day": ["1/2/2012", "3/4/2012"] * 14, "at": times, "city": times[:27] + ["x"]}
    )
    # Whole up to one number in a thousand, which no percentile shows.
    numbers = pl.DataFrame({"a": [float(n % 9) for n in range(999)] + [1.5]})
    for frame in (rows, texts, numbers):
        few, many = (inspect_dataset(frame, top=number) for number in (top, 1000))
        assert [*map(suggestion, few.columns)] == [*map(suggestion, many.columns)]
        assert all(len(column.common) <= top for column in few.columns)
    assert suggestion(inspect_dataset(numbers, top=top)["a"]).operators == "ops.Normalize()"
    found = inspect_dataset(texts, top=top)
    assert suggestion(found["at"]).reason.startswith("times as text: parse them before")


@pytest.mark.parametrize(
    ("texts", "kind", "expected"),
    [
        (["2012/01/01", "2012/12/31"], "dates", [(1, 7), (12, 1)]),
        (["2012-01-01", None, "2012-12-31"], "dates", [(1, 7), None, (12, 1)]),
        ([" 2012-01-01", "2012-12-31 "], "dates", [(1, 7), (12, 1)]),
        (["1/31/2012", "12/1/2012"], "dates", [(1, 2), (12, 6)]),
        (["31.01.2012", "01.12.2012"], "dates", [(1, 2), (12, 6)]),
        (["Jan 1 2000", "Feb 1 2000"], "dates", [(1, 6), (2, 2)]),
        (["2012/01/01 10:00", "2012/12/31 23:59"], "times", [(1, 7), (12, 1)]),
        (["2012-01-01T10:00:00.5", "2012-12-31T23:59:00"], "times", [(1, 7), (12, 1)]),
        (["2012-01-01T10:00:00Z", "2012-12-31T23:59:00.5Z"], "times", [(1, 7), (12, 1)]),
        # The moment counts: in UTC it is another day.
        (["2012-01-01T01:00:00+02:00", "2012-12-31T23:59:00Z"], "times", [(12, 6), (12, 1)]),
        (["2012-01-01 10:00:00-0100", "2012-12-31 23:59:00+0000"], "times", [(1, 7), (12, 1)]),
        (["2012-01-01T10:00", "2012-12-31T23:59"], "times", [(1, 7), (12, 1)]),
    ],
)
def test_dates_as_text_are_to_be_parsed(texts, kind, expected):
    """The advice works: what it parses has the months and weekdays of the calendar."""
    data = pl.DataFrame({"day": texts})
    advice = suggestion(inspect_dataset(data)["day"])
    assert advice.operators.startswith('ops.DatePart(["month", "weekday"')
    assert advice.reason.startswith(f"{kind} as text: parse them before, ")
    code = re.search(r"polars(\.col.*?\.str\.to_.*?\(.*?\))", advice.reason)[1]
    parsed = data.with_columns(eval(f"pl{code}"))["day"]  # noqa: S307 - our own text
    found = zip(parsed.dt.month(), parsed.dt.weekday(), strict=True)
    assert [None if pair == (None, None) else pair for pair in found] == expected


def test_lists_of_times_as_text_are_to_be_parsed():
    data = pl.DataFrame({"seen": [["2012-01-01T10:00:00Z ", "2012-12-31T23:59:00Z"], [], None]})
    inspection = inspect_dataset(data)
    reason = suggestion(inspection["seen"]).reason
    code = re.search(r"times as text: parse them before, (polars.*)", reason)[1]
    # The text for a terminal has it whole, to be copied.
    assert any(code in line for line in str(inspection).splitlines())
    parsed = data.with_columns(eval(code, {"polars": pl}))["seen"]  # noqa: S307 - our own text
    hours = parsed.list.eval(pl.element().dt.hour()).to_list()
    assert hours == [[10, 23], [], None]


def test_a_page_has_the_colours_that_its_reader_prefers():
    page = inspect_dataset({"a": [1, 2]}).to_page()
    assert page.startswith("<!doctype html>")
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


@pytest.mark.parametrize("name", ['the "day"', "back\\slash", "it's", "日付"])
@pytest.mark.parametrize("values", [["2012-01-31", "2012-02-01"], [True, None]])
def test_the_code_of_an_advice_suits_any_name(name, values):
    data = pl.DataFrame({name: values})
    reason = suggestion(inspect_dataset(data)[name]).reason
    code = re.search(r" before, (polars.*)", reason)[1]
    made = data.with_columns(eval(code, {"polars": pl}))  # noqa: S307 - our own text
    assert made.schema[name] in (pl.Date, pl.Int8)


@pytest.mark.parametrize("values", [[True, None, False], [True, None], [[True, None], [], [False]]])
def test_booleans_with_null_are_to_be_cast(values):
    """The advice works: a request holds the null of what it casts, and it has the same id."""
    data = pl.DataFrame({"flag": values})
    advice = suggestion(inspect_dataset(data)["flag"])
    assert advice.operators == "ops.Categorify()"
    code = re.search(r"a request cannot hold: cast them before, (polars.*)", advice.reason)[1]
    cast = data.with_columns(eval(code, {"polars": pl}))  # noqa: S307 - our own text
    workflow = Workflow(["flag"] >> ops.Categorify()).fit(cast)
    expected = Workflow(["flag"] >> ops.Categorify()).fit(data).transform(data).collect()
    assert workflow.transform(cast).collect().equals(expected)
    (wire,) = wire_inputs(workflow.input_schema, None).values()
    arrived = decode_request(wire, encode_request(wire, to_column(cast["flag"])))
    assert workflow.transform({"flag": to_series(arrived)}).collect().equals(expected)


@pytest.mark.parametrize("values", [[True, False], [[True], [False]]])
def test_booleans_without_null_stay(values):
    assert "cast" not in suggestion(inspect_dataset({"flag": values})["flag"]).reason


def test_dates_that_two_formats_read_say_so():
    advice = suggestion(inspect_dataset({"day": ["1/2/2012", "3/4/2012"]})["day"])
    assert '"%m/%d/%Y"); "%d/%m/%Y" reads them too' in advice.reason


@pytest.mark.parametrize("texts", [["2012/01/01", "x"], ["1/2/12", "3/4/12"], ["10:00", "11:00"]])
def test_other_texts_are_no_dates(texts):
    assert suggestion(inspect_dataset({"x": texts})["x"]).operators == "ops.Categorify()"


def test_the_suggested_workflow_fits_the_data_and_has_the_suggested_tables(rows, inspection):
    own = [(column, suggestion(column)) for column in inspection.columns]
    rows = rows.with_columns(pl.col("amount").replace(np.inf, 1e9))
    for column, advice in own:
        node = eval(f"columns >> {advice.operators}", {"ops": ops, "columns": [column.name]})  # noqa: S307 - our own text
        workflow = Workflow(node).fit(rows)
        assert workflow.transform(rows).collect().height == ROWS
        if advice.embedding:
            (schema,) = workflow.output_schema.columns
            assert schema.properties["cardinality"] == advice.embedding[0]


def test_times_with_a_zone_are_shown_on_its_clocks():
    zone = ZoneInfo("Asia/Tokyo")
    times = [dt.datetime(2024, 3, 1, 2, tzinfo=zone), dt.datetime(2024, 7, 9, 23, 30, tzinfo=zone)]
    frame = pl.DataFrame({"at": pl.Series(times, dtype=pl.Datetime("us", "Asia/Tokyo"))})
    found = inspect_dataset(frame)
    assert "2024-03-01 02:00 to 2024-07-09 23:30" in str(found)
    assert "2024-03-01 02:00 .. 2024-07-09 23:30" in found.to_html()
    naive = inspect_dataset(frame.with_columns(pl.col("at").dt.convert_time_zone("UTC")))
    assert "2024-02-29 17:00 to 2024-07-09 14:30" in str(naive)


def test_columns_of_the_type_null_have_no_values():
    found = inspect_dataset(pl.DataFrame({"gone": [None, None], "none": [[], None], "id": [1, 2]}))
    assert set(found.unreadable) == {"gone", "none"}
    for text in (str(found), found.to_html()):
        assert "not readable" not in text
        assert "Every row is null" in text
    assert str(found).count("  no values") == 2
