"""Categorify: which value has which id, in every mode. Wrong ids are wrong embeddings, silently."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from categorified import AUTHORS, MAIL, encoded, fitted, ids, properties

from workflow import Workflow, WorkflowError, get_embedding_sizes, ops

# Buckets


def test_values_outside_of_the_vocabulary_share_the_buckets():
    data = {"c": list(range(100)) + [200, 200]}
    workflow = fitted(data, num_buckets=10, freq_threshold=2)
    made = encoded(workflow, data | {"c": [*data["c"], None]})["c"]
    assert made[100:] == [12, 12, 1]
    assert set(made[:100]) == set(range(2, 12))
    assert properties(workflow, "c")["cardinality"] == 13


def test_the_bucket_is_of_the_value_not_of_the_workflow():
    first, second = (fitted({"c": values}, num_buckets=50) for values in ([1, 2], [3]))
    queries = {"c": [10, 11, 12, -5]}
    assert encoded(first, queries) == encoded(second, queries)


@pytest.mark.parametrize("values", [[1, 2, 3], ["a", "b", ""], [True, False]], ids=str)
def test_max_size_of_the_buckets_alone_hashes_everything(values):
    workflow = fitted({"c": values}, num_buckets=10, max_size=12)
    assert properties(workflow, "c")["cardinality"] == 12
    assert all(2 <= bucket < 12 for bucket in encoded(workflow, {"c": values})["c"])
    assert encoded(workflow, {"c": pl.Series([None], dtype=pl.Series(values).dtype)}) == {"c": [1]}


@pytest.mark.parametrize("max_size", [6, {"author": 8, "reader": 7}], ids=str)
def test_max_size_includes_the_ids_before_the_vocabulary(max_size):
    data = {"author": list("AEBCAEBCDFF"), "reader": list("BBADBMADNFE")}
    workflow = fitted(data, max_size=max_size, num_buckets=3)
    made = encoded(workflow, data)
    for name, (rows, _) in get_embedding_sizes(workflow).items():
        assert rows == (max_size if isinstance(max_size, int) else max_size[name])
        assert max(made[name]) == rows - 1


def test_nulls_do_not_take_a_place_of_max_size():
    data = {"c": [None, None, None, 5, 5, 6]}
    assert ids(data, max_size=4)["c"] == [1, 1, 1, 3, 3, 2]


def test_settings_for_one_vocabulary_leave_the_others_alone():
    settings = {
        "num_buckets": {"author_reader": 4},
        "freq_threshold": {"author_reader": 2},
        "max_size": {"age": 4},
    }
    data = AUTHORS | {"age": [1, 1, 2, 3]}
    workflow = fitted(data, [["author", "reader"], "age"], **settings)
    made = encoded(workflow, data)
    assert made["age"] == [3, 3, 2, 2]
    assert made["reader"][:3] == [6, 6, 7]
    assert get_embedding_sizes(workflow) == dict.fromkeys(AUTHORS, (8, 16)) | {"age": (4, 16)}


@pytest.mark.parametrize(
    "settings",
    [
        {"num_buckets": 0},
        {"num_buckets": {"c": 0}},
        {"num_buckets": 10, "max_size": 11},
        {"max_size": 3},
        {"num_buckets": 2.0},
        {"split_out": 0},
        {"encode_type": "single"},
        {"name_sep": 5},
        {"single_table": "yes"},
        {"vocabs": [1, 2]},
        {"vocabs": {"c": []}},
        {"vocabs": {"c": [1, 1]}},
        {"vocabs": {"c": [1, None]}},
        {"vocabs": {"c": [1.5]}},
        {"vocabs": {"c": [[1], [2]]}},
        {"vocabs": {"c": [1, "x"]}},
        {"vocabs": {"c": ["x"]}},
        {"vocabs": {"c": range(10)}, "max_size": 5},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(WorkflowError, match=r"(Received|vocabulary of 'c')"):
        fitted({"c": [1, 2]}, **settings)


@pytest.mark.parametrize("setting", ["num_buckets", "max_size", "vocabs", "split_out"])
def test_settings_for_columns_that_are_not_there_are_refused(setting):
    value = {"z": [1]} if setting == "vocabs" else {"z": 9}
    with pytest.raises(WorkflowError, match=f"{setting} is set for 'z'. The columns are: a_b"):
        fitted({"a": [1], "b": [2]}, [["a", "b"]], **{setting: value})


# Given vocabularies


@pytest.mark.parametrize(
    "form", [list, np.array, pd.Series, pl.Series, lambda v: pl.Series(v, dtype=pl.Categorical)]
)
@pytest.mark.parametrize("freq_threshold", [0, 1, 2])
def test_given_vocabulary_keeps_its_order_whatever_the_counts(form, freq_threshold):
    data = {"authors": [["A"], ["A", "E"], ["B", "C"], ["C"]], "reader": list("BBAD")}
    given = {"authors": form(["A", "C", "B", "E"])}
    made = ids(data, vocabs=given, freq_threshold=freq_threshold)
    assert made["authors"] == [[3], [3, 6], [5, 4], [4]]
    assert made["reader"] == ([3, 3, 2, 2] if freq_threshold == 2 else [3, 3, 4, 5])


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt8, pl.UInt64])
def test_given_integers_are_for_integers_of_any_dtype(dtype):
    assert ids({"c": pl.Series([5, 7, 9], dtype=dtype)}, vocabs={"c": [7, 5]})["c"] == [4, 3, 2]


def test_learnt_lists_leave_rare_elements_out():
    data = {"authors": [["A"], ["A", "E"], ["B", "C"], ["C"]]}
    assert ids(data, freq_threshold=2)["authors"] == [[3], [3, 2], [2, 4], [4]]


def test_given_vocabulary_with_buckets_hashes_only_what_is_not_in_it():
    workflow = fitted({"c": [1, 2]}, vocabs={"c": [30, 10, 20]}, num_buckets=5)
    made = encoded(workflow, {"c": [10, 20, 30, None, 1, 2]})["c"]
    assert made[:4] == [8, 9, 7, 1]
    assert all(2 <= bucket < 7 for bucket in made[4:])
    assert properties(workflow, "c")["cardinality"] == 10


def test_given_vocabulary_of_a_file_and_of_a_group(tmp_path):
    path = tmp_path / "people.parquet"
    pl.DataFrame({"name": ["D", "A", "B"]}).write_parquet(path)
    made = ids(AUTHORS, [["author", "reader"]], vocabs={"author_reader": path})
    assert made == {"author": [4, 2, 5, 2], "reader": [5, 5, 4, 3]}
    # Of several columns the one of its name.
    pl.DataFrame({"age": ["A", "E"], "author": ["C", "A"]}).write_parquet(path)
    assert ids(AUTHORS, ["author"], vocabs={"author": path})["author"] == [4, 2, 2, 3]
    with pytest.raises(WorkflowError, match=r"a column 'reader', or one column, in .*age, author"):
        ids(AUTHORS, ["reader"], vocabs={"reader": path})


def test_given_vocabulary_stays_as_its_owner_writes_to_the_array():
    values = np.array([30, 10, 20])
    operator = ops.Categorify(vocabs={"c": values})
    values[:] = 10
    workflow = Workflow(["c"] >> operator).fit({"c": [10]})
    assert encoded(workflow, {"c": [30, 10, 20]})["c"] == [3, 4, 5]


def test_given_vocabulary_outlives_saving_and_fitting_again(tmp_path):
    workflow = fitted({"a": [1, 2], "b": [1, 2]}, vocabs={"a": [9, 2]})
    workflow.save(tmp_path / "saved")
    loaded = Workflow.load(tmp_path / "saved").fit({"a": [5, 5], "b": [5, 5]})
    assert encoded(loaded, {"a": [9, 2, 5], "b": [5, 2, 1]}) == {"a": [3, 4, 2], "b": [3, 2, 2]}


# One table


def test_ids_of_a_single_table_are_each_of_one_column():
    data = {"author": [None, *"AAEBC"], "reader": [None, *"BBADD"]}
    workflow = fitted(data, single_table=True)
    made = encoded(workflow, data)
    assert made == {"author": [1, 3, 3, 6, 4, 5], "reader": [7, 9, 9, 11, 10, 10]}
    assert encoded(workflow, {"author": ["Z"], "reader": ["Z"]}) == {"author": [2], "reader": [8]}


def test_single_table_has_one_cardinality_that_holds_every_id():
    workflow = fitted(
        AUTHORS | {"age": [1, 1, 2, 3]}, [["author", "reader"], "age"], single_table=True
    )
    assert get_embedding_sizes(workflow) == dict.fromkeys(("author", "reader", "age"), (13, 16))
    assert properties(workflow, "author")["domain"] == {
        "min": 1, "max": 7, "name": "author_reader",
    }  # fmt: skip
    assert properties(workflow, "age")["domain"] == {"min": 8, "max": 12, "name": "age"}


# Values that are easily lost


def test_empty_text_is_a_value_and_null_is_none():
    assert ids({"c": ["", None, "", "a"]})["c"] == [3, 1, 3, 4]
    assert ids({"c": [["", None], None, ["a", ""]]})["c"] == [[3, 1], [], [4, 3]]


def test_columns_of_nothing_but_null_can_be_fitted():
    data = {
        "a": pl.Series([None, None], dtype=pl.Int64),
        "b": pl.Series([None, None], dtype=pl.String),
    }
    for settings in ({}, {"left": [["a", "b"]], "encode_type": "combo"}):
        workflow = fitted(data, **settings)
        unknown = encoded(workflow, {"a": [None, 5], "b": [None, "x"]})
        assert list(unknown.values()) == [[1, 2]] * len(unknown)


@pytest.mark.parametrize("dtype", [pl.UInt64, pl.Int64, pl.Int8, pl.Boolean, pl.String])
@pytest.mark.parametrize("settings", [{}, {"split_out": 3}, {"num_buckets": 7}], ids=str)
def test_every_dtype_has_its_ids(dtype, settings):
    info = {pl.Boolean: [True, False], pl.String: ["é", "", "a\0b"], pl.UInt64: [2**64 - 1, 0, 5]}
    values = pl.Series(info.get(dtype, [-128, 0, 127]), dtype=dtype)
    made = ids({"c": values}, **settings)["c"]
    first = 2 + settings.get("num_buckets", 1)
    order = values.sort().to_list()
    assert made == [first + order.index(value) for value in values]


def test_counting_in_parts_gives_the_same_ids():
    random = np.random.default_rng(0)
    data = {"a": random.integers(0, 3000, 20_000), "b": random.integers(0, 9, 20_000)}
    for left in (["a", "b"], [["a", "b"]]):
        for kind in ("joint", "combo"):
            whole = ids(data, left, encode_type=kind)
            assert ids(data, left, encode_type=kind, split_out=5) == whole


@pytest.mark.parametrize("settings", [{}, {"freq_threshold": 2, "max_size": 5_003}], ids=str)
def test_many_values_have_ids_by_their_counts_and_then_by_value(settings):
    counts = {value: value % 11 + 1 for value in range(10_500)}
    order = sorted(counts, key=lambda value: (-counts[value], value))[: 5_000 if settings else None]
    rows = np.random.default_rng(0).permutation(np.repeat(list(counts), list(counts.values())))
    workflow = fitted({"number": rows, "text": [f"{row:05}" for row in rows]}, **settings)
    wanted = [2] * len(counts)  # values without an id of their own
    for number, value in enumerate(order, 3):
        wanted[value] = number
    made = encoded(workflow, {"number": list(counts), "text": [f"{n:05}" for n in counts]})
    assert made == {"number": wanted, "text": wanted}


# On the way through the graph


def test_embedding_sizes_follow_a_renamed_column():
    names = [f"n{number}" for number in range(26)]
    renamed = ["name"] >> ops.Categorify() >> ops.Rename(postfix="_test")
    workflow = Workflow(renamed).fit({"name": names})
    assert get_embedding_sizes(workflow) == {"name_test": (29, 16)}


def test_a_column_keeps_its_ids_when_another_of_its_group_is_removed(tmp_path):
    settings = {"num_buckets": {"author_reader": 3}}
    workflow = fitted(MAIL, [["author", "reader"]], **settings)
    smaller = workflow.remove_inputs(["reader"])
    smaller.save(tmp_path / "saved")
    for kept in (smaller, Workflow.load(tmp_path / "saved")):
        assert encoded(kept, {"author": MAIL["author"]}) == {
            "author": encoded(workflow, MAIL)["author"]
        }
        assert properties(kept, "author") == properties(workflow, "author")


def test_single_tables_keep_their_places_when_a_column_is_removed():
    workflow = fitted(AUTHORS, single_table=True)
    smaller = workflow.remove_inputs(["author"])
    assert encoded(smaller, AUTHORS) == {"reader": encoded(workflow, AUTHORS)["reader"]}
    assert properties(smaller, "reader") == properties(workflow, "reader")


def test_combinations_go_with_any_of_their_columns():
    left = [["author", "reader"], "reader"]
    workflow = fitted(AUTHORS, left, encode_type="combo")
    smaller = workflow.remove_inputs(["author"])
    assert encoded(smaller, AUTHORS) == {"reader": encoded(workflow, AUTHORS)["reader"]}


def test_a_masked_vocabulary_holds_nulls():
    masked = np.ma.array([5, 6, 7], mask=[False, True, False])
    with pytest.raises(WorkflowError, match="contains null"):
        Workflow(["a"] >> ops.Categorify(vocabs={"a": masked}))
