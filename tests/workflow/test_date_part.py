"""DatePart and columns of dates, held to Python's and Polars' calendars."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from workflow import Workflow, WorkflowError, ops
from workflow.expressions.column import Column
from workflow.expressions.numpy import NumpyInterpreter

PARTS = ["year", "quarter", "month", "day", "dayofyear", "weekday", "hour", "minute", "second"]


def every_day() -> pl.DataFrame:
    """All days on which a time in nanoseconds can fall, leap days and ends of centuries among them."""
    days = pl.date_range(date(1677, 9, 22), date(2262, 4, 11), eager=True)
    return pl.DataFrame({"when": days})


def test_parts_of_every_day_are_those_of_python():
    days = every_day()
    made = Workflow(["when"] >> ops.DatePart(PARTS[:6])).fit(days).transform(days).collect()
    expected = [
        (d.year, (d.month + 2) // 3, d.month, d.day, d.timetuple().tm_yday, d.weekday())
        for d in days["when"]
    ]
    assert made.rows() == expected


@pytest.mark.parametrize("unit", ["ns", "us", "ms"])
def test_times_before_and_after_1970_are_those_of_python(unit):
    rng = np.random.default_rng(0)
    seconds = rng.integers(-(2**33), 2**33, 2_000)
    times = [datetime(1970, 1, 1) + timedelta(seconds=int(s)) for s in seconds]  # noqa: DTZ001
    frame = pl.DataFrame({"when": pl.Series(times, dtype=pl.Datetime(unit))})
    made = Workflow(["when"] >> ops.DatePart(["hour", "minute", "second", "day"])).fit(frame)
    expected = [(t.hour, t.minute, t.second, t.day) for t in times]
    assert made.transform(frame).collect().rows() == expected


def test_time_with_a_zone_is_taken_in_utc():
    here = pl.Series([datetime(2020, 1, 1, 0, 30)]).dt.replace_time_zone("Europe/Berlin")  # noqa: DTZ001
    made = Workflow(["when"] >> ops.DatePart(["year", "hour"])).fit({"when": here})
    assert made.transform({"when": here}).collect().rows() == [(2019, 23)]


def test_column_of_dates_is_served_as_microseconds():
    frame = pl.DataFrame({"when": [date(2024, 2, 29), None, date(1969, 12, 31)]})
    workflow = Workflow(["when"] >> ops.DatePart(["day", "weekday"])).fit(frame)
    column = workflow.input_schema["when"]
    assert (column.dtype, column.is_time) == ("int64", True)
    sent = Column(np.array([1_709_164_800_000_000, 0, -1]), np.array([True, False, True]))
    served = NumpyInterpreter(workflow.program)({"when": sent})
    assert served["when_day"].array[[0, 2]].tolist() == [29, 31]
    assert served["when_weekday"].array[[0, 2]].tolist() == [3, 2]
    assert served["when_day"].valid.tolist() == [True, False, True]


def test_dates_survive_saving_and_reading_numbers_instead(tmp_path):
    frame = pl.DataFrame({"when": [[date(2024, 2, 29)], None, []]})
    workflow = Workflow(["when"] >> ops.DatePart(["day"])).fit(frame)
    workflow.save(tmp_path)
    loaded = Workflow.load(tmp_path)
    numbers = frame.select(pl.col("when").cast(pl.List(pl.Datetime("us"))).cast(pl.List(pl.Int64)))
    for data in (frame, numbers):
        assert loaded.transform(data).collect()["when_day"].to_list() == [[29], [], []]


def test_raw_dates_come_out_as_microseconds(tmp_path):
    frame = pl.DataFrame({"when": [datetime(2024, 2, 29, tzinfo=UTC)]})
    Workflow(["when"]).fit(frame).transform_to_parquet(frame, tmp_path)
    assert pl.read_parquet(tmp_path / "*.parquet")["when"].to_list() == [1_709_164_800_000_000]


def test_dates_where_numbers_were_are_refused():
    workflow = Workflow(["when"] >> ops.DatePart(["day"], unit="s")).fit({"when": [0, 86_400]})
    with pytest.raises(WorkflowError, match=r"'when' as int64.*Received: Date"):
        workflow.transform({"when": [date(2024, 2, 29)]})


def test_seconds_of_a_file_are_taken_apart():
    made = Workflow(["at"] >> ops.DatePart(["year", "hour"], unit="s")).fit({"at": [964_982_703]})
    assert made.transform({"at": [964_982_703]}).collect().rows() == [(2000, 18)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"parts": ["years"]}, "year, quarter, month.*'years'"),
        ({"parts": "year"}, "a list"),
        ({"parts": []}, "Received"),
        ({"parts": ["day", "day"]}, "each once"),
        ({"unit": "ns"}, "us, ms, s, D"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(WorkflowError, match=message):
        ops.DatePart(**settings)


@pytest.mark.parametrize(
    ("column", "unit", "message"),
    [
        ([1.5], "us", "'c', float64"),
        (["2024"], "us", "'c', string"),
        ([date(2024, 1, 1)], "s", "Leave unit"),
    ],
)
def test_columns_that_hold_no_times_are_refused(column, unit, message):
    with pytest.raises(WorkflowError, match=message):
        Workflow(["c"] >> ops.DatePart(unit=unit)).fit({"c": column}).transform({"c": column})
