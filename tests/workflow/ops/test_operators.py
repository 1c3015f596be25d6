"""Properties of single operators, beyond those that the conformance suite checks for all."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose

from workflow import Workflow, WorkflowError, get_embedding_sizes, ops


def ids(values, queries=None, **settings) -> list:
    workflow = Workflow(["c"] >> ops.Categorify(**settings)).fit({"c": values})
    return (
        workflow.transform({"c": values if queries is None else queries}).collect()["c"].to_list()
    )


# Categorify


def test_frequent_values_come_first_and_ties_by_value():
    assert ids([5, 9, 9, 1, 5, 7]) == [3, 4, 4, 5, 3, 6]
    assert ids(["b", "a", "é", "a", "B"]) == [5, 3, 6, 3, 4]


def test_padding_null_and_unknown_have_their_ids():
    assert ids([5, None, 5], [5, None, 6, None]) == [3, 1, 2, 1]
    assert ids([["x"], None, []], [["x", None, "y"], None, []]) == [[3, 1, 2], [], []]


def test_rare_values_and_those_beyond_max_size_are_unknown():
    values = [1, 1, 1, 2, 2, 3]
    assert ids(values, freq_threshold=2) == [3, 3, 3, 4, 4, 2]
    assert ids(values, max_size=4) == [3, 3, 3, 2, 2, 2]
    assert ids(values, max_size=5, freq_threshold=3) == [3, 3, 3, 2, 2, 2]


def test_settings_by_column_hold_for_that_column():
    data = {"a": [1, 1, 2], "b": [1, 1, 2]}
    workflow = Workflow(["a", "b"] >> ops.Categorify(freq_threshold={"a": 2})).fit(data)
    assert workflow.transform(data).collect().rows() == [(3, 3), (3, 3), (2, 4)]
    with pytest.raises(
        WorkflowError, match=r"freq_threshold is set for 'c'. The columns are: a, b"
    ):
        Workflow(["a", "b"] >> ops.Categorify(freq_threshold={"c": 2})).fit(data)


@pytest.mark.parametrize(
    "values",
    [
        pl.Series([0, 255, 7], dtype=pl.UInt8),
        pl.Series([-128, 127, 0], dtype=pl.Int8),
        pl.Series([-(2**63), 2**63 - 1, 0], dtype=pl.Int64),
        pl.Series([2**64 - 1, 2**63, 0], dtype=pl.UInt64),
        pl.Series([-(2**62), -5, 3 * 10**12], dtype=pl.Int64),
        pl.Series([True, False]),
        pl.Series(["", "a\0b", "日本"]),
    ],
    ids=lambda values: str(values.dtype),
)
def test_keys_of_every_dtype_are_found(values):
    order = values.sort().to_list()
    assert ids(values) == [3 + order.index(value) for value in values]


def test_another_width_in_transform_finds_the_same_ids():
    wide = pl.Series([3, 2**40, -7, 2**63 - 1])
    workflow = Workflow(["c"] >> ops.Categorify()).fit({"c": wide})
    narrow = pl.Series([3, -7, 5], dtype=pl.Int8)
    assert workflow.transform({"c": narrow}).collect()["c"].to_list() == [4, 3, 2]


def test_cardinality_is_the_rows_an_embedding_needs():
    data = {"user": [1, 2, 3], "genres": [["a"], ["b", "c"], []]}
    workflow = Workflow(["user", "genres"] >> ops.Categorify()).fit(data)
    assert get_embedding_sizes(workflow) == ({"user": (6, 16)}, {"genres": (6, 16)})
    assert get_embedding_sizes(workflow, lambda rows: rows // 2)[0] == {"user": (6, 3)}
    assert workflow.output_schema["user"].properties["domain"] == {
        "min": 0,
        "max": 5,
        "name": "user",
    }


def test_ids_that_the_dtype_does_not_hold_are_refused():
    with pytest.raises(WorkflowError, match="'c' go up to 202, which int8 does not hold"):
        Workflow(["c"] >> ops.Categorify(dtype=np.int8)).fit({"c": list(range(200))}).program  # noqa: B018
    assert max(ids(list(range(125)), dtype=np.int8)) == 127


@pytest.mark.parametrize(
    "settings",
    [
        {"freq_threshold": -1},
        {"freq_threshold": "5"},
        {"freq_threshold": True},
        {"max_size": {"c": 1.5}},
        {"max_size": 3},
        {"dtype": "float32"},
        {"dtype": "string"},
    ],
    ids=str,
)
def test_categorify_settings_are_checked(settings):
    with pytest.raises(WorkflowError, match="Received"):
        ids([1, 2], **settings)


# Normalize


def scaled(values, queries=None, dtype="float64") -> list:
    workflow = Workflow(["c"] >> ops.Normalize(out_dtype=dtype)).fit({"c": values})
    return (
        workflow.transform({"c": values if queries is None else queries}).collect()["c"].to_list()
    )


@pytest.mark.parametrize("offset", [0.0, 1e8, -1e8, 1e12, 1e15])
def test_large_values_with_small_differences_keep_them(offset):
    assert scaled([offset, offset + 1, offset + 2]) == [-1.0, 0.0, 1.0]


@pytest.mark.parametrize("value", [0.1, 1e-12, 1e8 + 0.3, -(2.0**70) / 3])
@pytest.mark.parametrize("rows", [2, 3, 10, 1000, 100_003])
def test_constant_column_is_zero_though_its_mean_is_rounded(value, rows, tmp_path):
    """The mean of ten times 0.1 is not 0.1, and the deviation from it not 0."""
    parts = [rows // 3, rows // 3, rows - 2 * (rows // 3)]
    for number, count in enumerate(parts):
        pl.DataFrame({"c": [value] * count, "l": [[value, value]] * count}).write_parquet(
            tmp_path / f"{number}.parquet", row_group_size=7_001
        )
    workflow = Workflow(["c", "l"] >> ops.Normalize()).fit(tmp_path)
    made = workflow.transform({"c": [value], "l": [[value, None]]}).collect()
    assert made.to_dict(as_series=False) == {"c": [0.0], "l": [[0.0, None]]}


def test_large_values_are_stable_in_many_parts():
    values = 1e8 + np.tile([0.0, 1.0, 2.0], 100_000)
    workflow = Workflow(["c"] >> ops.Normalize()).fit({"c": values})
    [state] = workflow.states.values()
    assert_allclose(state["mean"].array, [1e8 + 1], rtol=1e-15)
    assert_allclose(state["std"].array, [values.std(ddof=1)], rtol=1e-9)


def test_nulls_nan_and_infinities_do_not_count():
    values = [1.0, None, float("nan"), 3.0, float("inf"), float("-inf")]
    assert scaled(values, [1.0, None, 3.0]) == pytest.approx([-(0.5**0.5), None, 0.5**0.5])
    assert scaled(values, [float("inf"), float("nan")]) == [float("inf"), None]


@pytest.mark.parametrize(
    ("values", "query", "expected"),
    [([5.0, 5.0], 7.0, 2.0), ([5.0], 7.0, 2.0), ([None, float("inf")], 7.0, 7.0)],
)
def test_without_a_deviation_only_the_mean_is_subtracted(values, query, expected):
    assert scaled(values, [query]) == [expected]


def test_values_too_large_for_moments_are_refused():
    with pytest.raises(WorkflowError, match=r"Normalize.*'c' are too large.*Clip"):
        scaled([1.7e308, -1.7e308, 1.7e308])


def test_integers_of_any_size_are_scaled():
    assert scaled(pl.Series([2**64 - 1, 0], dtype=pl.UInt64)) == pytest.approx(
        [0.5**0.5, -(0.5**0.5)]
    )


# FillMissing


def test_nan_and_null_are_filled_and_marked():
    data = {"x": [1.5, None, float("nan")], "n": [None, 2, 3]}
    workflow = Workflow(["x", "n"] >> ops.FillMissing(7, add_binary_cols=True)).fit(data)
    made = workflow.transform(data).collect()
    assert made.schema == {
        "x": pl.Float64,
        "x_filled": pl.Boolean,
        "n": pl.Int64,
        "n_filled": pl.Boolean,
    }
    assert made["x"].to_list() == [1.5, 7.0, 7.0]
    assert made["x_filled"].to_list() == [False, True, True]
    assert made["n"].to_list() == [7, 2, 3]


UNFIT = {
    "a fraction": (0.0, [1], "int64, .* Received: 0.0. Choose one, such as 0, or cast .*float64"),
    "a text of numbers": ("x", [0.5], "float64, .* Received: 'x'. Choose one, such as 0\\."),
    "a number of texts": (0, ["a"], "string, .* Received: 0. Choose one, such as ''\\."),
    "a number of booleans": (0, [True], "bool, .* Received: 0. Choose .* True, or cast .*int64"),
    "too large": (2**40, pl.Series([1], dtype=pl.Int8), "int8, .* Received: 1099.* cast .*int64"),
}


@pytest.mark.parametrize(("value", "data", "message"), UNFIT.values(), ids=UNFIT)
def test_fill_value_must_fit_the_column(value, data, message):
    with pytest.raises(WorkflowError, match=f"FillMissing over c: Expected a value of {message}"):
        Workflow(["c"] >> ops.FillMissing(value)).fit({"c": data})


def test_the_advice_for_a_fill_value_works():
    node = ["c"] >> ops.LambdaOp(lambda c: c.cast("float64")) >> ops.FillMissing(0.5)
    assert Workflow(node).fit_transform({"c": [1, None]}).collect()["c"].to_list() == [1.0, 0.5]


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), [0], {"c": 0}])
def test_fill_value_is_one_finite_value(value):
    with pytest.raises(WorkflowError, match="FillMissing needs"):
        ops.FillMissing(value)


def test_indicator_does_not_replace_a_column():
    data = {"x": [1], "x_filled": [2]}
    with pytest.raises(WorkflowError, match="'x_filled' exists"):
        Workflow(["x", "x_filled"] >> ops.FillMissing(0, add_binary_cols=True)).fit(data).program  # noqa: B018


# JoinExternal

MOVIES = {"movieId": [1, 2, None], "genres": [["a", None], [], ["z"]], "year": [1999, None, 3]}


def joined(table, queries, **settings) -> pl.DataFrame:
    node = ["movieId"] >> ops.JoinExternal(table, on="movieId", **settings)
    return Workflow(node).fit(queries).transform(queries).collect()


def test_rows_stay_and_get_the_tables_columns():
    made = joined(MOVIES, {"movieId": [2, 1, 9, None, 1]})
    assert made["movieId"].to_list() == [2, 1, 9, None, 1]
    assert made["genres"].to_list() == [[], ["a", None], [], [], ["a", None]]
    assert made["year"].to_list() == [None, 1999, None, None, 1999]


def test_key_may_have_another_name_and_integer_type_in_the_table():
    table = pl.DataFrame({"id": [1, 2], "year": [3, 4]}, schema={"id": pl.UInt64, "year": pl.Int8})
    made = joined(table, {"movieId": [2, -1, 1]}, on_ext="id", columns_ext=["year"])
    assert made.schema == {"movieId": pl.Int64, "year": pl.Int8}
    assert made["year"].to_list() == [4, None, 3]


def test_table_may_be_parquet_or_pandas(tmp_path):
    pl.DataFrame(MOVIES).write_parquet(tmp_path / "movies.parquet")
    expected = joined(MOVIES, {"movieId": [2, 1]})
    assert joined(tmp_path / "movies.parquet", {"movieId": [2, 1]}).equals(expected)
    assert joined(pl.DataFrame(MOVIES).lazy(), {"movieId": [2, 1]}).equals(expected)


def test_keys_that_occur_twice_are_refused_or_dropped():
    table = {"movieId": [1, 1, 2], "year": [3, 4, 5]}
    with pytest.raises(
        WorkflowError, match=r"1 keys .* for example \[1\].*drop_duplicates_ext=True"
    ):
        joined(table, {"movieId": [1]})
    assert joined(table, {"movieId": [1]}, drop_duplicates_ext=True)["year"].to_list() == [3]


@pytest.mark.parametrize(
    ("table", "settings", "message"),
    [
        (MOVIES, {"columns_ext": ["title"]}, "no column 'title'. It has: movieId, genres, year"),
        (MOVIES, {"on_ext": "id"}, "no column 'id'"),
        (
            {"movieId": ["1"], "year": [1]},
            {},
            r"the key 'movieId' .* as int64, like column 'movieId'\. Received: string\. .*cast\(pl\.",
        ),
        ({"movieId": [True], "year": [1]}, {}, "as int64, like column 'movieId'. Received: bool"),
        ({"movieId": [0.5], "year": [1]}, {}, "takes no floats as keys.*Received: 0.5 in row 0"),
        ({"movieId": [[1]], "year": [1]}, {}, "lookup needs plain keys"),
        ({"movieId": [1], "y": [[[1]]]}, {}, "Expected column 'y'.*Received: List\\(List"),
        (
            {"k": [1], "movieId": [5]},
            {"on_ext": "k"},
            "'movieId' is in the data and in the external",
        ),
    ],
    ids=range(8),
)
def test_table_that_does_not_fit_is_refused(table, settings, message):
    with pytest.raises(WorkflowError, match=f"JoinExternal.*{message}"):
        joined(table, {"movieId": [1]}, **settings)


def test_key_that_is_no_input_is_refused():
    with pytest.raises(WorkflowError, match=r"key 'movie' is not among the input columns movieId"):
        Workflow(["movieId"] >> ops.JoinExternal(MOVIES, on="movie")).fit({"movieId": [1]})


@pytest.mark.parametrize(
    "settings", [{"columns_ext": "genres"}, {"columns_ext": []}, {"on": ["a", "a"]}], ids=str
)
def test_join_settings_are_checked(settings):
    with pytest.raises(WorkflowError, match="Received"):
        ops.JoinExternal(MOVIES, **{"on": "movieId", **settings})


def test_joined_lists_can_be_categorified_and_saved(tmp_path):
    movies = ["movieId"] >> ops.JoinExternal(MOVIES, on="movieId", columns_ext=["genres"])
    workflow = Workflow(movies >> ops.Categorify()).fit({"movieId": [1, 1, 2]})
    workflow.save(tmp_path / "saved")
    made = Workflow.load(tmp_path / "saved").transform({"movieId": [1, 7]}).collect()
    assert made.rows() == [(3, [3, 1]), (2, [])]
