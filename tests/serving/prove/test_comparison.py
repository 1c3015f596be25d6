"""Equality between the server and the offline pipeline."""

import numpy as np
import polars as pl
import pytest

from serving.errors import ClientError
from serving.prove.comparison import as_text, compare_feature, compare_prediction
from serving.prove.report import worst_of_all
from workflow.wire.format import WireColumn

NAN, INF = float("nan"), float("inf")


def prediction(offline, served, tolerance=1e-5):
    return compare_prediction("x", np.array(offline), np.array(served), tolerance)


def feature(offline, served, dtype, layout="flat", polars=None, **settings):
    column = WireColumn("x", dtype, layout, **settings)
    return compare_feature(
        column, pl.Series(offline, dtype=polars), pl.Series(served, dtype=polars)
    )


def test_answers_to_a_nan_are_compared_where_both_sides_have_a_number():
    offline, served = np.array([NAN, 0.5, 0.5, NAN]), np.array([0.4, NAN, 0.6, 0.4])
    found = compare_prediction("x", offline, served, 1e-5, np.array([True, True, True, False]))
    assert (found.mismatches, found.first_mismatch, found.undefined) == (2, 2, 2)
    assert found.max_difference == INF
    others = compare_prediction("x", offline[:3], served[:3], 1e-5, np.ones(3, bool))
    assert others.max_difference == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("offline", "served", "mismatches", "first"),
    [
        ([1.0, 2.0], [1.0, 2.0 + 5e-6], 0, None),
        ([1.0, 2.0, 3.0], [1.0, 2.1, 3.1], 2, 1),
        ([NAN, INF, -INF], [NAN, INF, -INF], 0, None),
        ([NAN, 1.0], [1.0, NAN], 2, 0),
        ([INF, INF], [-INF, 1.0], 2, 0),
        ([1.0, 1e308], [INF, -1e308], 2, 0),
        ([0.0, 1e-9], [9e-6, 2e-9], 0, None),
        ([0.0, -0.5], [1.1e-5, -0.50002], 2, 0),
    ],
)
def test_floats_are_equal_within_the_tolerance(offline, served, mismatches, first):
    found = prediction(offline, served)
    assert (found.mismatches, found.first_mismatch) == (mismatches, first)


def test_large_floats_are_judged_by_their_own_size():
    """No float32 near 2,000 is within 1e-5 of its neighbour."""
    large = np.array([2000.0, -2000.0], np.float32)
    assert prediction(large, np.nextafter(large, np.float32(INF))).mismatches == 0
    assert prediction([2000.0, -2000.0], [2000.03, -2000.03]).mismatches == 2


def test_the_difference_told_is_the_one_judged():
    assert prediction([2000.0, 0.25], [2002.0, 0.25]).max_difference == 1e-3
    assert prediction([0.5], [0.25]).max_difference == 0.25
    assert prediction([2000], [2002]).max_difference == 2
    within = prediction([4.0], [4.5], tolerance=0.125)
    assert (within.mismatches, within.max_difference) == (0, 0.125)
    assert prediction([4.0], [4.5], tolerance=0.124).mismatches == 1


@pytest.mark.parametrize("pair", [(2**53, 2**53 + 1), (-(2**63), 2**63 - 1), (2**40, 2**40 - 1)])
def test_integers_are_equal_or_not(pair):
    found = prediction([pair[0], 1], [pair[1], 1], tolerance=10.0)
    assert (found.mismatches, found.first_mismatch) == (1, 0)
    assert found.max_difference == float(abs(pair[1] - pair[0]))
    assert prediction([True, False], [True, True], tolerance=10.0).first_mismatch == 1


@pytest.mark.parametrize("pair", [(2**53, 2**53 + 1), (2**63 + 5, 5 - 2**63), (2**63, 2**63 - 1)])
def test_integers_of_another_sign_are_equal_or_not(pair):
    """A workflow's uint64 that the network takes as int64."""
    offline, served = (np.array([one, 7], kind) for one, kind in zip(pair, "Qq", strict=True))
    for here, there in ((offline, served), (served, offline)):
        found = compare_prediction("x", here, there, 10.0)
        assert (found.mismatches, found.first_mismatch) == (1, 0)
        assert found.max_difference == float(abs(pair[0] - pair[1]))
    assert compare_prediction("x", offline, offline.astype(object).astype("Q"), 0.0).mismatches == 0


def test_strings_are_equal_as_bytes_and_as_text():
    network = np.array([[b"a"], ["ü".encode()], [b"\xff"]], object)
    client = np.array([["a"], ["ü"], [b"\xff"]], object)
    assert compare_prediction("x", network, client, 0.0).mismatches == 0
    client[1] = "u"
    assert compare_prediction("x", network, client, 10.0).first_mismatch == 1


def test_a_row_with_several_values_counts_once():
    offline = np.zeros((3, 2, 2))
    served = offline.copy()
    served[1] = 1
    found = compare_prediction("x", offline, served, 0.5)
    assert (found.mismatches, found.first_mismatch, found.max_difference) == (1, 1, 1.0)
    lists = feature([[1], [1, 2]], [[1], [3, 4]], "int64")
    assert (lists.mismatches, lists.first_mismatch) == (1, 1)


def test_arrays_of_different_shapes_are_an_error():
    with pytest.raises(ClientError, match=r"Expected x of the shape \(3,\)"):
        compare_prediction("x", np.zeros(3), np.zeros(4), 0.0)
    for values in ([1, 2], [[1], [2]]):
        with pytest.raises(ClientError, match=r"Expected x of the shape \(2,\). Received: \(1,\)"):
            feature(values, values[:1], "int64", "flat" if values[0] == [1] else "scalar")


