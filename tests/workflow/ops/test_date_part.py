"""DatePart and columns of dates, held to Python's and Polars' calendars."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflow import Workflow, WorkflowError, ops
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.ops._zones import offsets_of
from workflow.schema.column import Column

PARTS = ["year", "quarter", "month", "day", "dayofyear", "weekday", "hour", "minute", "second"]
# Of summer time in the north, in the south, of half an hour, of a change at midnight, of none, of
# a time zone that was another, and where a day was left out (Apia, 2011-12-30).
ZONES = (
    "America/New_York",
    "Europe/Berlin",
    "America/Santiago",
    "Australia/Lord_Howe",
    "America/Havana",
    "Asia/Kolkata",
    "Etc/GMT+3",
    "Africa/Monrovia",
    "Pacific/Apia",
    "UTC",
)


def every_day() -> pl.DataFrame:
    """All days on which a time in nanoseconds can fall, leap days and ends of centuries among them."""
    days = pl.date_range(date(1677, 9, 22), date(2262, 4, 11), eager=True)
    return pl.DataFrame({"when": days})


def parts_of(frame, *arguments, **settings) -> list[tuple[int, ...]]:
    """The outputs of DatePart for the column `when`."""
    workflow = Workflow(["when"] >> ops.DatePart(*arguments, **settings)).fit(frame)
    return workflow.transform(frame).collect().rows()


def parts_of_python(times) -> list[tuple[int, ...]]:
    return [
        (t.year, (t.month + 2) // 3, t.month, t.day, t.timetuple().tm_yday, t.weekday())
        + (t.hour, t.minute, t.second)
        for t in times
    ]


def test_parts_of_every_day_are_those_of_python():
    days = every_day()
    midnights = (datetime(d.year, d.month, d.day) for d in days["when"])  # noqa: DTZ001
    assert parts_of(days, PARTS) == parts_of_python(midnights)


@pytest.mark.parametrize("unit", ["ns", "us", "ms"])
def test_times_before_and_after_1970_are_those_of_python(unit):
    rng = np.random.default_rng(0)
    seconds = rng.integers(-(2**33), 2**33, 2_000)
    times = [datetime(1970, 1, 1) + timedelta(seconds=int(s)) for s in seconds]  # noqa: DTZ001
    frame = pl.DataFrame({"when": pl.Series(times, dtype=pl.Datetime(unit))})
    assert parts_of(frame, PARTS) == parts_of_python(times)


@given(
    st.lists(st.integers(-2_208_988_800, 1_735_689_599), min_size=1), st.sampled_from(ZONES[:-1])
)
@settings(max_examples=60)
def test_parts_of_a_zone_are_those_of_python(seconds, zone):
    """Times of 1900 to 2024, of which no zone's history changes any more."""
    moments = [datetime.fromtimestamp(s, UTC) for s in seconds]
    local = parts_of_python(moment.astimezone(ZoneInfo(zone)) for moment in moments)
    assert parts_of({"when": seconds}, PARTS, "s", zone) == local
    aware = pl.DataFrame({"when": moments}).with_columns(pl.col("when").dt.convert_time_zone(zone))
    assert parts_of(aware, PARTS) == local
    assert parts_of({"when": moments}, PARTS, time_zone=zone) == local


@pytest.mark.parametrize("zone", ZONES)
def test_hours_beside_each_change_are_those_of_polars(zone):
    """At each change of the clocks until 2100: the second before, it, and the hours around it."""
    changes = np.array([since for since, _ in offsets_of(zone)][1:] or [0])
    seconds = (changes[:, np.newaxis] + [-7_200, -3_600, -1, 0, 1, 3_599, 3_600, 7_200]).ravel()
    moments = pl.from_epoch(pl.Series(seconds)).dt.replace_time_zone("UTC")
    aware = moments.dt.convert_time_zone(zone)
    fields = (aware.dt.year(), aware.dt.ordinal_day(), aware.dt.hour(), aware.dt.minute())
    parts, expected = ["year", "dayofyear", "hour", "minute"], list(zip(*fields, strict=True))
    assert parts_of({"when": aware}, parts) == expected
    assert parts_of({"when": seconds}, parts, "s", zone) == expected


def test_hours_of_a_zone_are_those_of_pandas_and_pandas_may_send_them():
    hours = pd.date_range("2024-11-02", "2024-11-04", freq="30min", tz="America/New_York")
    frame = pd.DataFrame({"when": hours})
    expected = list(zip(frame["when"].dt.day, frame["when"].dt.hour, strict=True))
    assert parts_of(frame, ["day", "hour"]) == expected
    assert len(expected) - len(set(expected)) > len(expected) // 2  # an hour comes twice


@pytest.mark.parametrize("unit", ["us", "ms", "s"])
def test_hours_of_a_zone_in_each_unit(unit):
    # 2024-07-01 12:00 UTC
    count = 1_719_835_200 * {"s": 1, "ms": 1_000, "us": 1_000_000}[unit]
    assert parts_of({"when": [count, None]}, ["hour"], unit, "Asia/Tokyo") == [(21,), (None,)]
    lists = {"when": [[count, None], [], None]}
    assert parts_of(lists, ["hour"], unit, "America/New_York") == [([8, None],), ([],), ([],)]


def test_new_data_of_another_zone_have_the_hours_of_the_zone_that_was_fitted():
    here = pl.Series([datetime(2020, 1, 1, 0, 30)]).dt.replace_time_zone("Europe/Berlin")  # noqa: DTZ001
    workflow = Workflow(["when"] >> ops.DatePart(["year", "hour"])).fit({"when": here})
    for zone in ("Europe/Berlin", "UTC", "Asia/Tokyo"):
        there = {"when": here.dt.convert_time_zone(zone).cast(pl.Datetime("ns", zone))}
        assert workflow.transform(there).collect().rows() == [(2020, 0)]


