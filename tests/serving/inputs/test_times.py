"""Dates and times that a client is given: those that training takes, with the same meaning."""

from __future__ import annotations

import operator
from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from serving.contract import Contract
from serving.errors import ClientError
from serving.exchange import to_requests
from serving.inputs.table import to_columns
from workflow import Workflow, WorkflowError
from workflow.expressions.polars.series import column_schema, to_column
from workflow.schema.schema import DATE, NAIVE, ColumnSchema
from workflow.wire.format import WireColumn, dump_columns, parse_columns, wire_column

NOON = datetime(1969, 7, 20, 12, 0, 0, 5, tzinfo=UTC)
MICROSECONDS = (NOON - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
NOON_NAIVE = NOON.replace(tzinfo=None)
BERLIN = NOON.astimezone(timezone(timedelta(hours=2)))
ROME = NOON.astimezone(ZoneInfo("Europe/Rome"))
DAY, MIDNIGHT = date(1969, 12, 31), -86_400_000_000
ARROW = {
    NAIVE: pd.ArrowDtype(pa.timestamp("us")),
    "UTC": pd.ArrowDtype(pa.timestamp("ns", "America/New_York")),
    DATE: pd.ArrowDtype(pa.date32()),
}

# What holds the same moment, and null, of each kind of time.
TIMES = {
    NAIVE: [
        [NOON_NAIVE, None],
        [np.datetime64(NOON_NAIVE, "ns"), np.datetime64("NaT", "s")],
        np.array([NOON_NAIVE, None], "datetime64[us]"),
        np.array([NOON_NAIVE, None], "datetime64[ns]"),
        np.array([NOON_NAIVE, None], object),
        pl.Series([NOON_NAIVE, None], dtype=pl.Datetime("ns")),
        pl.Series([NOON_NAIVE, None], dtype=pl.Datetime("us")),
        pd.Series([NOON_NAIVE, None]),
        pd.Series([NOON_NAIVE, None], dtype="datetime64[ns]"),
        pd.Series([NOON_NAIVE, None], dtype=object),
        pd.Series([NOON_NAIVE, None], dtype=ARROW[NAIVE]),
    ],
    "UTC": [
        [NOON, None],
        [BERLIN, None],
        [ROME, None],
        [pd.Timestamp(ROME), pd.NaT],
        pl.Series([NOON, None]).dt.convert_time_zone("Europe/Berlin"),
        pl.Series([NOON, None], dtype=pl.Datetime("ns", "UTC")),
        pd.Series([BERLIN, None]),
        pd.Series([ROME, None]),
        pd.Series([NOON, None], dtype=object),
        pd.Series([NOON, None]).astype(ARROW["UTC"]),
    ],
    DATE: [
        [DAY, None],
        np.array([DAY, None], "datetime64[D]"),
        pl.Series([DAY, None]),
        pd.Series([DAY, None], dtype=object),
        pd.Series([DAY, None], dtype=ARROW[DATE]),
    ],
}
# Values that are times of no kind, though some would count microseconds.
NUMBERS = [
    [MICROSECONDS],
    np.array([MICROSECONDS]),
    np.array([0.5]),
    pl.Series([MICROSECONDS]),
    pd.Series([MICROSECONDS]),
    pd.Series([MICROSECONDS], dtype="Int64"),
    pd.Series([MICROSECONDS], dtype=pd.ArrowDtype(pa.int64())),
    ["1969-07-20"],
    pl.Series(["1969-07-20"]),
    pd.Series(["1969-07-20"]),
    [pd.Period("1969-07-20", "D")],
    pd.Series(pd.period_range("1969-07-20", periods=1, freq="D")),
    pl.Series([timedelta(1)]),
    pl.Series([NOON.time()]),
    [np.datetime64(1_500_001, "ps")],
]


def cases(kinds=TIMES):
    return [(kind, values) for kind in kinds for values in TIMES[kind]]


def column(time, *, is_list=False) -> WireColumn:
    return wire_column(ColumnSchema("when", "int64", is_list=is_list, time=time), nullable=True)


def tables(values):
    """The values as each kind of table: of one row, of several, and as frames."""
    yield {"when": values}
    if isinstance(values, pl.Series):
        yield pl.DataFrame({"when": values})
    if isinstance(values, pd.Series):
        yield pd.DataFrame({"when": values})


@pytest.mark.parametrize(("kind", "values"), cases(), ids=str)
def test_times_of_every_kind_are_sent_as_the_same_microseconds(kind, values):
    expected = MIDNIGHT if kind == DATE else MICROSECONDS
    for table in tables(values):
        made = to_columns([column(kind)], table)["when"]
        assert made.array.dtype == np.int64
        assert made.array[0] == expected
        assert made.valid.tolist() == [True, False]


@pytest.mark.parametrize(("kind", "values"), cases(), ids=str)
@pytest.mark.parametrize("rows", [1, 2])
def test_the_ways_of_few_rows_agree(kind, values, rows):
    contract = Contract((column(kind),), (), (), "", {})
    for table in tables(values[:rows]):
        (request,) = to_requests(contract, table)
        expected = [MIDNIGHT if kind == DATE else MICROSECONDS, -(2**63)]
        assert request["when"].ravel().tolist() == expected[:rows]


@pytest.mark.parametrize("wanted", TIMES)
@pytest.mark.parametrize(("kind", "values"), cases(), ids=str)
def test_client_takes_and_refuses_what_transform_does(wanted, kind, values):
    """Training on each kind of time, and a table of each other kind."""
    workflow = Workflow(["when"]).fit({"when": TIMES[wanted][-1]})
    wire = wire_column(workflow.input_schema["when"], nullable=True)
    assert wire.time == {"UTC": "America/New_York"}.get(wanted, wanted)
    for table in tables(values):
        if kind == wanted:
            sent = to_columns([wire], table)["when"]
            made = to_column(workflow.transform(arrays(table)).collect()["when"])
            assert sent.array[0] == made.array[0]
            continue
        with pytest.raises(
            WorkflowError, match=r"Expected column 'when' as .*Received: date"
        ) as offline:
            workflow.transform(arrays(table))
        with pytest.raises(ClientError, match=r"Column 'when': expected .*Received: ") as online:
            to_columns([wire], table)
        remedy = str(offline.value).partition("Received: ")[2].partition(". ")[2]
        assert remedy
        # Of values of Python's own the client knows no zone, but UTC, in which they count.
        assert remedy.split("(")[0] in online.value.message


def arrays(table):
    """A dict as training takes it: of scalars of numpy Polars makes other times."""
    if not isinstance(table, dict):
        return table
    values = table["when"]
    as_they_are = isinstance(values, pl.Series | np.ndarray) and values.dtype != object
    return table if as_they_are else pd.DataFrame({"when": values})


@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.parametrize("values", NUMBERS, ids=str)
def test_what_is_no_time_is_refused(kind, values):
    expected = {DATE: "date", NAIVE: r"datetime\[us\]", "UTC": r"datetime\[us, UTC\]"}[kind]
    for table in tables(values):
        with pytest.raises(ClientError, match=f"Column 'when': expected {expected}. Received: "):
            to_requests(Contract((column(kind),), (), (), "", {}), table)


def test_error_says_what_to_do_about_numbers_and_texts():
    with pytest.raises(ClientError, match=r"Received: int64. Say what it counts: pl.from_epoch"):
        to_columns([column(NAIVE)], {"when": pl.Series([7])})
    with pytest.raises(ClientError, match=r"Received: strings. Parse it: .str.to_datetime"):
        to_columns([column(NAIVE)], {"when": pl.Series(["7"])})
    with pytest.raises(
        ClientError, match=r"Received: strings. Parse it: .str.to_date\(\) in Polars"
    ):
        to_columns([column(DATE)], {"when": pl.Series(["2024-01-01"])})
    for times in (pl.Series([NOON]), pd.Series([NOON])):
        for dtype, advice in (("string", r"\.dt\.to_string\("), ("int64", r"\.dt\.epoch\(")):
            with pytest.raises(ClientError, match=rf"Received: .*{advice}"):
                to_columns([WireColumn("when", dtype)], {"when": times})
    for texts in (["7"], np.array(["7"]), pd.Series(["7"])):
        with pytest.raises(ClientError, match=r"'7' \(str\) in row 0. Parse it: .*to_datetime"):
            to_columns([column(NAIVE)], {"when": texts})
    with pytest.raises(ClientError, match=r"in row 1. Say which zone .*'Asia/Tokyo'"):
        to_columns([column("Asia/Tokyo")], {"when": [NOON, NOON_NAIVE]})


@pytest.mark.parametrize("nanoseconds", [-1, -1000, -1001, 1999])
@pytest.mark.parametrize(
    "make",
    [
        lambda at: [at],
        lambda at: np.array([at]),
        lambda at: pl.Series(np.array([at])),
        lambda at: pd.Series([at]),
        lambda at: [pd.Timestamp(at)],
        lambda at: pd.Series([at]).astype(pd.ArrowDtype(pa.timestamp("ns"))),
    ],
)
def test_what_is_shorter_than_a_microsecond_is_cut_off_downwards(make, nanoseconds):
    sent = to_columns([column(NAIVE)], {"when": make(np.datetime64(nanoseconds, "ns"))})["when"]
    assert sent.array.tolist() == [nanoseconds // 1000]


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("UTC", [[NOON], None, []]),
        (NAIVE, [np.array([NOON_NAIVE], "datetime64[ns]"), None, []]),
        (NAIVE, pl.Series([[NOON_NAIVE], None, []])),
        (NAIVE, pd.Series([np.array([NOON_NAIVE], "datetime64[ns]"), None, []])),
        (
            NAIVE,
            pd.Series([[NOON_NAIVE], None, []], dtype=pd.ArrowDtype(pa.list_(pa.timestamp("us")))),
        ),
    ],
    ids=str,
)
def test_lists_of_times_are_sent(kind, rows):
    sent = to_columns([column(kind, is_list=True)], {"when": rows})["when"]
    assert sent.array.tolist() == [MICROSECONDS]
    assert sent.lengths.tolist() == [1, 0, 0]


