"""What counts as equal, and how a report tells it; the way to a server is tested end to end."""

import keras
import numpy as np
import polars as pl
import pytest

from serving.errors import ClientError
from serving.parity import (
    OutputParity,
    ParityReport,
    _call,
    _compare,
    _compare_column,
    _features_of,
    _raw_rows,
)
from workflow import Workflow, ops
from workflow.expressions.column import Column
from workflow.wire import WireColumn

NAN, INF = float("nan"), float("inf")


def report(*outputs, rows=3):
    return ParityReport("movies", "5f1d", rows, 1e-5, outputs)


def feature(here, there, dtype):
    return _compare_column(WireColumn("x", dtype, "flat"), pl.Series(here), pl.Series(there))


@pytest.mark.parametrize(
    ("here", "there", "mismatches", "first"),
    [
        ([1.0, 2.0], [1.0, 2.0 + 5e-6], 0, None),
        ([1.0, 2.0, 3.0], [1.0, 2.1, 3.1], 2, 1),
        ([NAN, INF, -INF], [NAN, INF, -INF], 0, None),
        ([NAN, 1.0], [1.0, NAN], 2, 0),
        ([INF, INF], [-INF, 1.0], 2, 0),
    ],
)
def test_floats_are_equal_within_the_tolerance(here, there, mismatches, first):
    found = _compare("x", "prediction", np.array(here), np.array(there), 1e-5)
    assert (found.mismatches, found.first_mismatch) == (mismatches, first)


def test_integers_and_strings_are_equal_or_not():
    big = 2**53
    found = _compare("x", "prediction", np.array([big, 1]), np.array([big + 1, 1]), 10.0)
    assert (found.mismatches, found.first_mismatch) == (1, 0)
    texts = (np.array(["a", "b"], object), np.array(["a", "c"], object))
    assert _compare("x", "feature", *texts, 10.0).first_mismatch == 1


def test_a_row_with_several_values_counts_once():
    here = np.zeros((3, 4))
    there = here.copy()
    there[1] = 1
    found = _compare("x", "prediction", here, there, 0.5)
    assert (found.mismatches, found.first_mismatch, found.max_difference) == (1, 1, 1.0)


def test_arrays_of_different_shapes_are_an_error():
    with pytest.raises(ClientError, match=r"Expected x of the shape \(3,\)"):
        _compare("x", "prediction", np.zeros(3), np.zeros(4), 0.0)


def test_lists_are_compared_row_by_row():
    same = feature([[1, 2], [], [3]], [[1, 2], [], [3]], "int64")
    assert (same.mismatches, same.rows) == (0, 3)
    value = feature([[1, 2], [], [3]], [[1, 2], [], [4]], "int64")
    assert (value.mismatches, value.first_mismatch, value.max_difference) == (1, 2, 1.0)
    # The values are the same, and belong to other rows.
    lengths = feature([[1, 2], [], [3]], [[1], [2], [3]], "int64")
    assert (lengths.mismatches, lengths.first_mismatch) == (2, 0)


def test_a_report_passes_only_with_rows_and_without_mismatches():
    good = OutputParity("score", "prediction", 3, 0, 1e-7, None)
    bad = OutputParity("id", "feature", 3, 1, 4.0, 2)
    assert report(good)
    assert not report(good, bad)
    assert not report(good, rows=0)


def test_the_text_names_the_first_row_that_differs():
    text = str(report(OutputParity("id", "feature", 3, 1, 4.0, 2)))
    assert text.startswith("Parity FAILED: movies, 3 rows")
    assert text.splitlines()[-1].endswith("first at row 2")


def test_the_html_escapes_names():
    name = "<script>alert(1)</script>"
    html = report(OutputParity(name, "feature", 3, 0, 0.0, None)).to_html()
    assert name not in html
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize("rows", [{"a": [1]}, pl.DataFrame({"a": [1], "c": [2]})])
def test_a_missing_column_is_named(rows):
    with pytest.raises(ClientError, match="Received: rows without b"):
        _raw_rows(rows, ["a", "b"])


def test_no_rows_prove_nothing():
    with pytest.raises(ClientError, match="Expected rows to compare"):
        _raw_rows({"a": []}, ["a"])


def test_a_path_is_no_model():
    with pytest.raises(ClientError, match=r"Expected a Keras model.*'m\.keras'.*load_model"):
        _features_of("m.keras", Workflow(["a"] >> ops.Rename(postfix="_x")))


def test_a_sequential_model_that_was_never_called():
    model = keras.Sequential(
        [keras.Input((1,), name="a"), keras.layers.Rescaling(2.0, name="twice")]
    )
    answer = _call(model, {"a": Column(np.array([1.0, 2.0], np.float32), None, None)}, ["twice"])
    assert answer["twice"].tolist() == [[2.0], [4.0]]
