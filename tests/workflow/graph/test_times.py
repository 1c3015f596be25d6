"""Dates and times of a workflow's data: what differs from fit is converted where it is exact, or refused."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from workflow import Workflow, WorkflowError, ops, where
from workflow.schema.schema import ColumnSchema, Schema

NOON = datetime(2024, 7, 1, 12, 0, 0, 5)  # noqa: DTZ001 - each column has its own time zone, or none
NAIVE = pl.Series([NOON, None])
NEW_YORK = NAIVE.dt.replace_time_zone("UTC").dt.convert_time_zone("America/New_York")
DATES = NAIVE.dt.date()
# Columns that hold times, by how the schema names them, and what they count.
KINDS = {
    "datetime[us]": NAIVE,
    "datetime[us, America/New_York]": NEW_YORK,
    "date": DATES,
}
UNLIKE = [(one, other) for one in KINDS for other in KINDS if one != other]
EPOCH = (NOON - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001


def micros(workflow, data) -> list[int | None]:
    return workflow.transform(data).collect()["count"].to_list()


def counted() -> Workflow:
    """A workflow that shows the microseconds as numbers."""
    return Workflow(["at"] >> ops.Rename(name="count") >> ops.LambdaOp(lambda at: at + 0))


@pytest.mark.parametrize("name", KINDS)
def test_schema_says_which_kind_of_time_a_column_is(name, tmp_path):
    frame = pl.DataFrame({"at": KINDS[name], "list": [KINDS[name].to_list(), []]})
    workflow = Workflow(["at", "list"]).fit(frame)
    workflow.save(tmp_path)
    for made in (workflow, Workflow.load(tmp_path)):
        for schema in (made.input_schema, made.output_schema):
            assert repr(schema) == f"Schema(at: {name}?, list: list[{name}]?)"
        assert f"list[{name}]?" in str(made)
        assert "int64" not in f"{made}{made.to_svg()}"


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("name", ["datetime[us]", "datetime[us, America/New_York]"])
def test_times_of_another_unit_are_the_same_times(name, unit):
    workflow = counted().fit({"at": KINDS[name]})
    expected = EPOCH // 1000 * 1000 if unit == "ms" else EPOCH
    assert micros(workflow, {"at": KINDS[name].dt.cast_time_unit(unit)}) == [expected, None]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "Etc/GMT+3"])
def test_times_of_another_zone_are_the_same_moments(zone):
    workflow = counted().fit({"at": NEW_YORK})
    assert micros(workflow, {"at": NEW_YORK.dt.convert_time_zone(zone)}) == [EPOCH, None]
    assert (
        micros(counted().fit({"at": NEW_YORK.dt.convert_time_zone(zone)}), {"at": NEW_YORK})[0]
        == EPOCH
    )


@pytest.mark.parametrize("nanoseconds", [-1, -1000, -1001, 1999])
def test_what_is_shorter_than_a_microsecond_is_cut_off_downwards(nanoseconds):
    at = pl.Series(np.array([nanoseconds], "datetime64[ns]"))
    assert micros(counted().fit({"at": at}), {"at": at}) == [nanoseconds // 1000]


@pytest.mark.parametrize(("fitted", "sent"), UNLIKE)
@pytest.mark.parametrize("is_list", [False, True])
def test_times_of_another_kind_are_refused(fitted, sent, is_list, tmp_path):
    def table(series):
        return pl.DataFrame({"at": pl.Series([series.to_list()]) if is_list else series})

    workflow = Workflow(["at"]).fit(table(KINDS[fitted]))
    table(KINDS[sent]).write_parquet(tmp_path / "new.parquet")
    lists = ("list[", "]") if is_list else ("", "")
    message = f"Expected column 'at' as {lists[0]}{fitted}{lists[1]}?, as in fit. Received: {sent.join(lists)}. "
    for new in (table(KINDS[sent]), tmp_path / "new.parquet", table(KINDS[sent]).to_arrow()):
        with pytest.raises(WorkflowError) as error:
            workflow.transform(new)
        assert str(error.value).startswith(message)
        assert "Polars" in str(error.value) or "pl." in str(error.value)


def test_the_remedy_for_times_without_a_zone_mends_it():
    workflow = counted().fit({"at": NEW_YORK})
    with pytest.raises(WorkflowError, match=r"replace_time_zone\('America/New_York'\)"):
        workflow.transform({"at": NAIVE})
    hours = timedelta(hours=4) // timedelta(microseconds=1)
    mended = NAIVE.dt.replace_time_zone("America/New_York")
    assert micros(workflow, {"at": mended}) == [EPOCH + hours, None]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    "numbers", [pl.Series([EPOCH]), pl.Series([0.5]), pl.Series(["2024-07-01"])]
)
def test_numbers_and_texts_are_no_times(name, numbers):
    parse = r"\.str\.to_date\(" if name == "date" else r"\.str\.to_datetime\("
    remedy = parse if numbers.dtype == pl.String else r"pl\.from_epoch"
    workflow = Workflow(["at"]).fit({"at": KINDS[name]})
    with pytest.raises(WorkflowError, match=rf"Received: {numbers.dtype}\. .*{remedy}"):
        workflow.transform({"at": numbers})
    counted = r"\.dt\.to_string\(" if numbers.dtype == pl.String else r"\.dt\.epoch\("
    refusal = rf"'at' as (int64|float64|string)\?, .*Received: date.*{counted}"
    with pytest.raises(WorkflowError, match=refusal):
        Workflow(["at"]).fit({"at": numbers}).transform({"at": KINDS[name]})


def test_nulls_alone_are_times_too():
    assert micros(counted().fit({"at": NAIVE}), {"at": [None]}) == [None]


@pytest.mark.parametrize(("one", "other"), UNLIKE)
def test_files_of_unlike_times_are_no_one_table(one, other, tmp_path):
    for number, name in enumerate((one, other)):
        pl.DataFrame({"at": KINDS[name]}).write_parquet(tmp_path / f"{number}.parquet")
    with pytest.raises(
        WorkflowError, match=r"Column 'at' is Date.*0\.parquet and Date.*1\.parquet"
    ):
        Workflow(["at"]).fit(tmp_path)


def test_files_of_several_zones_are_one_table_of_moments(tmp_path):
    for number, zone in enumerate(["America/New_York", "Asia/Tokyo"]):
        frame = pl.DataFrame({"at": NEW_YORK.dt.convert_time_zone(zone)})
        frame.write_parquet(tmp_path / f"{number}.parquet")
    workflow = counted().fit(tmp_path)
    assert workflow.input_schema["at"].time == "UTC"
    assert micros(workflow, tmp_path) == [EPOCH, None, EPOCH, None]


@pytest.mark.parametrize(("key", "data"), UNLIKE)
def test_joins_of_unlike_times_are_refused(key, data):
    table = pl.DataFrame({"at": KINDS[key], "wind": [1.0, 2.0]})
    message = rf"Expected the key 'at' of the external table as {data}, like column 'at'. Received: {key}\. \w+"
    with pytest.raises(WorkflowError, match=message.replace("[", r"\[")):
        Workflow(["at"] >> ops.JoinExternal(table, on="at")).fit({"at": KINDS[data]})
    numbers = pl.DataFrame({"at": [EPOCH], "wind": [1.0]})
    with pytest.raises(WorkflowError, match=r"Received: int64\. Say what it counts"):
        Workflow(["at"] >> ops.JoinExternal(numbers, on="at")).fit({"at": KINDS[data]})


@pytest.mark.parametrize("key", KINDS)
@pytest.mark.parametrize("at", [["2024-07-01", "2024-07-02"], [EPOCH, 0]], ids=["texts", "numbers"])
def test_a_join_of_texts_and_times_says_how_to_parse_the_texts(key, at):
    table = pl.DataFrame({"at": KINDS[key], "wind": [1.0, 2.0]})
    parse = r"\.str\.to_date" if isinstance(at[0], str) else r"pl\.from_epoch"
    with pytest.raises(WorkflowError, match=rf"Received: date.*\. Column 'at': .*{parse}"):
        Workflow(["at"] >> ops.JoinExternal(table, on="at")).fit({"at": at})


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_joins_find_the_same_moment_in_any_unit_and_zone(unit, zone, tmp_path):
    hours = pl.Series([NOON.replace(microsecond=0, hour=h) for h in range(3)])
    keys = hours if zone is None else hours.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    table = pl.DataFrame(
        {"hour": keys.dt.cast_time_unit(unit), "day": hours.dt.date(), "n": [0, 1, 2]}
    )
    data = {"at": hours if zone is None else hours.dt.replace_time_zone("UTC")}
    node = ["at"] >> ops.JoinExternal(table, on="at", on_ext="hour")
    workflow = Workflow(node[["day", "n"]] + (node["day"] >> ops.DatePart(["month"]))).fit(data)
    workflow.save(tmp_path)
    loaded = Workflow.load(tmp_path)
    for made in (workflow, loaded, loaded.fit(data)):
        frame = made.transform(data).collect()
        assert frame["n"].to_list() == [0, 1, 2]
        assert frame["day_month"].to_list() == [7, 7, 7]
        assert made.output_schema["day"].time == "date"


def test_times_that_are_one_microsecond_are_one_key():
    keys = pl.Series(np.array([1, 2], "datetime64[ns]"))
    workflow = Workflow(["at"] >> ops.JoinExternal({"at": keys, "n": [1, 2]}, on="at"))
    with pytest.raises(WorkflowError, match="occur more than once"):
        workflow.fit({"at": keys})
    with pytest.raises(WorkflowError, match="each value once"):
        ops.Categorify(vocabs={"at": keys})


@pytest.mark.parametrize("name", KINDS)
def test_ids_of_times_are_those_of_a_given_vocabulary(name, tmp_path):
    vocabulary = KINDS[name].drop_nulls()
    workflow = Workflow(["at"] >> ops.Categorify(vocabs={"at": vocabulary})).fit(
        {"at": KINDS[name]}
    )
    workflow.save(tmp_path)
    loaded = Workflow.load(tmp_path)
    for made in (workflow, loaded, loaded.fit({"at": KINDS[name]})):
        assert made.transform({"at": KINDS[name]}).collect()["at"].to_list() == [3, 1]
        meanings = made.reverse_mapping("at")
        assert meanings.filter(kind="value")["value"].to_list() == vocabulary.to_list()


@pytest.mark.parametrize(("given", "data"), UNLIKE)
def test_vocabularies_of_unlike_times_are_refused(given, data):
    categorify = ops.Categorify(vocabs={"at": KINDS[given].drop_nulls()})
    message = f"Expected the vocabulary of 'at' as {data}, like column 'at'. Received: {given}. "
    with pytest.raises(WorkflowError, match=message.replace("[", r"\[")):
        Workflow(["at"] >> categorify).fit({"at": KINDS[data]})
    message = f"'a', {data}?, 'b', {given}?"
    with pytest.raises(WorkflowError, match=message.replace("[", r"\[").replace("?", r"\?")):
        Workflow([["a", "b"]] >> ops.Categorify()).fit({"a": KINDS[data], "b": KINDS[given]})


def test_vocabulary_of_numbers_is_none_of_times():
    with pytest.raises(
        WorkflowError, match=r"vocabulary of 'at' as date, .*Received: int64. Say what"
    ):
        Workflow(["at"] >> ops.Categorify(vocabs={"at": [0, 1]})).fit({"at": DATES})


def test_combinations_of_times_say_what_they_stand_for():
    data = {"at": NEW_YORK, "n": [1, 2]}
    node = [["at", "n"]] >> ops.Categorify(encode_type="combo")
    values = Workflow(node).fit(data).reverse_mapping("at_n").filter(kind="value")["value"]
    assert sorted(values.to_list(), key=str) == sorted(pl.DataFrame(data).to_dicts(), key=str)


@pytest.mark.parametrize("name", KINDS)
def test_times_are_no_ids_of_vectors_and_of_features(name):
    data = {"at": KINDS[name], "other": KINDS[name]}
    alike = ops.ColumnSimilarity({"id": [EPOCH, 0], "feature": ["a", "b"]})
    vectors = ops.PretrainedVectors(np.ones((2, 3), np.float32), ids=[EPOCH, 0])
    for node in ([["at", "other"]] >> alike, ["at"] >> vectors):
        with pytest.raises(WorkflowError, match=r"needs ids as integers or .*'at', date"):
            Workflow(node).fit(data)
    of_times = ops.ColumnSimilarity({"id": KINDS[name], "feature": ["a", "b"]})
    with pytest.raises(WorkflowError, match=r"needs every id as an integer, .*Received: Date"):
        Workflow([["at", "other"]] >> of_times).fit({"at": [EPOCH], "other": [EPOCH]})


@pytest.mark.parametrize("name", KINDS)
def test_values_of_groups_are_times(name):
    frame = pl.DataFrame({"key": [1, 1], "at": KINDS[name]})
    aggs = ["first", "last", "min", "max", "list"]
    made = Workflow(["key", "at"] >> ops.Groupby("key", aggs=aggs)).fit(frame).output_schema
    assert [str(made[f"at_{agg}"]) for agg in aggs] == [f"{name}?"] * 4 + [f"list[{name}]?"]
    for agg in ("sum", "mean", "std"):
        with pytest.raises(WorkflowError, match=rf"cannot make '{agg}' of column 'at', date"):
            Workflow(["key", "at"] >> ops.Groupby("key", aggs=agg)).fit(frame)
        with pytest.raises(WorkflowError, match=r"min and max of times\. Received: .*'at', date"):
            Workflow(["key"] >> ops.JoinGroupby(["at"], stats=[agg, "min"])).fit(frame)


@pytest.mark.parametrize("name", KINDS)
def test_the_least_and_the_largest_time_of_a_group_are_times(name, tmp_path):
    frame = pl.DataFrame({"n": [7, 7], "key": [1, 1], "at": KINDS[name]})
    joined = ["n", "key"] >> ops.JoinGroupby(["at"], stats=["min", "max", "count"])
    hours = (
        ["key"] >> ops.JoinGroupby(["at"], stats=["min"], name_sep="-") >> ops.DatePart(["year"])
    )
    workflow = Workflow(joined + hours).fit(frame)
    workflow.save(tmp_path / "all")
    workflow.remove_inputs(["n"]).save(tmp_path / "less")
    for made in (workflow, *(Workflow.load(tmp_path / part) for part in ("all", "less"))):
        schema = made.output_schema
        assert [str(schema[f"key_at_{stat}"]) for stat in ("min", "max")] == [f"{name}?"] * 2
        assert str(schema["key_count"]) == "int32"
        assert made.transform(frame).collect()["key-at-min_year"].to_list() == [2024, 2024]


@pytest.mark.parametrize("name", KINDS)
def test_statistics_of_times_are_told_as_times(name):
    facts = ops.DataStats.read(Workflow(["at"] >> ops.DataStats()).fit({"at": KINDS[name]}))["at"]
    assert facts.dtype == name
    assert (facts.min, facts.max) == (KINDS[name][0], KINDS[name][0])


def test_a_time_that_is_computed_with_is_a_number():
    node = ["at"] >> ops.LambdaOp(lambda at: at // 1_000_000)
    assert str(Workflow(node).fit({"at": NAIVE}).output_schema["at"]) == "int64?"
    workflow = Workflow(["at"]).fit({"at": NAIVE})
    workflow.output_dtypes["at"] = "float64"
    assert str(workflow.output_schema["at"]) == "float64?"


TOGETHER = {
    "subtract": lambda at, df: at - df["other"],
    "less": lambda at, df: df["other"] < at,
    "equal": lambda at, df: at == df["other"],
    "minimum": lambda at, df: np.minimum(at, df["other"]),
    "fill_null": lambda at, df: at.fill_null(df["other"]),
    "where": lambda at, df: where(at.is_null(), df["other"], at),
    "a later step": lambda at, df: (at + 1).clip(0) > where(at > 0, df["other"] - 60, 0),
}


@pytest.mark.parametrize(("one", "other"), UNLIKE)
@pytest.mark.parametrize("f", TOGETHER.values(), ids=TOGETHER)
def test_functions_over_unlike_times_are_refused(one, other, f):
    data = {"at": KINDS[one], "other": KINDS[other]}
    names = "".join(
        f"(?=.*column '{name}' \\({re.escape(kind)}\\))"
        for name, kind in (("at", one), ("other", other))
    )
    message = rf"Expected times of one kind in \w+\. Received:{names}.* in (Polars|pandas)|midnight"
    with pytest.raises(WorkflowError, match=message):
        Workflow(["at"] >> ops.LambdaOp(f, "other")).fit(data)
    condition = ["at", "other"] >> ops.Filter(lambda df: f(df["at"], df).is_null())
    with pytest.raises(WorkflowError, match=message):
        Workflow(condition).fit(data)


@pytest.mark.parametrize(("one", "other"), UNLIKE)
def test_a_time_beside_lists_of_another_kind_is_refused(one, other):
    data = {"at": KINDS[one], "ends": [KINDS[other].to_list(), []], "n": [1, 2]}
    message = r"Expected times of one kind in subtract\. Received: column '(at|ends)'"
    for f in (lambda ends, df: df["at"] - ends, lambda ends, df: df["at"].repeat_as(ends) - ends):
        with pytest.raises(WorkflowError, match=message):
            Workflow(["ends"] >> ops.LambdaOp(f, ["at", "n"])).fit(data)

    def numbers(ends, df):  # lists of times say only how often a number is repeated
        return where(df["n"].repeat_as(ends) < df["at"], 1, 0)

    made = Workflow(["ends"] >> ops.LambdaOp(numbers, ["at", "n"])).fit_transform(data)
    assert made.collect()["ends"].to_list() == [[1, 1], []]


@pytest.mark.parametrize("unit", ["ms", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", None])
def test_functions_over_times_of_any_unit_and_zone_are_of_the_moments(unit, zone):
    at = NEW_YORK if zone else NAIVE
    other = (at + timedelta(seconds=3)).dt.cast_time_unit(unit)
    data = pl.DataFrame({"at": at, "other": other.dt.convert_time_zone(zone) if zone else other})
    ends = data["other"].dt.timestamp("us"), data["at"].dt.timestamp("us")
    wanted = [None if end is None else end - start for end, start in zip(*ends, strict=True)]
    node = ["other"] >> ops.LambdaOp(lambda other, df: other - df["at"], "at")
    assert Workflow(node).fit_transform(data).collect()["other"].to_list() == wanted


def test_numbers_of_unlike_times_are_compared_where_they_are_said_to_be_numbers(tmp_path):
    since = ["day"] >> ops.LambdaOp(lambda day, df: df["at"].cast("int64") - day, "at")
    lasted = ["at"] >> ops.LambdaOp(
        lambda at, df: where(df["end"] - at > df["day"] % 86_400, 1, 0), ["end", "day"]
    )
    data = {"day": DATES, "at": NAIVE, "end": NAIVE}
    workflow = Workflow(since + lasted).fit(data)
    midnight = DATES.cast(pl.Datetime("us"))
    wanted = (NAIVE - midnight).dt.total_microseconds().to_list()
    workflow.save(tmp_path)
    for each in (workflow, Workflow.load(tmp_path)):
        assert each.transform(data).collect()["day"].to_list() == wanted


def test_a_users_schema_does_not_make_times_of_numbers():
    known = Schema([ColumnSchema("at", "int64", tags=("time",), time="naive")])
    assert Workflow(["at"]).fit({"at": [1]}, schema=known).input_schema["at"].time == ""


def test_label_that_new_data_lack_is_left_out_with_remove_inputs():
    workflow = Workflow(["at", "late"]).fit({"at": NAIVE, "late": [1, 0]})
    with pytest.raises(
        WorkflowError, match=r"No column 'late'.*workflow\.remove_inputs\(\['late'\]\)"
    ):
        workflow.transform({"at": NAIVE})
    assert workflow.remove_inputs(["late"]).transform({"at": NAIVE}).collect().columns == ["at"]


def test_date_is_not_taken_for_a_time_by_a_schema():
    schema = Workflow(["at"]).fit({"at": [date(2024, 2, 29)]}).input_schema
    assert Schema.from_json(schema.to_json()) == schema
    assert schema["at"].to_json()["time"] == "date"


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_numpy_in_a_list_are_read_in_their_unit(unit):
    values = [np.datetime64(NOON, unit), None, np.datetime64("NaT", unit)]
    second = EPOCH // 1_000_000 * 1_000_000
    expected = EPOCH if unit in ("us", "ns") else second
    assert micros(counted().fit({"at": values}), {"at": values}) == [expected, None, None]
    days = Workflow(["at"]).fit({"at": [np.datetime64("2024-07-01", "D"), None]})
    assert days.input_schema["at"].time == "date"


@pytest.mark.parametrize("unit", ["D", "h", "s", "ms", "us", "ns"])
def test_lists_of_numpys_times_are_read_in_their_unit(unit):
    times = np.array([5000, -7], f"datetime64[{unit}]")
    data = {"at": [list(times), [], None, (times[0], None, np.datetime64("NaT", unit))]}
    first, last = times.astype("datetime64[us]").astype(int).tolist()
    workflow = Workflow(["at"]).fit(data)
    assert workflow.input_schema["at"].time == ("date" if unit == "D" else "naive")
    made = workflow.transform(data).collect()["at"].to_list()
    assert made == [[first, last], [], [], [first, None, None]]


@pytest.mark.parametrize("to_row", [lambda value: value, lambda value: [value]])
def test_times_of_numpy_beside_pythons_are_refused(to_row):
    """numpy cannot join its nanoseconds with Python's microseconds."""
    values = [to_row(np.datetime64(NOON, "ns")), to_row(NOON)]
    with pytest.raises(WorkflowError, match=r"'at'.* times of numpy beside others"):
        Workflow(["at"]).fit({"at": values})


