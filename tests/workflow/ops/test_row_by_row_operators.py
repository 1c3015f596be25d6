"""The row-by-row operators give the numbers that a user would expect."""

from __future__ import annotations

import math
import statistics
from datetime import date

import numpy as np
import polars as pl
import pytest

from workflow import Workflow, WorkflowError, get_embedding_sizes, ops
from workflow.operator.operator import Operator


def made(operator: Operator, columns, further=None) -> pl.DataFrame:
    """The outputs of an operator that was fitted to some columns, for these or others."""
    data = pl.DataFrame(columns)
    rows = data if further is None else pl.DataFrame(further, schema=data.schema)
    return Workflow(data.columns >> operator).fit(data).transform(rows).collect()


def test_clip_keeps_the_dtype_and_the_nulls():
    frame = made(ops.Clip(0, 120), {"age": pl.Series([-3, 250, None, 31], dtype=pl.Int16)})
    assert frame["age"].to_list() == [0, 120, None, 31]
    assert frame["age"].dtype == pl.Int16


@pytest.mark.parametrize(("low", "high"), [(None, None), (2, 1)])
def test_clip_without_sensible_bounds_is_refused(low, high):
    with pytest.raises(WorkflowError, match="Clip needs min_value, max_value or both"):
        ops.Clip(low, high)


def test_logarithm_of_a_small_value_keeps_its_digits():
    values = made(ops.LogOp(), {"x": [1e-12, 0.0, math.e - 1, -1.0, -2.0]})["x"]
    assert values.dtype == pl.Float32
    assert values[0] == np.float32(1e-12)
    assert values[1:4].to_list() == [0.0, 1.0, -math.inf]
    assert math.isnan(values[4])


def test_min_max_does_not_clip_what_it_has_not_seen():
    frame = made(ops.NormalizeMinMax(), {"x": [2.0, 4.0, None]}, {"x": [2.0, 3.0, 6.0, None]})
    assert frame["x"].to_list() == [0.0, 0.5, 2.0, None]


def test_min_max_of_a_constant_column_is_zero():
    # Peers make 0.5 of it, and NaN where the constant is 0.
    assert made(ops.NormalizeMinMax(), {"x": [0, 0], "y": [7, 7]}).rows() == [(0.0, 0.0)] * 2


def test_min_max_of_values_too_far_apart_is_refused():
    with pytest.raises(WorkflowError, match="'x' are too far apart"):
        made(ops.NormalizeMinMax(), {"x": [-1.7e308, 1.7e308]})


@pytest.mark.parametrize("values", [[5], [5, 1, 9], [1, 2, 3, 4], [-7, 0, 8191, -8191, 3]])
def test_median_of_small_whole_numbers_is_exact(values):
    for given in (values, [float(value) for value in values]):
        filled = made(ops.FillMedian(), {"x": [*given, None]})["x"]
        assert filled.dtype == pl.Float64
        assert filled.to_list() == [*values, np.median(values)]


def test_median_of_integers_is_the_same_in_training_and_when_served(tmp_path):
    data = {"x": pl.Series([1, 2, None], dtype=pl.UInt8), "l": [[1, None], [2], None]}
    workflow = Workflow(["x", "l"] >> ops.FillMedian()).fit(data)
    assert str(workflow.output_schema) == "Schema(x: float64, l: list[float64])"
    frame = workflow.transform(data).collect()
    assert frame["x"].to_list() == [1.0, 2.0, 1.5]
    assert frame["l"].to_list() == [[1.0, 1.5], [2.0], []]
    workflow.save(tmp_path)
    assert Workflow.load(tmp_path).transform(data).collect().equals(frame)


@pytest.mark.parametrize("months", [[1, 3], [12, 1, 3, 5], [2, 12, 6]])
def test_median_of_times_is_one_of_them(months):
    rows = {"on": [*(date(2025, month, 1) for month in months), None]}
    parts = ["on"] >> ops.FillMedian() >> ops.DatePart(["month", "day", "hour"])
    filled = Workflow(parts).fit(rows).transform(rows).collect()
    assert filled.rows() == [(month, 1, 0) for month in [*months, statistics.median_low(months)]]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e9])
def test_median_of_any_numbers_is_close(scale):
    values = np.random.default_rng(0).lognormal(sigma=3, size=20_001) * scale
    filled = made(ops.FillMedian(), {"x": [*values.tolist(), None]})["x"][-1]
    assert filled == pytest.approx(np.median(values), rel=1 / 8192)


def test_median_of_negative_values_lies_on_the_right_side():
    assert made(ops.FillMedian(), {"x": [-4.0, -1.0, -2.0, 0.0, -0.0, None]})["x"][-1] == -1.0


