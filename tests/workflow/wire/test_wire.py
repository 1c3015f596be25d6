"""The wire: every dtype's null code, and lengths that a hostile client may send."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from workflow import SchemaError, Workflow, ops
from workflow.schema.column import Column
from workflow.schema.dtypes import DTYPES
from workflow.wire.format import (
    NNZS,
    VALUES,
    WireColumn,
    decode,
    dump_columns,
    encode,
    null_code,
    parse_columns,
    wire_inputs,
)

NULLABLE = [name for name, info in DTYPES.items() if info.kind != "bool"]


def values_of(dtype: str) -> np.ndarray:
    if dtype == "string":
        return np.array(["a", "", "日本\0"], object)
    return np.array([1, 0, 1], DTYPES[dtype].numpy)


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("dtype", NULLABLE)
def test_what_is_sent_arrives(dtype, nullable):
    wire = WireColumn("c", dtype, nullable=nullable)
    valid = np.array([True, False, True]) if nullable else None
    tensors = encode(wire, Column(values_of(dtype), valid))
    assert {name: tensor.shape for name, tensor in tensors.items()} == {"c": (3, 1)}
    back = decode(wire, tensors)
    assert back.array[::2].tolist() == values_of(dtype)[::2].tolist()
    assert (back.valid.tolist() if nullable else back.valid) == (
        valid.tolist() if nullable else None
    )


@pytest.mark.parametrize("dtype", NULLABLE)
def test_lists_arrive_with_empty_rows_and_null_elements(dtype):
    wire = WireColumn("c", dtype, "flat", nullable=True, nnzs_dtype="int32")
    column = Column(values_of(dtype), np.array([True, False, True]), np.array([0, 2, 0, 1]))
    tensors = encode(wire, column)
    assert tensors["c__values"].shape == (3, 1)
    assert tensors["c__nnzs"].dtype == np.int32
    assert tensors["c__nnzs"].tolist() == [[0], [2], [0], [1]]
    back = decode(wire, tensors)
    assert back.lengths.tolist() == [0, 2, 0, 1]
    assert back.valid.tolist() == [True, False, True]


def test_booleans_travel_and_have_no_null():
    wire = WireColumn("c", "bool")
    assert decode(wire, encode(wire, Column(np.array([True, False])))).values.tolist() == [
        True,
        False,
    ]
    with pytest.raises(SchemaError, match="Cast it to int8"):
        WireColumn("c", "bool", nullable=True)
    with pytest.raises(SchemaError, match="int8"):
        null_code("bool")


@pytest.mark.parametrize(
    "dtype", [d for d in NULLABLE if DTYPES[d].kind not in ("float", "string")]
)
def test_the_code_for_null_cannot_be_sent_as_a_value(dtype):
    code = null_code(dtype)
    assert code == (np.iinfo(dtype).min if dtype[0] == "i" else np.iinfo(dtype).max)
    column = Column(np.array([1, code], dtype))
    with pytest.raises(SchemaError, match=r"'c' holds .* the null code"):
        encode(WireColumn("c", dtype, nullable=True), column)
    plain = WireColumn("c", dtype)  # without nulls the value is one like any other
    assert decode(plain, encode(plain, column)).values.tolist() == [1, code]


def test_what_a_null_holds_does_not_matter():
    wire = WireColumn("c", "int8", nullable=True)
    column = Column(np.array([1, -128], np.int8), np.array([True, False]))
    assert encode(wire, column)["c"].tolist() == [[1], [-128]]


def test_nan_is_null_where_null_can_be_sent():
    wire = WireColumn("c", "float32", nullable=True)
    back = decode(wire, encode(wire, Column(np.array([np.nan, np.inf], np.float32))))
    assert back.valid.tolist() == [False, True]


@pytest.mark.parametrize("dtype", ["int64", "float32", "string"])
def test_null_where_none_can_be_sent_is_refused(dtype):
    column = Column(values_of(dtype), np.array([True, False, True]))
    with pytest.raises(SchemaError, match=r"'c' holds a null.*FillMissing or Categorify"):
        encode(WireColumn("c", dtype), column)


def test_the_advice_for_a_null_among_booleans_works():
    """FillMissing and Categorify do not help: the null cannot be sent to them."""
    flags = {"flag": [True, None, False]}
    node = ["flag"] >> ops.FillMissing(0)
    column = Column(np.array([True, False]), np.array([True, False]))
    with pytest.raises(SchemaError, match=r"'flag' holds a null.*in which the column is int8\.$"):
        encode(WireColumn("flag", "bool"), column)
    small = {"flag": pl.Series(flags["flag"]).cast(pl.Int8)}
    (wire,) = wire_inputs(Workflow(node).fit(small).input_schema, None).values()
    back = decode(wire, encode(wire, Column(np.array([1, 0], np.int8), column.valid)))
    assert back.valid.tolist() == [True, False]


def test_shape_of_the_column_must_be_the_descriptions():
    with pytest.raises(SchemaError, match=r"sent as flat. Received: a scalar"):
        encode(WireColumn("c", "int64", "flat"), Column(np.array([1])))
    with pytest.raises(SchemaError, match=r"sent as scalar. Received: a list"):
        encode(WireColumn("c", "int64"), Column(np.array([1]), None, np.array([1])))


@pytest.mark.parametrize(
    "lengths",
    [
        [-1, 4],
        [4, -1],
        [2, 2],
        [1, 1],
        [],
        [2**62, 2**62, 2**62, 2**62, 3],
        [2**63 - 1, 2**63 - 1, 5],
        [-(2**63), 3],
    ],
    ids=str,
)
def test_row_lengths_that_do_not_add_up_are_refused(lengths):
    tensors = {
        "c" + VALUES: np.array([[1], [2], [3]]),
        "c" + NNZS: np.array(lengths, np.int64).reshape(-1, 1),
    }
    with pytest.raises(SchemaError, match="do not add up"):
        decode(WireColumn("c", "int64", "flat"), tensors)


@pytest.mark.parametrize("layout", ["padded", "fixed"])
def test_rows_of_a_matrix_arrive_without_their_padding(layout):
    column = WireColumn("x", "int64", layout, width=3 if layout == "fixed" else None)
    lengths = {} if layout == "fixed" else {"x__nnzs": np.array([[2], [0], [3]])}
    made = decode(column, {"x": np.array([[7, 8, 0], [0, 0, 0], [1, 2, 3]]), **lengths})
    whole = layout == "fixed"
    assert made.array.tolist() == [7, 8, *[0] * 4 * whole, 1, 2, 3]
    assert made.lengths.tolist() == ([3, 3, 3] if whole else [2, 0, 3])


@pytest.mark.parametrize(
    ("longest", "width"), [(0, 8), (1, 8), (8, 8), (9, 16), (16, 16), (17, 32)]
)
def test_no_element_of_a_list_is_cut_where_requests_choose_the_width(longest, width):
    column = WireColumn("x", "int64", "padded")
    elements = np.arange(1, longest + 2)  # a row of one, and the longest
    tensors = encode(column, Column(elements, None, np.array([1, longest])))
    assert tensors["x"].shape == (2, width)
    assert tensors["x"][1].tolist() == [*elements[1:], *[0] * (width - longest)]
    assert tensors["x__nnzs"].tolist() == [[1], [longest]]


@pytest.mark.parametrize("lengths", [[[2], [4]], [[-1], [2]], [[2]], [[1], [1], [1]]])
def test_row_lengths_that_do_not_fit_into_padded_rows_are_refused(lengths):
    tensors = {"x": np.zeros((2, 3), np.int64), "x__nnzs": np.array(lengths)}
    with pytest.raises(SchemaError, match="row lengths of 'x' do not fit into its rows"):
        decode(WireColumn("x", "int64", "padded"), tensors)


def test_unsigned_lengths_cannot_wrap_round():
    tensors = {"c__values": np.zeros((1, 1)), "c__nnzs": np.array([[2**64 - 1], [2]], np.uint64)}
    with pytest.raises(SchemaError, match="do not add up"):
        decode(WireColumn("c", "float64", "flat", nnzs_dtype="uint64"), tensors)


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("bad", [b"\xff\xff", b"a\xff", b"\xc3", b"\xed\xa0\x80"], ids=repr)
def test_bytes_that_are_no_text_are_refused(bad, nullable):
    tensors = {"c": np.array([[b"ok"], [bad]], object)}
    with pytest.raises(SchemaError, match="not UTF-8"):
        decode(WireColumn("c", "string", nullable=nullable), tensors)


def test_the_null_string_is_no_text_where_no_null_can_be_sent():
    with pytest.raises(SchemaError, match="not UTF-8"):
        decode(WireColumn("c", "string"), {"c": np.array([[b"\xff"]], object)})


def test_half_a_surrogate_cannot_be_sent():
    with pytest.raises(SchemaError, match="surrogates"):
        encode(WireColumn("c", "string"), Column(np.array(["\ud800"], object)))


@pytest.mark.parametrize("layout", ["scalar", "flat"])
@pytest.mark.parametrize("dtype", NULLABLE)
def test_no_rows_travel_too(dtype, layout):
    wire = WireColumn("c", dtype, layout, nullable=True)
    lengths = np.zeros(0, np.int64) if layout == "flat" else None
    back = decode(wire, encode(wire, Column(np.empty(0, DTYPES[dtype].numpy), None, lengths)))
    assert back.rows == 0


def test_descriptions_travel_as_text():
    columns = [
        WireColumn("a", "int64", nullable=True),
        WireColumn("b", "string", "flat", nnzs_dtype="int32"),
    ]
    assert parse_columns(dump_columns(columns)) == columns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "[3]",
        "{",
        '[{"name": "a"}]',
        '[{"name": "a", "dtype": "int65"}]',
        '[{"name": "a", "dtype": "int64", "more": 1}]',
        '[{"name": "a", "dtype": "int64", "layout": "ragged"}]',
        '[{"name": [], "dtype": "int64"}]',
        '[{"name": "a", "dtype": "int64", "nullable": []}]',
        '[{"name": "a", "dtype": "int64", "time": null}]',
        '[{"name": "a", "dtype": "bool", "nullable": true}]',
        '[{"name": "a", "dtype": "int64", "nnzs_dtype": "float32"}]',
    ],
)
def test_text_that_describes_no_columns_is_refused(text):
    with pytest.raises(SchemaError):
        parse_columns(text)
