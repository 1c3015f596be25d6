"""A request beyond a limit is refused by its tensors alone."""

import numpy as np
import pytest

from workflow.wire.request_rules import LimitError, expect_within, parse_limits

TENSORS = {
    "user": np.array([[1], [2]]),
    "tags__values": np.array([[b"a"], [b"abc"], [b"\xc3\xa9"]], object),
    "tags__nnzs": np.array([[3], [0]]),
    "padded": np.zeros((2, 8), np.int64),
    "padded__nnzs": np.array([[2], [1]]),
}


@pytest.mark.parametrize(
    "limits", [{}, {"max_rows": 2}, {"max_list_length": 3}, {"max_string_bytes": 3}]
)
def test_what_is_just_within_is_taken(limits):
    expect_within(limits, TENSORS, 2)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_rows": 1}, "it has more than 1 rows"),
        ({"max_list_length": 2}, "tags has a list of more than 2"),
        ({"max_string_bytes": 2}, "tags has a string of more than 2 bytes"),
    ],
)
def test_what_is_beyond_is_refused(limits, reason):
    with pytest.raises(LimitError, match=reason):
        expect_within(limits, TENSORS, 2)


def test_a_wide_tensor_of_short_lists_is_refused():
    # Joined with others it would make all of them as wide.
    wide = {"padded": np.zeros((1, 1000), np.int64), "padded__nnzs": np.array([[1]])}
    with pytest.raises(LimitError, match="padded has a list of more than 10"):
        expect_within({"max_list_length": 10}, wide, 1)


def test_numbers_whose_name_ends_as_that_of_row_lengths_are_no_lists():
    expect_within({"max_list_length": 10}, {"seen__nnzs": np.array([[300]])}, 1)


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"max_rows": 0}', '{"max_rows": "5"}', '{"max_rows": true}', '{"rows": 5}']
)
def test_limits_that_make_no_sense_stop_the_model(text):
    with pytest.raises(ValueError, match="Expect"):
        parse_limits(text)
