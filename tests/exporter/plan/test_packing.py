"""Packed tensors: what goes in comes out, whatever the names, dtypes and widths."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter.plan.pack_columns import PACKED_FROM, pack_columns
from exporter.write.saved_model import unpack_tensor
from workflow.schema.column import Column
from workflow.schema.dtypes import DTYPES, SchemaError
from workflow.wire.format import WireColumn, encode
from workflow.wire.packed_tensor import dump_packing, pack, parse_packing, unpack

NAMES = ["a", "b", "packed_int64", "packed_int64_", "c", "d", "e"]
LAYOUTS = st.sampled_from([("scalar", None), ("flat", None), ("padded", None), ("fixed", 3)])
COLUMNS = st.lists(
    st.builds(
        lambda name, dtype, nnzs, layout: WireColumn(
            name, dtype, layout[0], nnzs_dtype=nnzs, width=layout[1]
        ),
        st.sampled_from(NAMES),
        st.sampled_from(list(DTYPES)),
        st.sampled_from(["int32", "int64"]),
        LAYOUTS,
    ),
    unique_by=lambda column: column.name,
)


def tensors_of(columns, lengths):
    """Every tensor of some columns, with values that differ."""
    random, sent = np.random.default_rng(0), {}
    for column in columns:
        count = int(lengths.sum()) if column.is_list else len(lengths)
        numbers = random.integers(0, 100, count)
        text = column.dtype == "string"
        values = np.array([b"%d" % n for n in numbers], object) if text else numbers
        if not text:
            values = values.astype(DTYPES[column.dtype].numpy)
        sent |= encode(column, Column(values, None, lengths if column.is_list else None))
    return sent


@given(COLUMNS, st.booleans(), st.sampled_from([(), (0,), (2, 0, 9)]))
def test_what_is_packed_is_unpacked(columns, mixed, lengths):
    travelling, packing = pack_columns(columns, mixed=mixed)
    packing = parse_packing(dump_packing(packing))
    sent = tensors_of(columns, np.array(lengths, np.int64))
    packed = pack(sent, packing)
    assert [tensor.name for tensor in travelling] == list(packed)
    for tensor in travelling:
        assert packed[tensor.name].dtype == DTYPES[tensor.dtype].numpy
        assert tensor.dims[1] in (-1, packed[tensor.name].shape[1])
    assert all(len(one.members) >= PACKED_FROM for one in packing.values())
    opened = unpack(packed, packing)
    assert opened.keys() == sent.keys()
    for name, tensor in sent.items():
        np.testing.assert_array_equal(opened[name], tensor)
        assert opened[name].dtype == tensor.dtype


SOME_OF_ALL = [
    *(WireColumn(f"x_{dtype}", dtype) for dtype in DTYPES),
    WireColumn("three", "float32", "fixed", width=3),
    WireColumn("tags", "int64", "padded", nnzs_dtype="int32"),
    WireColumn("more", "int32", "padded"),
]


@settings(max_examples=10)
@given(COLUMNS, st.sampled_from([(), (0,), (2, 0, 9)]))
@example(SOME_OF_ALL, (2, 0, 9))
@example(SOME_OF_ALL[2:3] + SOME_OF_ALL[-2:], (0,))
def test_a_graph_unpacks_the_same(columns, lengths):
    _, packing = pack_columns(columns, mixed=True)
    sent = tensors_of(columns, np.array(lengths, np.int64))
    packed = pack(sent, packing)
    for name, one in packing.items():
        width = None if one.width < 0 else one.width
        spec = tf.TensorSpec([None, width], one.dtype)
        opened = tf.function(lambda tensor, one=one: unpack_tensor(tensor, one), [spec])(
            packed[name]
        )
        assert opened.keys() == {member.name for member in one.members}
        for member, tensor in opened.items():
            np.testing.assert_array_equal(tensor, sent[member])
            assert tensor.dtype == sent[member].dtype


def test_numbers_travel_as_one_with_the_first_list_that_has_no_width():
    travelling, packing = pack_columns(SOME_OF_ALL, mixed=True)
    assert [tensor.name for tensor in travelling] == ["packed_int8", "x_bool", "x_string", "more"]
    assert packing["packed_int8"].members[-1].name == "tags"


def test_a_list_that_was_filled_up_further_is_unpacked_as_one():
    columns = [WireColumn("id", "int32"), WireColumn("tags", "int64", "padded")]
    _, packing = pack_columns(columns, mixed=True)
    sent = tensors_of(columns, np.array([2, 0, 9], np.int64))
    (name,) = packing
    wider = np.pad(pack(sent, packing)[name], ((0, 0), (0, 6)))
    opened = unpack({name: wider}, packing)
    np.testing.assert_array_equal(opened["tags"], np.pad(sent["tags"], ((0, 0), (0, 3))))


@pytest.mark.parametrize("text", ["[]", "{", '{"a": {"dtype": "int32"}}', '{"a": 1}'])
def test_what_describes_no_packing_is_refused(text):
    with pytest.raises(SchemaError, match="Received: "):
        parse_packing(text)
