"""Columns that take their steps together become what they become one by one, of any kind of table."""

import datetime as dt
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving import ClientError
from serving.connection.tensors import to_bytes
from serving.contract import Contract
from serving.exchange import to_requests
from serving.inputs.encoder import Encoder
from workflow.schema.dtypes import DTYPES as ALL
from workflow.wire.format import WireColumn

DTYPES = ("int32", "int64", "uint64", "float32", "float64")
INTEGERS = (0, 1, -1, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1)
FLOATS = (0.0, -0.5, 3.0, 1e300, float("nan"), float("inf"), 2.0**60, 0.1)
OTHERS = (None, True, "x", decimal.Decimal(1), dt.date(1970, 1, 2))
values = st.sampled_from(INTEGERS) | st.sampled_from(FLOATS) | st.sampled_from(OTHERS)
kinds = [st.sampled_from(kind) for kind in (INTEGERS, FLOATS, (0, 1, 2), (0.5, 0.25))] + [values]
columns_of = st.integers(0, 3).flatmap(
    lambda rows: st.lists(
        st.one_of([st.lists(kind, min_size=rows, max_size=rows) for kind in kinds]),
        min_size=3,
        max_size=3,
    )
)


def contract(dtypes, nullable):
    columns = [WireColumn(f"c{n}", d, nullable=n in nullable) for n, d in enumerate(dtypes)]
    return Contract(tuple(columns), (), (), "", {})


def outcome(contract, data):
    try:
        (request,) = to_requests(contract, data) or [{}]
    except ClientError as error:
        return type(error), str(error)
    return {name: (t.dtype, t.shape, to_bytes(t)) for name, t in request.items()}


class OneByOne(Encoder):
    """An encoder that takes no columns together, and reads no table as Python's own values."""

    encode = Encoder.one_by_one


def one_by_one(contract):
    vars(contract)["encoder"] = OneByOne(contract.inputs)
    return contract


def expect_as_one_by_one(together, alone, table):
    assert outcome(together, table) == outcome(alone, table), table


def tables(columns):
    named = {f"c{n}": column for n, column in enumerate(columns)}
    yield named
    yield {**named, "c1": [*named["c1"], 1]}
    for dtype in ("int32", "int64", "float32", "float64", None):
        try:
            arrays = {name: np.array(column, dtype) for name, column in named.items()}
        except (ValueError, TypeError, OverflowError):
            continue
        yield arrays
        yield {name: array.reshape(-1, 1) for name, array in arrays.items()}
        yield pd.DataFrame(arrays)