@pytest.mark.parametrize("kind", TIMES)
def test_the_halves_of_lists_of_times_are_read_as_times(kind):
    expected = MIDNIGHT if kind == DATE else MICROSECONDS
    for times in TIMES[kind]:
        halves = {"when__values": times, "when__nnzs": np.array([0, 2])}
        sent = to_columns([column(kind, is_list=True)], halves)["when"]
        assert (sent.array[0], sent.valid.tolist()) == (expected, [True, False])
    for numbers in NUMBERS:
        halves = {"when__values": numbers, "when__nnzs": np.array([len(numbers)])}
        with pytest.raises(ClientError, match="Column 'when__values': expected date"):
            to_columns([column(kind, is_list=True)], halves)


@pytest.mark.parametrize(
    "values",
    [
        [NOON],
        [np.datetime64(NOON_NAIVE, "ns")],
        pl.Series([NOON_NAIVE]),
        np.array([NOON_NAIVE], "datetime64[us]"),
        pd.Series([NOON_NAIVE]),
        pd.Series([NOON_NAIVE], dtype=ARROW[NAIVE]),
    ],
)
def test_times_for_a_column_of_other_numbers_are_refused(values):
    for table in tables(values):
        with pytest.raises(ClientError, match="'when': expected int64"):
            to_requests(Contract((WireColumn("when", "int64"),), (), (), "", {}), table)


