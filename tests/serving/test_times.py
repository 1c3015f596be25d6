"""Dates and times that a client is given."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import polars as pl
import pytest

from serving.errors import ClientError
from serving.inputs.table import to_columns
from workflow.schema import ColumnSchema
from workflow.wire import WireColumn, dump_columns, parse_columns, wire_column

TIME = wire_column(ColumnSchema("when", "int64", properties={"time_unit": "us"}), nullable=True)
NOON = datetime(1969, 7, 20, 12, 0, 0, 5, tzinfo=UTC)
MICROSECONDS = (NOON - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
NAIVE = NOON.replace(tzinfo=None)
BERLIN = NOON.astimezone(timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    "values",
    [
        [NOON, None],
        [NAIVE, None],
        [BERLIN, None],
        [MICROSECONDS, None],
        [np.datetime64(NAIVE, "ns"), np.datetime64("NaT")],
        np.array([NAIVE, None], "datetime64[us]"),
        np.array([NAIVE, None], "datetime64[ns]"),
        pl.Series([NAIVE, None], dtype=pl.Datetime("ns")),
        pl.Series([NOON, None]).dt.convert_time_zone("Europe/Berlin"),
        pd.Series([NAIVE, None]),
        pd.Series([BERLIN, None]),
        pd.Series([NAIVE, None], dtype=object),
    ],
    ids=str,
)
def test_times_of_every_kind_are_sent_as_the_same_microseconds(values):
    column = to_columns([TIME], {"when": values})["when"]
    assert column.array.dtype == np.int64
    assert column.array[0] == MICROSECONDS
    assert column.valid.tolist() == [True, False]


@pytest.mark.parametrize(
    "values",
    [
        [date(1969, 12, 31)],
        pl.Series([date(1969, 12, 31)]),
        np.array(["1969-12-31"], "datetime64[D]"),
    ],
    ids=str,
)
def test_dates_are_the_first_moment_of_their_day(values):
    assert to_columns([TIME], {"when": values})["when"].array.tolist() == [-86_400_000_000]


@pytest.mark.parametrize("rows", [[[NOON], None, []], pl.Series([[NAIVE], None, []])], ids=str)
def test_lists_of_times_are_sent(rows):
    lists = wire_column(
        ColumnSchema("when", "int64", is_list=True, properties={"time_unit": "us"}), nullable=False
    )
    column = to_columns([lists], {"when": rows})["when"]
    assert column.array.tolist() == [MICROSECONDS]
    assert column.lengths.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    "values", [[NOON], pl.Series([NAIVE]), np.array([NAIVE], "datetime64[us]"), pd.Series([NAIVE])]
)
def test_times_for_a_column_of_other_numbers_are_refused(values):
    with pytest.raises(ClientError, match="'when': expected int64"):
        to_columns([WireColumn("when", "int64")], {"when": values})


def test_model_tells_its_clients_that_a_column_holds_times():
    assert parse_columns(dump_columns([TIME])) == [TIME]
