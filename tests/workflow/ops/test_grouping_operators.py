"""Operators over groups of rows give what a loop over the rows gives."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from itertools import product

import numpy as np
import pandas as pd
import polars as pl
import pytest
from grouped_ratings import grouped, in_files, known, ratings
from numpy.testing import assert_allclose

from workflow import Workflow, WorkflowError, ops


def near(value: float | None):
    return None if value is None else pytest.approx(value, rel=1e-6)


# JoinGroupby


def test_statistics_of_groups_are_those_of_their_rows(tmp_path):
    frame = ratings()
    stats = ["count", "sum", "mean", "std", "var", "min", "max"]
    described = [["user", "city"], "user"] >> ops.JoinGroupby("rating", stats=stats)
    made = Workflow(described).fit(in_files(frame, tmp_path)).transform(frame).collect()
    for key in (("user", "city"), ("user",)):
        groups, prefix = grouped(frame, *key), "_".join(key)
        for row, result in zip(frame.rows(named=True), made.rows(named=True), strict=True):
            rows = groups[tuple(row[name] for name in key)]
            values = known(rows, "rating")
            assert result[f"{prefix}_count"] == len(rows)
            assert result[f"{prefix}_rating_sum"] == sum(values)
            assert result[f"{prefix}_rating_min"] == min(values, default=None)
            assert result[f"{prefix}_rating_max"] == max(values, default=None)
            expected = [
                statistics.fmean(values) if values else None,
                statistics.stdev(values) if len(values) > 1 else None,
                statistics.variance(values) if len(values) > 1 else None,
            ]
            received = [result[f"{prefix}_rating_{stat}"] for stat in ("mean", "std", "var")]
            assert received == [near(value) for value in expected]


def test_group_that_was_not_there_has_count_zero_and_nothing_else():
    described = ["user"] >> ops.JoinGroupby("price", stats=["count", "sum", "max"])
    workflow = Workflow(described).fit({"user": [1, 1], "price": [2.0, 3.0]})
    assert workflow.transform({"user": [9, None, 1]}).collect().rows() == [
        (0, None, None),
        (0, None, None),
        (2, 5.0, 3.0),
    ]


def test_several_keys_find_their_own_group_alone():
    keys = {"user": [1, 2, 3, None], "city": ["x", "y", "z", None], "flag": [True, None]}
    have = [group for n, group in enumerate(product(*keys.values())) if n % 3]
    counts = Counter(have + have[::2])
    rows = pl.DataFrame(list(counts.elements()), list(keys), orient="row")
    workflow = Workflow([list(keys)] >> ops.JoinGroupby(stats=["count"])).fit(rows)
    # With a value of each column that did not occur: below, between and above the others.
    every = list(
        product([0, 1, 2, 3, 9, None], ["", "x", "xx", "z", "zz", None], [False, True, None])
    )
    made = workflow.transform(pl.DataFrame(every, list(keys), orient="row")).collect()
    assert made.to_series().to_list() == [counts[group] for group in every]


@pytest.mark.parametrize("key", ["0.finite", "0.sum", "key0", "rows"])
@pytest.mark.parametrize("left", [lambda key: [key], lambda key: [["city", key]]])
def test_a_key_may_have_a_name_of_our_own(key, left):
    keys, values = [1, 1, 2], [7, 8, 9]
    data = {key: keys, "city": ["a", "a", "a"], "n": values}
    workflow = Workflow(left(key) >> ops.JoinGroupby("n", stats=["count", "mean"])).fit(data)
    rows = workflow.transform(data).collect().rows()
    assert rows == [
        (keys.count(k), statistics.mean(v for o, v in zip(keys, values, strict=True) if o == k))
        for k in keys
    ]


def test_small_deviation_of_large_values_is_kept():
    # Sums of squares would give 0 here, and a network a feature that tells nothing.
    prices = [1e8, 1e8 + 1, 1e8 + 2]
    described = ["user"] >> ops.JoinGroupby("price", stats="std")
    workflow = Workflow(described).fit({"user": [1] * 3, "price": prices})
    assert workflow.transform({"user": [1]}).collect().item() == 1.0


@pytest.mark.parametrize("count", [2, 3, 10, 1000])
def test_equal_values_do_not_deviate_though_their_mean_is_rounded(count, tmp_path):
    """0.1 three times has a mean that is not 0.1."""
    rows = pl.DataFrame({"user": [1] * count, "price": [0.1] * count})
    rows.write_parquet(tmp_path / "rows.parquet", row_group_size=7)
    stats = ["std", "var"]
    joined = Workflow(["user"] >> ops.JoinGroupby("price", stats=stats)).fit(tmp_path)
    assert joined.transform({"user": [1]}).collect().row(0) == (0.0, 0.0)
    grouped = Workflow(["user", "price"] >> ops.Groupby("user", aggs=stats)).fit(tmp_path)
    assert grouped.transform(tmp_path).collect().row(0) == (1, 0.0, 0.0)
    described = Workflow(["price"] >> ops.DataStats()).fit(tmp_path)
    assert ops.DataStats.read(described)["price"].std == 0.0


# Groupby


@pytest.mark.parametrize("ascending", [True, False])
def test_sessions_are_of_the_whole_data_and_in_order(tmp_path, ascending):
    frame = ratings()
    columns = ["user", "city", "rating", "time"]
    sessions = columns >> ops.Groupby(
        ["user", "city"],
        sort_cols="time",
        aggs={
            "time": ["list", "first", "last", "min", "max"],
            "rating": ["count", "nunique", "sum", "mean", "std", "var", "median"],
        },
        ascending=ascending,
    )
    made = Workflow(sessions).fit(in_files(frame, tmp_path)).transform(tmp_path).collect()
    groups = grouped(frame.sort("time", descending=not ascending), "user", "city")
    keys = made.select("user", "city").rows()
    assert sorted(map(repr, keys)) == sorted(map(repr, groups))
    for key, row in zip(keys, made.rows(named=True), strict=True):
        rows = groups[key]
        times, values = [r["time"] for r in rows], known(rows, "rating")
        assert row["time_list"] == times
        # As in NVTabular: the first of the rows in ascending order, however the lists are ordered.
        assert (row["time_first"], row["time_last"]) == (min(times), max(times))
        assert (row["time_min"], row["time_max"]) == (min(times), max(times))
        assert row["rating_count"] == len(values)
        assert row["rating_nunique"] == len(set(values))
        assert row["rating_sum"] == sum(values)
        expected = [
            statistics.fmean(values) if values else None,
            statistics.median(values) if values else None,
            statistics.stdev(values) if len(values) > 1 else None,
            statistics.variance(values) if len(values) > 1 else None,
        ]
        received = [row[f"rating_{aggregate}"] for aggregate in ("mean", "median", "std", "var")]
        assert received == [near(value) for value in expected]


def test_first_and_last_of_descending_rows_are_those_of_nvtabular():
    # nvtabular 23.08 answers [30, 20, 10], 10 and 30 here.
    data = {"k": [1, 1, 1], "t": [1, 2, 3], "x": [10, 20, 30]}
    aggs = {"x": ["list", "first", "last"]}
    rows = ["k", "t", "x"] >> ops.Groupby("k", sort_cols="t", aggs=aggs, ascending=False)
    made = Workflow(rows).fit(data).transform(data).collect()
    assert made.row(0, named=True) == {"k": 1, "x_list": [30, 20, 10], "x_first": 10, "x_last": 30}


@pytest.mark.parametrize(("ascending", "ends"), [(True, (20, 40)), (False, (10, 30))])
def test_first_and_last_among_rows_of_one_time_depend_on_their_order_in_the_data(ascending, ends):
    data = {"k": [1] * 4, "t": [1, 1, 2, 2], "x": [20, 10, 30, 40]}
    aggs = {"x": ["first", "last"]}
    rows = ["k", "t", "x"] >> ops.Groupby("k", sort_cols="t", aggs=aggs, ascending=ascending)
    assert Workflow(rows).fit(data).transform(data).collect().row(0) == (1, *ends)


def test_first_and_last_of_rows_that_are_not_sorted_are_those_of_the_data():
    data = {"k": [1, 1, 1], "x": [20, 30, 10]}
    rows = ["k", "x"] >> ops.Groupby("k", aggs=["first", "last"], ascending=False)
    assert Workflow(rows).fit(data).transform(data).collect().row(0) == (1, 20, 10)


def test_sum_of_narrow_integers_does_not_wrap():
    data = {"user": [1, 1], "clicks": pl.Series([2**31 - 1, 5], dtype=pl.Int32)}
    sessions = Workflow(["user", "clicks"] >> ops.Groupby("user", aggs="sum")).fit(data)
    assert sessions.transform(data).collect()["clicks_sum"].to_list() == [2**31 + 4]


def test_ids_of_a_session_keep_what_an_embedding_needs():
    ids = ["item"] >> ops.Categorify()
    sessions = ["user"] + ids >> ops.Groupby("user", aggs={"item": ["list", "count"]})
    schema = Workflow(sessions).fit({"user": [1, 1, 2], "item": ["a", "b", "a"]}).output_schema
    assert schema["item_list"].is_list
    assert schema["item_list"].properties["cardinality"] == 5
    assert schema.tagged("categorical").names == ["item_list"]
    assert schema.tagged("continuous").names == ["item_count"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"groupby_cols": []}, "column names in groupby_cols"),
        ({"groupby_cols": "user", "aggs": "mode"}, "aggs among list, first.*'mode'"),
        ({"groupby_cols": "user", "aggs": {}}, "needs aggs"),
        ({"groupby_cols": "other"}, "No column 'other'"),
        ({"groupby_cols": "user", "sort_cols": "other"}, "No column 'other'"),
        ({"groupby_cols": "user", "aggs": {"other": "list"}}, "No column 'other'"),
        (
            {"groupby_cols": "user", "aggs": "mean"},
            "'mean' of column 'city', string.*It can make",
        ),
        ({"groupby_cols": "genres"}, "takes no list as a key.*'genres'"),
        (
            {"groupby_cols": "user", "aggs": {"genres": "nunique"}},
            "'nunique' of column 'genres', list.*It can make first, last, count",
        ),
    ],
)
def test_grouping_settings_are_checked(settings, message):
    data = {"user": [1], "city": ["a"], "genres": [["x"]]}
    with pytest.raises(WorkflowError, match=message):
        Workflow(list(data) >> ops.Groupby(**settings)).fit(data)


# DifferenceLag


def test_differences_are_of_the_rows_of_one_user(tmp_path):
    frame = ratings()
    lagged = ["time", "rating"] >> ops.DifferenceLag(["user", "city"], shift=[1, -2])
    made = Workflow(lagged).fit(in_files(frame, tmp_path)).transform(tmp_path).collect()
    seen = defaultdict(list)
    for number, row in enumerate(frame.rows(named=True)):
        seen[row["user"], row["city"]].append(number)
    for name in ("time", "rating"):
        values = frame[name].to_list()
        for shift in (1, -2):
            expected = [None] * frame.height
            for rows in seen.values():
                for place, row in enumerate(rows):
                    other = place - shift
                    pair = (values[row], values[rows[other]]) if 0 <= other < len(rows) else (None,)
                    expected[row] = None if None in pair else pair[0] - pair[1]
            assert made[f"{name}_difference_lag_{shift}"].to_list() == expected


def test_difference_of_large_times_is_exact():
    data = {"user": [1, 1], "time": [2**62, 2**62 + 3]}
    lagged = Workflow(["time"] >> ops.DifferenceLag("user")).fit(data)
    assert lagged.transform(data).collect()["time_difference_lag_1"].to_list() == [None, 3.0]


@pytest.mark.parametrize("shift", [0, [], [1, 1], [1, 0]])
def test_shifts_that_make_no_sense_are_refused(shift):
    with pytest.raises(WorkflowError, match="shift as distinct whole numbers other than 0"):
        ops.DifferenceLag("user", shift=shift)


def test_shift_of_numpy_is_a_number(tmp_path):
    data = {"user": [1, 1], "time": [3, 5]}
    workflow = Workflow(["time"] >> ops.DifferenceLag("user", shift=np.int64(1))).fit(data)
    workflow.save(tmp_path / "saved")
    made = Workflow.load(tmp_path / "saved").transform(data).collect()
    assert made["time_difference_lag_1"].to_list() == [None, 2.0]


@pytest.mark.parametrize("settings", [{"stats": None}, {"stats": 3}, {"name_sep": None}])
def test_settings_of_statistics_are_checked(settings):
    with pytest.raises(WorkflowError, match=rf"JoinGroupby needs {next(iter(settings))} "):
        ops.JoinGroupby(**settings)


@pytest.mark.parametrize("column", ["city", "marks", "other"])
def test_statistics_are_of_numbers_that_the_data_have(column):
    data = {"user": [1, 1], "city": ["a", "b"], "marks": [[1.0], [2.0]]}
    with pytest.raises(WorkflowError, match=f"'{column}'"):
        Workflow(["user"] >> ops.JoinGroupby(column, stats=["mean"])).fit(data)


SHARES = {"shop": [1, 1, 1, 2, 2], "sold": [0, 4, 9, 1, 3], "shown": [0, 2, 3, 1, 1]}


def share():
    """sold / shown, of which the first is 0 / 0."""
    return ["sold"] >> ops.LambdaOp(lambda sold, df: sold / df["shown"], dependency="shown")


def test_a_nan_that_an_operator_computes_is_no_value_of_a_group():
    aggregates = ["count", "nunique", "mean", "sum", "median", "std"]
    grouping = ops.Groupby("shop", aggs={"sold": aggregates})
    made = Workflow((share() + ["shop"]) >> grouping).fit_transform(SHARES).collect()
    frame = pd.DataFrame(SHARES)
    groups = (frame["sold"] / frame["shown"]).groupby(frame["shop"])
    for aggregate in aggregates:
        assert_allclose(made[f"sold_{aggregate}"], groups.agg(aggregate), rtol=1e-6)


@pytest.mark.parametrize("sold", [[0, 4, 9, None, 3], [0.0, 4.0, 9.0, float("nan"), 3.0]])
def test_rows_whose_key_is_missing_are_one_group_whether_it_was_computed_or_not(sold):
    rows = SHARES | {"sold": sold}
    grouping = ops.Groupby("sold", aggs={"shop": "list"})
    made = Workflow((share() + ["shop"]) >> grouping).fit_transform(rows).collect()
    assert made["sold"].to_list() == [2.0, 3.0, None]
    assert made["shop_list"].to_list() == [[1], [1, 2], [1, 2]]
    rows = rows | {"price": [1.0, 2.0, 3.0, 5.0, 7.0]}
    differences = Workflow(["price"] >> ops.DifferenceLag(share())).fit_transform(rows).collect()
    # The rows 0 and 3 lack a share, and 2 and 4 have one of 3.
    assert differences["price_difference_lag_1"].to_list() == [None, None, None, 4.0, 4.0]