@settings(max_examples=75)
@given(
    columns=columns_of,
    dtypes=st.lists(st.sampled_from(DTYPES), min_size=3, max_size=3)
    | st.sampled_from(DTYPES).map(lambda d: [d] * 3),
    nullable=st.sets(st.integers(0, 2)) | st.just({0, 1, 2}),
)
@pytest.mark.filterwarnings("ignore:NumPy will stop allowing conversion:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_together_as_one_by_one(columns, dtypes, nullable):
    together, alone = contract(dtypes, nullable), one_by_one(contract(dtypes, nullable))
    for table in tables(columns):
        expect_as_one_by_one(together, alone, table)


POLARS = (pl.Int8, pl.Int32, pl.Int64, pl.UInt64, pl.Float32, pl.Float64, pl.Boolean, pl.Date)
POLARS += (pl.Datetime("ms"), pl.Duration, pl.Decimal(10, 2), pl.String, pl.List(pl.Int64))


@settings(max_examples=75)
@given(
    columns=st.lists(
        st.tuples(
            st.sampled_from(POLARS) | st.sampled_from([pl.Int64, pl.Float32]),
            st.lists(st.sampled_from([0, 1, 100]) | st.none(), min_size=2, max_size=2)
            | st.just([1, 2]),
        ),
        min_size=3,
        max_size=3,
    ),
    dtype=st.sampled_from(DTYPES),
    nullable=st.sets(st.integers(0, 2)),
)
def test_frames_together_as_one_by_one(columns, dtype, nullable):
    together, alone = contract([dtype] * 3, nullable), one_by_one(contract([dtype] * 3, nullable))
    frame = pl.DataFrame(
        pl.Series(f"c{n}", [[number] for number in numbers]).cast(kind)
        if kind == pl.List
        else pl.Series(f"c{n}", numbers, pl.Int64).cast(kind)
        for n, (kind, numbers) in enumerate(columns)
    )
    for table in (frame, frame.head(1)):
        expect_as_one_by_one(together, alone, table)
        expect_as_one_by_one(together, alone, table.to_pandas())


MIXED = (
    WireColumn("c0", "int64", "flat"),
    WireColumn("c1", "float32", "padded"),
    WireColumn("c2", "string", "flat"),
    WireColumn("c3", "string", nullable=True),
    WireColumn("c4", "string"),
    WireColumn("c5", "int32", nullable=True),
    WireColumn("c6", "bool"),
)
ELEMENTS = {
    pl.Int64: [0, 7, -(2**63)],
    pl.UInt8: [0, 7],
    pl.Float32: [0.5, 2.0, float("nan")],
    pl.String: ["", "a", "ü"],
    pl.Boolean: [True, False],
    pl.Binary: [b"a", b"\xff"],
    pl.Date: [dt.date(1970, 1, 2)],
    pl.Categorical: ["a"],
}


@st.composite
def mixed_frames(draw):
    """Frames of scalars and lists of all kinds, with nulls."""
    rows = draw(st.integers(1, 3))
    columns = []
    for column in MIXED:
        dtype = draw(st.sampled_from([getattr(pl, column.dtype.capitalize(), pl.Int64), *ELEMENTS]))
        element = st.sampled_from(ELEMENTS.get(dtype, [True])) | st.none()
        is_list = draw(st.sampled_from([column.is_list] * 4 + [not column.is_list]))
        value = st.none() | st.lists(element, max_size=3) if is_list else element
        values = draw(st.lists(value, min_size=rows, max_size=rows))
        columns.append(pl.Series(column.name, values, pl.List(dtype) if is_list else dtype))
    return pl.DataFrame(columns)


@settings(max_examples=75)
@given(frame=mixed_frames())
def test_small_frames_are_read_as_large_ones(frame):
    for columns in (MIXED[:2], MIXED[2:5], MIXED[5:], MIXED):
        small, large = (Contract(columns, (), (), "", {}) for _ in range(2))
        one_by_one(large)
        for table in (frame, frame.to_pandas(), frame.to_dict(as_series=False)):
            expect_as_one_by_one(small, large, table)


@pytest.mark.parametrize("rows", [3, 5_000])
@pytest.mark.parametrize("make", [pl.DataFrame, pd.DataFrame])
def test_nulls_and_whole_floats_of_many_columns(rows, make):
    """Ids among which some are missing, as floats in pandas, are sent as ids and nulls."""
    model = contract(["int64", "int64", "float32"], {0, 1, 2})
    ids = [None, 3, 2**40] + [1] * (rows - 3)
    frame = make({"c0": ids, "c1": ids[::-1], "c2": [0.5, None, 1.0] + [2.0] * (rows - 3)})
    (request,) = to_requests(model, frame)
    assert request["c0"][:3].tolist() == [[-(2**63)], [3], [2**40]]
    assert request["c1"][-3:].tolist() == [[2**40], [3], [-(2**63)]]
    np.testing.assert_array_equal(request["c2"][:3], np.float32([[0.5], [np.nan], [1.0]]))


@pytest.mark.parametrize("make", [pl.DataFrame, dict])
def test_a_nan_among_integers_is_null_as_in_training(make):
    table = make({"c0": np.array([1.0, float("nan")])})
    (request,) = to_requests(contract(["int64"], {0}), table)
    assert request["c0"].tolist() == [[1], [-(2**63)]]
    with pytest.raises(ClientError, match="Column 'c0' holds a null"):
        to_requests(contract(["int64"], set()), table)


def test_large_whole_numbers_beside_floats_keep_their_digits():
    model = contract(["int64"], {0})
    (request,) = to_requests(model, {"c0": [2**53 + 1, 2.0, None]})
    assert request["c0"].tolist() == [[2**53 + 1], [2], [-(2**63)]]


def test_a_name_that_a_frame_has_twice_is_an_error():
    frame = pd.DataFrame([[1, 2]], columns=["c0", "c0"])
    with pytest.raises(ClientError, match=r"one column 'c0'\. Received: 2 of that name"):
        to_requests(contract(["int64"], set()), frame)


def test_times_are_not_numbers():
    moments = [dt.datetime(1970, 1, 2)]  # noqa: DTZ001 - as a table holds them
    inputs = (WireColumn("id", "int64"), WireColumn("when", "int64", time="naive"))
    frame = pl.DataFrame({"id": [7], "when": pl.Series(moments, dtype=pl.Datetime("ms"))})
    (request,) = to_requests(Contract(inputs, (), (), "", {}), frame)
    assert request["when"].tolist() == [[86_400_000_000]]
    plain = (WireColumn("id", "int64"), WireColumn("when", "int64"))
    with pytest.raises(ClientError, match="Column 'when'"):
        to_requests(Contract(plain, (), (), "", {}), frame)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("make", [dict, pl.DataFrame, pd.DataFrame])
def test_a_number_that_would_become_infinite_is_an_error(rows, make):
    model = contract(["float32"] * 2, {0})
    table = make({"c0": [0.5] * rows, "c1": [float("inf")] * (rows - 1) + [-1e39]})
    with pytest.raises(ClientError, match=r"Column 'c1': expected float32.*-1e\+39, out of range"):
        to_requests(model, table)


SCALARS = [WireColumn(f"{dtype} column", dtype) for dtype in ALL]
LISTS = [WireColumn("genres", "string", "flat"), WireColumn("scores", "float32", "padded")]
VALUES = {
    "genres": ["Drama", "Krimi ü"],
    "scores": [0.5, 1.5, 2.5],
    **{column.name: 7 for column in SCALARS},
    "bool column": True,
    "float32 column": 0.25,
    "float64 column": 0.1,
    "string column": "ü" * 200,
    "not asked for": "rating",
}
SERIES = {
    name: pl.Series([value], dtype=getattr(pl, ALL[name.split()[0]].polars))
    if name.endswith(" column")
    else pl.Series([value])
    for name, value in VALUES.items()
}
FRAME = pl.DataFrame(SERIES)
TABLES = {
    "lists": {name: [value] for name, value in VALUES.items()},
    "tuples": {name: (value,) for name, value in VALUES.items()},
    "Polars": FRAME,
    "Polars, other order": FRAME[sorted(FRAME.columns)],
    "pandas": FRAME.to_pandas(),
    "arrays": {name: s.to_numpy() for name, s in SERIES.items()}
    | {column.name: [VALUES[column.name]] for column in LISTS},
    "arrays (1, 1)": {name: s.to_numpy().reshape(1, 1) for name, s in SERIES.items()}
    | {column.name: [VALUES[column.name]] for column in LISTS},
}


@pytest.mark.parametrize("columns", [[*LISTS, *SCALARS], SCALARS[-1:], SCALARS[:1], LISTS])
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_row_of_any_kind_of_table_is_one_request(table, columns):
    (request,) = to_requests(Contract(tuple(columns), (), (), "", {}), table)
    assert sorted(request) == sorted(name for column in columns for name in column.tensors)
    for column in columns:
        value, tensor = VALUES[column.name], request[column.values_name]
        expected = [text.encode() if isinstance(text, str) else text for text in np.ravel(value)]
        assert tensor.ravel()[: len(expected)].tolist() == expected
        assert tensor.dtype == ALL[column.dtype].numpy
        if column.is_list:
            assert request[f"{column.name}__nnzs"].tolist() == [[len(value)]]
        else:
            assert tensor.shape == (1, 1)


def test_tables_of_one_service_may_differ():
    model = contract(["int64", "int64"], set())
    for table in (
        pl.DataFrame({"c0": [1], "c1": [2]}),
        pl.DataFrame({"c1": [2], "c0": [1]}),
        pl.DataFrame({"c0": [1], "rating": ["5"], "c1": [2]}),
        pl.DataFrame({"c0": [1], "rating": [5], "c1": [2.0]}),
        pd.DataFrame({"c1": [2], "c0": [1]}),
    ):
        (request,) = to_requests(model, table)
        assert {name: tensor.item() for name, tensor in request.items()} == {"c0": 1, "c1": 2}


ONE = pl.DataFrame({"c0": [1], "c1": [2]})
HARD = {
    "no rows": ONE.head(0),
    "a column is missing": ONE.drop("c1"),
    "a name is there twice": pd.DataFrame([[1, 2, 3]], columns=["c0", "c1", "c1"]),
    "a column is longer": {"c0": [1], "c1": [1, 2]},
    "halves of a list": {"c0": [1], "c1__values": [1], "c1__nnzs": [1]},
    "two columns as one array": {"c0": np.zeros((1, 2), int), "c1": np.zeros((1, 2), int)},
    "no dimension": {"c0": np.array(1), "c1": np.array(2)},
    "moments, which numpy counts": {"c0": np.array([9], "datetime64[ns]"), "c1": np.array([2])},
    "masked": {"c0": np.ma.array([1], mask=[True]), "c1": np.ma.array([1], mask=[False])},
    "a float that is NaN": ONE.with_columns(c1=float("nan")),
    "a null that cannot be sent": ONE.with_columns(c1=pl.lit(None, pl.Int64)),
    "too large": {"c0": [1], "c1": [2**63]},
    "several kinds": {"c0": [1], "c1": pl.Series([2])},
    "no table": [1],
}


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("table", HARD.values(), ids=HARD)
def test_hard_tables_as_one_by_one(table, columns):
    dtypes = ["int64", "int64"][:columns]
    together, alone = contract(dtypes, set()), one_by_one(contract(dtypes, set()))
    expect_as_one_by_one(together, alone, table)


@pytest.mark.parametrize("rows", [1, 300])
def test_an_array_of_nan_is_no_column_of_strings_however_short(rows):
    with pytest.raises(ClientError, match=r"'c0': expected string\. Received: float64"):
        to_requests(contract(["string"], {0}), {"c0": np.full(rows, np.nan)})