def test_zone_is_that_of_the_column_after_it_was_filled_sliced_and_renamed():
    here = pl.Series([datetime(2020, 7, 1, 12, tzinfo=UTC), None]).dt.convert_time_zone(
        "Asia/Tokyo"
    )
    frame = pl.DataFrame({"when": here, "lists": [here.to_list(), []]})
    filled = ["when"] >> ops.FillMissing(0) >> ops.Rename(name="at") >> ops.Clip(min_value=0)
    first = ["lists"] >> ops.ListSlice(1)
    workflow = Workflow((filled + first) >> ops.DatePart(["hour"])).fit(frame)
    assert workflow.transform(frame).collect().rows() == [(21, [21]), (9, [])]


def test_saved_workflow_keeps_the_offsets_that_it_was_fitted_with(tmp_path):
    data = {"when": pl.Series([datetime(2020, 7, 1, 12, tzinfo=UTC)])}
    # A zone's rules, as another database may have them.
    offsets = {"Asia/Tokyo": [[0, 0], [1_577_836_800, 3_600]]}
    operator = ops.DatePart(["hour"], time_zone="Asia/Tokyo", zone_offsets=offsets)
    workflow = Workflow(["when"] >> operator).fit(data)
    workflow.save(tmp_path / "given")
    loaded = Workflow.load(tmp_path / "given")
    assert loaded.transform(data).collect().rows() == [(13,)]
    Workflow(["when"] >> ops.DatePart(["hour"], time_zone="Asia/Tokyo")).fit(data).save(
        tmp_path / "own"
    )
    (saved,) = Workflow.load(tmp_path / "own").operators
    assert saved.zone_offsets == {"Asia/Tokyo": offsets_of("Asia/Tokyo")}


def test_column_of_dates_is_served_as_microseconds():
    frame = pl.DataFrame({"when": [date(2024, 2, 29), None, date(1969, 12, 31)]})
    workflow = Workflow(["when"] >> ops.DatePart(["day", "weekday"])).fit(frame)
    column = workflow.input_schema["when"]
    assert (column.dtype, column.time, str(column)) == ("int64", "date", "date?")
    sent = Column(np.array([1_709_164_800_000_000, 0, -1]), np.array([True, False, True]))
    served = NumpyInterpreter(workflow.program)({"when": sent})
    assert served["when_day"].array[[0, 2]].tolist() == [29, 31]
    assert served["when_weekday"].array[[0, 2]].tolist() == [3, 2]
    assert served["when_day"].valid.tolist() == [True, False, True]


def test_dates_survive_saving(tmp_path):
    frame = pl.DataFrame({"when": [[date(2024, 2, 29)], None, []]})
    workflow = Workflow(["when"] >> ops.DatePart(["day"])).fit(frame)
    workflow.save(tmp_path)
    loaded = Workflow.load(tmp_path)
    assert loaded.input_schema == workflow.input_schema
    assert loaded.transform(frame).collect()["when_day"].to_list() == [[29], [], []]


def test_seconds_of_a_file_are_taken_apart():
    assert parts_of({"when": [964_982_703]}, ["year", "hour"], unit="s") == [(2000, 18)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"parts": ["years"]}, "year, quarter, month.*'years'"),
        ({"parts": "year"}, "a list"),
        ({"parts": []}, "Received"),
        ({"parts": ["day", "day"]}, "each once"),
        ({"unit": "ns"}, "us, ms, s, D"),
        ({"time_zone": "Mars/Olympus"}, "name of a time zone.*Received: 'Mars/Olympus'"),
        ({"unit": "D", "time_zone": "Asia/Tokyo"}, "days have none.*Received: 'Asia/Tokyo'"),
        ({"zone_offsets": {"X": []}}, r"ascending.*Received: \[\] for 'X'"),
        ({"zone_offsets": {"X": [[0, 0], [0, 1]]}}, "ascending"),
        ({"zone_offsets": {"X": [[0, 86_400]]}}, "less than a day"),
        ({"zone_offsets": {"X": [[0]]}}, "zone_offsets as"),
        ({"zone_offsets": {"X": [[2**60, 0]]}}, "zone_offsets as"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(WorkflowError, match=message):
        ops.DatePart(**settings)


@pytest.mark.parametrize(
    ("column", "settings", "message"),
    [
        ([1.5], {"unit": "us"}, "'c', float64"),
        (["2024"], {"unit": "us"}, r"'c', string\?\. Parse it first, with \.str\.to_datetime\(\)"),
        (pl.Series([0, 1], dtype=pl.Int8), {}, r"unit, one of 'us'.*column 'c' counts.*int8\?"),
        ([7], {}, r"unit.*Received: int64\?"),
        ([date(2024, 1, 1)], {"unit": "us"}, r"integers alone, and column 'c' is date\?"),
        ([datetime(2024, 1, 1)], {"unit": "s"}, r"is datetime\[us\]\?. Leave it out"),  # noqa: DTZ001
        ([date(2024, 1, 1)], {"time_zone": "UTC"}, r"known zone. Received: column 'c', date"),
        ([datetime(2024, 1, 1)], {"time_zone": "UTC"}, "replace_time_zone"),  # noqa: DTZ001
    ],
)
def test_columns_that_do_not_say_what_they_hold_are_refused(column, settings, message):
    with pytest.raises(WorkflowError, match=message):
        Workflow(["c"] >> ops.DatePart(**settings)).fit({"c": column}).transform({"c": column})
