"""Columns that take their steps together, and single rows, become what they become one by one."""

import datetime as dt
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2
from tritonclient.utils import triton_to_np_dtype

from serving import ClientError
from serving.connection.messages import infer_request
from serving.connection.tensors import to_bytes
from serving.contract import Contract
from serving.exchange import to_requests
from serving.inputs.few import FewValues
from serving.inputs.row import RowReader
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


def outcomes(contract, data):
    """What becomes of a table as tensors, and as a row where it is read as one."""
    yield outcome(contract, data)
    row = contract.row.of(data)
    if row is not None:
        request = service_pb2.ModelInferRequest.FromString(infer_request("model", "", row))
        yield {
            tensor.name: (np.dtype(triton_to_np_dtype(tensor.datatype)), tuple(tensor.shape), data)
            for tensor, data in zip(request.inputs, request.raw_input_contents, strict=True)
        }


def one_by_one(contract):
    """A contract that finds no columns alike, and reads no table as Python's own values."""
    vars(contract).update(plain_groups=(), few_values=FewValues(()), row=RowReader(()))
    return contract


def expect_as_one_by_one(together, alone, table):
    expected = outcome(alone, table)
    for found in outcomes(together, table):
        assert found == expected, table


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


@settings(max_examples=75, deadline=None)
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


@settings(max_examples=75, deadline=None)
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
        [
            pl.Series(f"c{n}", numbers, pl.Int64).cast(kind)
            for n, (kind, numbers) in enumerate(columns)
        ]
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


@settings(max_examples=75, deadline=None)
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
    """What a table without a schema makes of ids among which some are missing."""
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
    assert model.row.of(table) is None
    with pytest.raises(ClientError, match=r"Column 'c1': expected float32.*-1e\+39, out of range"):
        to_requests(model, table)
