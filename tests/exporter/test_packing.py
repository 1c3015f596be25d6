"""Packed tensors: what goes in comes out, whatever the names."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exporter.packing import PACKED_FROM, pack_columns
from workflow.packing import pack, unpack
from workflow.wire import WireColumn

COLUMNS = st.lists(
    st.builds(
        WireColumn,
        name=st.sampled_from(["a", "b", "packed_int64", "packed_int64_", "c", "d", "e"]),
        dtype=st.sampled_from(["int64", "float32"]),
        layout=st.sampled_from(["scalar", "flat", "padded"]),
    ),
    unique_by=lambda column: column.name,
)


@given(COLUMNS)
def test_what_is_packed_is_unpacked(columns):
    travelling, packing = pack_columns(columns)
    sent = {}
    for number, column in enumerate(columns):
        for name, dtype in column.tensors.items():
            rows = 5 if name == column.values_name and column.layout == "flat" else 3
            sent[name] = np.full((rows, 1), number, dtype)
    packed = pack(sent, packing)
    assert [tensor.name for tensor in travelling] == list(packed)
    assert {t.name: t.dims[1] for t in travelling if t.name in packing} == {
        name: packed[name].shape[1] for name in packing
    }
    assert all(len(members) >= PACKED_FROM for members in packing.values())
    opened = unpack(packed, packing)
    assert opened.keys() == sent.keys()
    for name, tensor in sent.items():
        np.testing.assert_array_equal(opened[name], tensor)
        assert opened[name].dtype == tensor.dtype
