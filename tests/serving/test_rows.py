"""Tables of one row, and how a row travels: as the tensors that it stands for."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from serving.connection import http_messages, messages
from serving.connection.tensors import encode_tensors
from serving.contract import Contract
from serving.exchange import to_requests
from serving.inputs.row import RowReader
from workflow.schema.dtypes import DTYPES
from workflow.wire.format import WireColumn

SCALARS = [WireColumn(f"{dtype} column", dtype) for dtype in DTYPES]
LISTS = [WireColumn("genres", "string", "flat"), WireColumn("scores", "float32", "padded")]
COLUMNS = [*LISTS, *SCALARS]
VALUES = {
    "genres": ["Drama", "Krimi ü"],
    "scores": [0.5, 1.5, 2.5],
    **{column.name: 7 for column in SCALARS},
    "bool column": True,
    "float32 column": 0.25,
    "float64 column": 0.1,
    "string column": "ü" * 200,  # Its length takes two bytes of a message.
    "not asked for": "rating",
}
SERIES = {
    name: pl.Series([value], dtype=getattr(pl, DTYPES[name.split()[0]].polars))
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


@pytest.mark.parametrize("columns", [COLUMNS, SCALARS, SCALARS[-1:], SCALARS[:1], LISTS])
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_row_travels_as_its_tensors_do(table, columns):
    row = RowReader(columns).of(table)
    assert row is not None, "a row like most must not take the long way"
    (tensors,) = to_requests(Contract(tuple(columns), (), (), "", {}), table)
    order = [*row.layout.dtypes, *(tensor.name for tensor in row.lists)]
    assert sorted(order) == sorted(tensors)
    encoded = encode_tensors({name: tensors[name] for name in order})
    for infer_request in (messages.infer_request, http_messages.infer_request):
        sent, expected = (infer_request("movies", "3", form) for form in (row, encoded))
        if infer_request is messages.infer_request:
            sent, expected = map(
                messages.service_pb2.ModelInferRequest.FromString, (sent, expected)
            )
        assert sent == expected


def test_tables_of_one_service_may_differ():
    reader = RowReader([WireColumn("a", "int64"), WireColumn("b", "int64")])
    for table in (
        pl.DataFrame({"a": [1], "b": [2]}),
        pl.DataFrame({"b": [2], "a": [1]}),
        pl.DataFrame({"a": [1], "rating": [5], "b": [2]}),
        pd.DataFrame({"b": [2], "a": [1]}),
    ):
        assert reader.of(table).values == [1, 2], table  # noqa: PD011 - a row's


ONE = pl.DataFrame({"a": [1], "b": [2]})
OTHERS = {
    "no rows": ONE.head(0),
    "two rows": pl.concat([ONE, ONE]),
    "two rows of lists": {"a": [1, 2], "b": [1, 2]},
    "two rows of arrays": {"a": np.arange(2), "b": np.arange(2)},
    "a column is missing": ONE.drop("b"),
    "a name is there twice": pd.DataFrame([[1, 2, 3]], columns=["a", "b", "b"]),
    "a column is longer": {"a": [1], "b": [1, 2]},
    "halves of a list": {"a": [1], "b__values": [1], "b__nnzs": [1]},
    "two columns as one array": {"a": np.zeros((1, 2), int), "b": np.zeros((1, 2), int)},
    "no dimension": {"a": np.array(1), "b": np.array(2)},
    "moments, which numpy counts": {"a": np.array([9], "datetime64[ns]"), "b": np.array([2])},
    "masked": {"a": np.ma.array([1], mask=[True]), "b": np.ma.array([1], mask=[False])},
    "a float that is NaN": ONE.with_columns(b=float("nan")),
    "a null that cannot be sent": ONE.with_columns(b=pl.lit(None, pl.Int64)),
    "too large": {"a": [1], "b": [2**63]},
    "no table": [1],
}


@pytest.mark.parametrize("table", OTHERS.values(), ids=OTHERS)
def test_what_takes_a_closer_look_is_no_row(table):
    assert RowReader([WireColumn("a", "int64"), WireColumn("b", "int64")]).of(table) is None