def test_arrow_of_pandas_is_sent_as_training_reads_it():
    frame = pd.DataFrame(
        {
            "id": pd.Series([7, None], dtype=pd.ArrowDtype(pa.int64())),
            "price": pd.Series([0.5, None], dtype=pd.ArrowDtype(pa.float64())),
            "city": pd.Series(["a", None], dtype=pd.ArrowDtype(pa.large_string())),
            "tags": pd.Series([["x", None], None], dtype=pd.ArrowDtype(pa.list_(pa.string()))),
        }
    )
    workflow = Workflow(list(frame)).fit(frame)
    wires = [wire_column(c, nullable=True) for c in workflow.input_schema.columns]
    sent, made = to_columns(wires, frame), workflow.transform(frame).collect()
    for name, values in sent.items():
        expected = to_column(made[name])
        assert values.array.tolist() == expected.array.tolist()
        assert operator.eq(
            *(None if m is None else m.tolist() for m in (values.valid, expected.valid))
        )


def test_nan_in_a_list_of_strings_is_null_as_in_training():
    rows = pd.DataFrame({"tags": [["a", float("nan")], ["b"]]})
    made = Workflow(["tags"]).fit(rows).transform(rows).collect()["tags"]
    wire = WireColumn("tags", "string", "flat", nullable=True)
    sent = to_columns([wire], rows)["tags"]
    assert made.to_list() == [["a", None], ["b"]]
    assert (sent.array.tolist(), sent.valid.tolist()) == (["a", "", "b"], [True, False, True])


def test_model_tells_its_clients_of_which_kind_times_are():
    columns = [column(kind) for kind in TIMES]
    assert parse_columns(dump_columns(columns)) == columns
    dtypes = (pl.Date(), pl.Datetime("ms"), pl.Datetime("ns", "Asia/Tokyo"), pl.Int64())
    kinds = [column_schema("when", dtype).time for dtype in dtypes]
    assert kinds == [DATE, NAIVE, "Asia/Tokyo", ""]


@pytest.mark.parametrize(
    ("unit", "microseconds"),
    [
        ("D", 86_400_000_000),
        ("h", 3_600_000_000),
        ("m", 60_000_000),
        ("s", 1_000_000),
        ("ms", 1000),
    ],
)
def test_times_too_far_away_to_be_counted_are_null_as_in_training(unit, microseconds):
    far = np.array([5, 2**60, -(2**60)]).view(f"datetime64[{unit}]")
    for table in tables(far), tables(list(far)):
        for columns in table:
            made = to_columns([column(DATE if unit == "D" else NAIVE)], columns)["when"]
            assert made.array[0] == 5 * microseconds
            assert made.valid.tolist() == [True, False, False]


def test_polars_dates_too_far_away_are_null_as_in_training():
    days = pl.Series([5, 2**31 - 1, -(2**31)], dtype=pl.Int32).cast(pl.Date)
    for table in tables(days):
        made = to_columns([column(DATE)], table)["when"]
        assert made.array[0] == 5 * 86_400_000_000
        assert made.valid.tolist() == [True, False, False]
