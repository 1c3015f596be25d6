"""Categorify over groups of columns: they share a vocabulary, or become one column."""

from __future__ import annotations

import polars as pl
import pytest
from categorified import AUTHORS, MAIL, encoded, fitted, ids, properties

from workflow import WorkflowError

# Groups that share a vocabulary


def test_one_person_has_one_id_in_both_columns_of_a_joint_group():
    made = ids(AUTHORS, [["author", "reader"]])
    assert made == {"author": [4, 7, 3, 5], "reader": [3, 3, 4, 6]}


def test_one_person_has_one_id_in_a_column_and_in_lists():
    made = ids(MAIL, [["author", "reader"]])
    assert made == {"author": [3, 7, 4, 5], "reader": [[4, 5], [], [3, 6], [3]]}


def test_without_a_group_columns_have_ids_of_their_own():
    made = ids(AUTHORS, ["author", "reader"], encode_type="combo")
    assert made == ids(AUTHORS) == {"author": [3, 6, 4, 5], "reader": [3, 3, 4, 5]}


def test_domains_say_which_columns_can_share_an_embedding():
    shared = fitted(AUTHORS, [["author", "reader"]])
    expected = {"cardinality": 8, "domain": {"min": 0, "max": 7, "name": "author_reader"}}
    found = dict(properties(shared, "author"))
    assert found == properties(shared, "reader")
    assert len(found.pop("fit_digest")) == 32
    assert found == expected
    alone = fitted(AUTHORS)
    assert properties(alone, "author")["domain"]["name"] == "author"
    assert properties(alone, "reader")["domain"] == {"min": 0, "max": 5, "name": "reader"}


@pytest.mark.parametrize("dtypes", [(pl.Int8, pl.UInt32), (pl.UInt64, pl.UInt8)], ids=str)
def test_integers_of_different_widths_share_a_vocabulary(dtypes):
    data = {name: pl.Series([5, 7, 5], dtype=t) for name, t in zip("ab", dtypes, strict=True)}
    assert ids(data, [["a", "b"]]) == {"a": [3, 4, 3], "b": [3, 4, 3]}


@pytest.mark.parametrize(
    "columns",
    [
        {"a": [1], "b": ["x"]},
        {"a": [1], "b": [True]},
        {"a": [1], "b": pl.Series([1], dtype=pl.UInt64)},
    ],
    ids=str,
)
def test_values_that_are_never_equal_cannot_share_a_vocabulary(columns):
    with pytest.raises(WorkflowError, match=r"share a vocabulary.*Received: 'a', int64.*'b'"):
        fitted(columns, [["a", "b"]])


def test_a_column_in_two_joint_groups_is_refused():
    with pytest.raises(WorkflowError, match="Column 'a' is in two groups"):
        fitted({"a": [1], "b": [1], "c": [1]}, [["a", "b"], ["a", "c"]])


def test_vocabularies_of_one_name_are_refused():
    data = {name: [1] for name in ("a", "b_c", "a_b", "c")}
    with pytest.raises(WorkflowError, match=r"named 'a_b_c'.*name_sep"):
        fitted(data, [["a", "b_c"], ["a_b", "c"]])
    assert len(ids(data, [["a", "b_c"], ["a_b", "c"]], name_sep="-")) == 4


# Combinations


@pytest.mark.parametrize(
    "left",
    [
        [["author", "reader"], ["author"], ["reader"]],
        [["author", "reader"], "author", "reader"],
        ["author", "reader", ["author", "reader"]],
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("author", "reader", "a", "r", "both"),
    [
        ("BEBC", "CBAD", [3, 5, 3, 4], [5, 4, 3, 6], [4, 6, 3, 5]),
        ("AEBC", "BBAD", [3, 6, 4, 5], [3, 3, 4, 5], [3, 6, 4, 5]),
        ("CEBC", "BBAD", [3, 5, 4, 3], [3, 3, 4, 5], [4, 6, 3, 5]),
        ("ABCC", "ABCC", [4, 5, 3, 3], [4, 5, 3, 3], [4, 5, 3, 3]),
        ("CEBA", "CBAD", [5, 6, 4, 3], [5, 4, 3, 6], [5, 6, 4, 3]),
        (".CBA", ".BAD", [1, 5, 4, 3], [1, 4, 3, 5], [1, 5, 4, 3]),
    ],
)
def test_combinations_stand_beside_their_columns(left, author, reader, a, r, both):
    data = {"author": letters(author), "reader": letters(reader)}
    made = ids(data, left, encode_type="combo")
    assert made == {"author": a, "reader": r, "author_reader": both}


def letters(text: str) -> list[str | None]:
    return [None if letter == "." else letter for letter in text]


def test_null_in_a_combination_is_a_value_and_all_null_is_null():
    data = {"a": [1, 1, None, None, None], "b": ["x", None, "x", None, None]}
    workflow = fitted(data, [["a", "b"]], encode_type="combo")
    assert encoded(workflow, data) == {"a_b": [5, 4, 3, 1, 1]}
    assert properties(workflow, "a_b")["cardinality"] == 6


def test_unseen_combinations_of_seen_values_are_unknown():
    data = {"a": [1, 2], "b": ["x", "y"], "c": [True, False]}
    workflow = fitted(data, [["a", "b", "c"]], encode_type="combo")
    queries = {"a": [1, 2, 1, 9], "b": ["x", "y", "y", "x"], "c": [True, False, True, True]}
    assert encoded(workflow, queries) == {"a_b_c": [3, 4, 2, 2]}


def test_order_counts_in_a_combination_and_in_its_buckets():
    data = {"a": ["x"], "b": ["y"]}
    workflow = fitted(data, [["a", "b"]], encode_type="combo", num_buckets=1000)
    made = encoded(workflow, {"a": ["x", "y", "p", "q", "p"], "b": ["y", "x", "q", "p", None]})
    first, *others = made["a_b"]
    assert first == 1002
    assert len(set(others)) == 4
    assert all(2 <= bucket < 1002 for bucket in others)


@pytest.mark.parametrize(
    "data", [{"a": [1], "b": [["x"]]}, {"a": [1.5], "b": ["x"]}], ids=["list", "float"]
)
def test_combinations_of_lists_and_floats_are_refused(data):
    with pytest.raises(WorkflowError, match=r"Received: column '[ab]', (list|float)"):
        fitted(data, [["a", "b"]], encode_type="combo")
