"""Columns that are read together are what they are one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow.schema.dtypes import DTYPES
from workflow.wire.alike import decode_group, groups_of
from workflow.wire.format import NullError, WireColumn, decode_request, null_code

NUMBERS = [name for name, info in DTYPES.items() if info.kind in ("int", "uint", "float")]


def tensor(dtype, rows):
    """Values among which the null code is often."""
    plain = st.sampled_from([0, 1, 7])
    code = null_code(dtype)
    return st.lists(st.one_of(plain, st.just(code)), min_size=rows, max_size=rows).map(
        lambda values: np.array(values, DTYPES[dtype].numpy).reshape(-1, 1)
    )


@given(data=st.data(), dtype=st.sampled_from(NUMBERS), nullable=st.booleans())
def test_a_group_is_decoded_as_its_columns(data, dtype, nullable):
    columns = [WireColumn(name, dtype, nullable=nullable) for name in "abc"]
    requests = [
        {column.name: data.draw(tensor(dtype, rows)) for column in columns}
        for rows in data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    ]
    (group,) = groups_of(columns)
    joint = {c.name: np.concatenate([request[c.name] for request in requests]) for c in columns}
    if not nullable and any(np.isnan(tensor).any() for tensor in joint.values()):
        with pytest.raises(NullError):
            decode_group(group, requests)
        return
    together = decode_group(group, requests)
    for column in columns:
        alone = decode_request(column, joint)
        made = together[column.name]
        np.testing.assert_array_equal(made.values, alone.values)
        assert made.values.dtype == alone.values.dtype
        assert (made.valid is None) == (alone.valid is None)
        if alone.valid is not None:
            np.testing.assert_array_equal(made.valid, alone.valid)


@pytest.mark.parametrize(
    "other",
    [
        WireColumn("b", "int32"),
        WireColumn("b", "int64", nullable=True),
        WireColumn("b", "int64", "flat"),
        WireColumn("b", "bool"),
        WireColumn("b", "string"),
    ],
)
def test_only_columns_that_are_alike_are_one_group(other):
    groups = groups_of([WireColumn("a", "int64"), other])
    assert ("a", "b") not in [names for _, names in groups]
    assert ("a",) in [names for _, names in groups]