def test_median_of_nothing_is_zero_and_marks_what_was_missing():
    frame = made(
        ops.FillMedian(add_binary_cols=True), {"x": pl.Series([None, None], dtype=pl.Int8)}
    )
    assert frame.rows() == [(0, True), (0, True)]


def test_bucket_is_what_numpy_digitize_says():
    values = [-1.0, 0.0, 9.99, 10.0, math.inf, -math.inf, None, math.nan]
    buckets = made(ops.Bucketize([0, 10]), {"x": values})["x"]
    assert buckets.dtype == pl.Int32
    assert buckets[:6].to_list() == np.digitize(values[:6], [0, 10]).tolist()
    assert buckets[6:].to_list() == [None, None]


def test_boundaries_between_large_ids_are_exact():
    values = [2**53, 2**53 + 1, 2**53 + 2]
    assert made(ops.Bucketize([2**53 + 1]), {"x": values})["x"].to_list() == [0, 1, 1]


@pytest.mark.parametrize("further", [[], range(2**53 + 3, 2**53 + 83, 2)])
def test_unsigned_integers_are_compared_exactly_too(further):
    boundaries = [-(2**63), -1, 0, 2**53 + 1, *further]
    values = [0, 2**53, 2**53 + 1, 2**53 + 2, 2**63, 2**64 - 1]
    data = {"x": pl.Series([*values, None], dtype=pl.UInt64)}
    expected = [sum(value >= boundary for boundary in boundaries) for value in values]
    assert made(ops.Bucketize(boundaries), data)["x"].to_list() == [*expected, None]


def test_boundaries_from_a_function_are_saved_as_numbers(tmp_path):
    data = {"a": [1, 5], "b": [1, 5]}
    steps = {"a": [3], "b": [0, 2, 4]}
    workflow = Workflow(["a", "b"] >> ops.Bucketize(lambda name: steps[name])).fit(data)
    workflow.save(tmp_path)
    assert Workflow.load(tmp_path).transform(data).collect().rows() == [(0, 1), (1, 3)]


@pytest.mark.parametrize("boundaries", [[3, 1], [1, 1], {"x": [1, 0]}, lambda _: [3, 1]])
def test_boundaries_that_do_not_ascend_are_refused(boundaries):
    with pytest.raises(WorkflowError, match="ascending finite numbers"):
        made(ops.Bucketize(boundaries), {"x": [1]})


def test_missing_boundaries_are_named():
    with pytest.raises(WorkflowError, match="Received: boundaries for 'z'"):
        made(ops.Bucketize({"z": [1]}), {"x": [1]})


def splitmix64(state: int) -> int:
    """The next output of SplitMix64, as its authors publish it."""
    bits = (state + 0x9E3779B97F4A7C15) % 2**64
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % 2**64
    return bits ^ (bits >> 31)


def bucket_as_documented(value: int | str, buckets: int) -> int:
    if isinstance(value, str):
        data = value.encode()
        base = 0xD1342543DE82EF95
        value = len(data) + sum(byte * base ** (i + 1) for i, byte in enumerate(data))
    # SplitMix64 adds its constant before it mixes.
    offset = splitmix64(0) - 0x9E3779B97F4A7C15
    return (splitmix64((value + offset) % 2**64) >> 1) % buckets


def test_hash_is_the_documented_one():
    # Models in production hold these ids: they must never change.
    assert splitmix64(0) == 0xE220A8397B1DCDAF
    users, cities = [0, 1, -1, 2**63 - 1, -(2**63)], ["", "a", "日本", "a\0", "x" * 500]
    ids = made(ops.HashBucket(10**9), {"user": users, "city": cities})
    assert ids.dtypes == [pl.Int32, pl.Int32]
    assert ids["user"].to_list() == [bucket_as_documented(user, 10**9) for user in users]
    assert ids["city"].to_list() == [bucket_as_documented(city, 10**9) for city in cities]


def test_hash_of_a_number_does_not_depend_on_its_width():
    columns = {str(t): pl.Series([5], dtype=t) for t in (pl.Int8, pl.UInt16, pl.Int64, pl.UInt64)}
    assert len({*made(ops.HashBucket(10**6), columns).row(0)}) == 1


def test_hashed_ids_spread_evenly():
    for values in (range(100_000), [f"user_{n}" for n in range(100_000)]):
        ids = made(ops.HashBucket(100), {"x": list(values)})["x"]
        counts = ids.value_counts()["count"]
        assert len(counts) == 100
        assert counts.min() > 850
        assert counts.max() < 1150