def test_lists_are_compared_row_by_row():
    same = feature([[1, 2], [], [3]], [[1, 2], [], [3]], "int64")
    assert (same.mismatches, same.rows) == (0, 3)
    value = feature([[1, 2], [], [3]], [[1, 2], [], [4]], "int64")
    assert (value.mismatches, value.first_mismatch, value.max_difference) == (1, 2, 1.0)
    # The values are the same, and belong to other rows.
    lengths = feature([[1, 2], [], [3]], [[1], [2], [3]], "int64")
    assert (lengths.mismatches, lengths.first_mismatch, lengths.max_difference) == (2, 0, INF)


def test_lists_of_every_kind():
    assert feature([["a"], ["b", ""]], [["a"], ["b", ""]], "string").mismatches == 0
    assert feature([["a"], ["b"]], [["a"], ["c"]], "string").first_mismatch == 1
    cut = feature([["a", "b"], []], [["a"], [""]], "string", "fixed", width=1)
    assert (cut.mismatches, cut.rows) == (0, 2)
    empty = feature([[], None], [[], []], "int64", polars=pl.List(pl.Int64))
    assert (empty.mismatches, empty.rows) == (0, 2)
    near = feature([[100.0]], [[100.00001]], "float64")
    assert near.mismatches == 0
    assert feature([[100.0]], [[100.001]], "float64").mismatches == 1


@pytest.mark.parametrize("layout", ["flat", "scalar"])
def test_a_null_is_no_zero(layout):
    values = [[2**60, None], [2**60, 0]] if layout == "scalar" else [[[1, None]], [[1, 0]]]
    found = feature(*values, "int64", layout, nullable=True)
    assert (found.mismatches, found.max_difference) == (1, INF)
    assert feature(values[0], values[0], "int64", layout, nullable=True).mismatches == 0


def test_integers_beside_a_null_are_exact():
    found = feature([2**60, None], [2**60 + 1, None], "int64", "scalar", nullable=True)
    assert (found.mismatches, found.max_difference) == (1, 1.0)


def test_served_integers_are_exact_beside_floats():
    column = WireColumn("x", "int64", "scalar")
    offline, served = pl.Series([1e7 + 1, 7.0]), pl.Series([10_000_002, 7])
    assert compare_feature(column, offline, served).mismatches == 1


def test_a_null_float_travels_as_nan():
    column = WireColumn("x", "float32", nullable=True)
    offline, served = pl.Series([None, NAN, 0.1]), pl.Series([NAN, None, 0.1], dtype=pl.Float32)
    assert compare_feature(column, offline, served).mismatches == 0
    assert feature([None], [0.0], "float64", "scalar", pl.Float64).mismatches == 1


def test_the_rows_that_differ_most_are_kept_those_beyond_the_tolerance_first():
    offline = np.array([[0.5], [2.0], [1.0], [4.0], [0.25], [8.0]])
    served = offline + np.array([[0.0], [1e-6], [0.5], [1.0], [0.3], [2e-6]])
    found = compare_prediction("y", offline, served, 1e-5)
    # By paper: 1e-6 / 2, 0.5 / 1, 1 / 4, 0.3 / 1 and 2e-6 / 8, of which three are kept.
    assert [(one.row, one.equal) for one in found.worst] == [(2, False), (4, False), (3, False)]
    assert [one.difference for one in found.worst] == pytest.approx([0.5, 0.3, 0.25])
    assert (found.worst[0].offline, found.worst[0].served) == ("1.0", "1.5")
    near = compare_prediction("y", offline[:2], served[:2], 1e-5)
    assert [(one.row, one.equal) for one in near.worst] == [(1, True), (0, True)]
    same = compare_prediction("y", offline, offline, 1e-5).worst
    assert [(one.row, one.difference, one.served) for one in same[:2]] == [
        (0, 0.0, "0.5"),
        (1, 0.0, "2.0"),
    ]


def test_of_equal_differences_each_output_is_shown_before_one_is_shown_twice():
    offline = np.ones((4, 1))
    outputs = [compare_prediction(name, offline, offline + 0.5, 1e-5) for name in "ab"]
    outputs.append(compare_prediction("same", offline, offline, 1e-5))
    shown = [(output.name, found.row) for output, found in worst_of_all(outputs)]
    assert shown == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2), ("same", 0)]


def test_worst_rows_of_lists_and_strings_show_the_whole_row():
    lists = compare_feature(
        WireColumn("ids", "int64", "flat"),
        pl.Series([[1, 2], [3], []]),
        pl.Series([[1, 2], [4], []]),
    )
    one = lists.worst[0]
    assert (one.row, one.offline, one.served, one.difference) == (1, "[3]", "[4]", 1.0)
    texts = compare_feature(
        WireColumn("word", "string", nullable=True), pl.Series(["a", None]), pl.Series(["a", "b"])
    )
    one = texts.worst[0]
    assert (one.row, one.offline, one.served) == (1, "null", "'b'")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([1.5], np.float32), "1.5"),
        (np.array([[1, 2]]), "[1, 2]"),
        (b"\xff", "'\\\\xff'"),
        ("x" * 1000, "'" + "x" * 199 + "\u2026"),
        (np.arange(10**6), f"{list(range(21))}"),
    ],
)
def test_a_value_is_shown_in_a_short_text(value, text):
    assert as_text(value) == text