def test_times_with_a_zone_and_without_are_no_one_column():
    with pytest.raises(WorkflowError, match=r"'at'.*times with a zone and without"):
        Workflow(["at"]).fit({"at": [NOON, NOON.replace(tzinfo=UTC)]})


# What int64 cannot count in microseconds, about 292,000 years from 1970, is null

DAY, LAST = 86_400_000_000, 2**63 - 1
FAR: dict[str, tuple[pl.DataType | type[pl.DataType], int, list[int]]] = {
    "date": (pl.Date, DAY, [2**31 - 1, -(2**31), LAST // DAY, LAST // DAY + 1, -(LAST // DAY), 0]),
    "datetime[ms]": (
        pl.Datetime("ms"),
        1000,
        [2**62, -(2**63), LAST // 1000, LAST // 1000 + 1, -(LAST // 1000), 0],
    ),
    "datetime[ms, UTC]": (pl.Datetime("ms", "UTC"), 1000, [2**62, LAST // 1000 + 1, 7]),
}


def far_series(dtype, counts) -> pl.Series:
    storage = pl.Int32 if dtype == pl.Date else pl.Int64
    return pl.Series("at", counts, dtype=storage).cast(dtype)


@pytest.mark.parametrize(("dtype", "unit", "counts"), FAR.values(), ids=FAR)
def test_times_too_far_away_to_be_counted_are_null(dtype, unit, counts, tmp_path):
    workflow = counted().fit(pl.DataFrame({"at": far_series(dtype, [1, 2])}))
    frame = pl.DataFrame({"at": far_series(dtype, counts)})
    frame.write_parquet(tmp_path / "far.parquet")
    expected = [n * unit if abs(n * unit) <= LAST else None for n in counts]
    for data in (frame, frame.lazy(), tmp_path / "far.parquet", frame.to_arrow()):
        assert micros(workflow, data) == expected
    assert micros(counted().fit(frame), frame) == expected


@pytest.mark.parametrize(("dtype", "unit", "counts"), FAR.values(), ids=FAR)
def test_operators_take_times_too_far_away_as_null(dtype, unit, counts):
    frame = pl.DataFrame({"at": far_series(dtype, counts)})
    parts = ["at"] >> ops.DatePart(["year"])
    ids = ["at"] >> ops.Categorify() >> ops.Rename(postfix="_id")
    lists = frame.select(pl.concat_list("at"))
    made = Workflow(parts + ids).fit(frame).transform(frame).collect()
    is_far = [abs(n * unit) > LAST for n in counts]
    assert made["at_year"].is_null().to_list() == is_far
    assert (made["at_id"] == 1).to_list() == is_far
    passed = Workflow(["at"]).fit(lists).transform(lists).collect()["at"].to_list()
    assert [row == [None] for row in passed] == is_far
    table = frame.unique(maintain_order=True).with_columns(n=pl.int_range(pl.len()))
    joined = Workflow(["at"] >> ops.JoinExternal(table, on="at", columns_ext=["n"]))
    found = joined.fit(frame).transform(frame).collect()["n"]
    assert found.is_null().to_list() == is_far


@pytest.mark.parametrize("unit", ["s", "m", "h"])
def test_times_of_numpys_coarse_units_are_exact(unit):
    count = np.array([1_700_000, -5, 2**58, np.iinfo(np.int64).min]).view(f"datetime64[{unit}]")
    seconds = {"s": 1, "m": 60, "h": 3600}[unit]
    expected = [1_700_000 * seconds * 10**6, -5 * seconds * 10**6, None, None]
    workflow = counted().fit({"at": NAIVE})
    assert micros(workflow, {"at": count}) == expected
    assert micros(workflow, {"at": list(count)}) == expected


def test_a_saved_filter_compares_numbers_of_unlike_times(tmp_path):
    data = pl.DataFrame({"at": NAIVE, "day": DATES}).with_row_index("n")
    late = ["n", "at", "day"] >> ops.Filter(
        lambda df: df["at"].cast("int64") > df["day"].cast("int64")
    )
    Workflow(late).fit(data).save(tmp_path)
    is_late = [
        None not in (at, day) and at > day
        for at, day in zip(NAIVE, DATES.cast(pl.Datetime("us")), strict=True)
    ]
    wanted = [n for n, each in enumerate(is_late) if each]
    assert 0 < len(wanted) < len(data)
    assert Workflow.load(tmp_path).transform(data).collect()["n"].to_list() == wanted


def test_a_number_of_days_is_no_date_beside_the_date_that_it_was_made_of():
    frame = pl.DataFrame({"at": NEW_YORK, "date": DATES})
    number = ["date"] >> ops.LambdaOp(lambda day: day.cast("int64")) >> ops.Rename(name="number")
    after = ops.LambdaOp(lambda at, columns: at > columns["number"], [number, "date"])
    assert Workflow(["at"] >> after).fit_transform(frame).collect()["at"].to_list() == [True, None]