def test_every_null_has_the_id_0():
    frame = made(ops.HashBucket(7), {"x": [None, 3], "tags": [["a", None], None]})
    assert frame["x"][0] == 0
    assert frame["tags"][0][1] == 0
    assert frame["tags"][1].to_list() == []


def test_crossed_columns_are_told_apart_by_their_order():
    pairs = {"a": [1, 2, 1, 2, None, 1], "b": [2, 1, 1, 2, 1, None]}
    crossed = Workflow([["a", "b"]] >> ops.HashedCross(2**31 - 1)).fit(pairs)
    ids = crossed.transform(pairs).collect()["a_X_b"].to_list()
    assert len(set(ids)) == 6
    assert crossed.transform(pairs).collect()["a_X_b"].to_list() == ids


def test_columns_that_are_not_grouped_are_crossed_together():
    rows = {"a": [1, 1, 2], "b": [2, 3, 2]}
    together = made(ops.HashedCross(1000), rows)
    grouped = Workflow([["a", "b"]] >> ops.HashedCross(1000)).fit(rows).transform(rows).collect()
    assert together.equals(grouped)


def test_elements_of_a_list_are_crossed_with_the_rows_value_as_each_alone():
    rows = {"shop": [7, None, 3], "tags": [["a", None, "b"], ["a"], []], "more": [["a"], [], []]}
    crossed = [["shop", "tags"]] >> ops.HashedCross(1000)
    ids = Workflow(crossed).fit(rows).transform(rows).collect()["shop_X_tags"].to_list()
    pairs = {"shop": [7, 7, 7, None], "tags": ["a", None, "b", "a"]}
    alone = Workflow(crossed).fit(pairs).transform(pairs).collect()["shop_X_tags"].to_list()
    assert ids == [alone[:3], alone[3:], []]
    with pytest.raises(WorkflowError, match=r"one list with scalars.*'tags' and 'more'"):
        Workflow([["tags", "shop", "more"]] >> ops.HashedCross(9)).fit(rows)


def test_one_column_alone_is_not_crossed():
    with pytest.raises(WorkflowError, match=r"\[\['a', 'b'\]\]"):
        made(ops.HashedCross(10), {"a": [1]})


@pytest.mark.parametrize("operator", [ops.HashBucket, ops.HashedCross])
@pytest.mark.parametrize("buckets", [0, -1, 2**31, {"a": 0}])
def test_buckets_that_are_no_number_are_refused(operator, buckets):
    with pytest.raises(WorkflowError, match="num_buckets as whole numbers"):
        operator(buckets)


@pytest.mark.parametrize(
    ("buckets", "message"), [({"a": 5}, "missing for column 'b'"), ({"z": 5}, "set for 'z'")]
)
def test_buckets_for_other_columns_are_refused(buckets, message):
    with pytest.raises(WorkflowError, match=message):
        made(ops.HashBucket(buckets), {"a": [1], "b": [2]})


def test_settings_from_numpy_can_be_saved(tmp_path):
    clipped = ["x"] >> ops.Clip(np.float32(0), np.int64(9))
    hashed = ["id"] >> ops.HashBucket({"id": np.int64(7)})
    grouped = ["y"] >> ops.Bucketize(np.linspace(0, 1, 3))
    data = {"x": [-1.0, 99.0], "y": [0.1, 5.0], "id": [1, 2]}
    workflow = Workflow(clipped + hashed + grouped).fit(data)
    workflow.save(tmp_path)
    expected = workflow.transform(data).collect()
    assert Workflow.load(tmp_path).transform(data).collect().equals(expected)
    assert expected["x"].to_list() == [0.0, 9.0]


def test_floats_are_not_hashed():
    with pytest.raises(WorkflowError, match=r"'x', float64.*cast"):
        made(ops.HashBucket(10), {"x": [1.5]})


def test_embedding_sizes_know_hashed_crossed_and_bucketized_columns():
    hashed = ["user"] >> ops.HashBucket(50)
    crossed = [["user", "age"]] >> ops.HashedCross(1000)
    grouped = ["age"] >> ops.Bucketize([18, 30])
    workflow = Workflow(hashed + crossed + grouped).fit({"user": [1], "age": [2]})
    assert get_embedding_sizes(workflow) == {
        "user": (50, 16),
        "user_X_age": (1000, 77),
        "age": (3, 16),
    }


@pytest.mark.parametrize(
    "operator",
    [ops.Clip(0), ops.LogOp(), ops.NormalizeMinMax(), ops.FillMedian(), ops.Bucketize([0])],
)
def test_strings_are_refused_by_name(operator):
    with pytest.raises(WorkflowError, match=f"{operator.label}.*'city', string"):
        made(operator, {"city": ["a"]})
