"""TargetEncoding gives the smoothed mean, and in training that of the other rows."""

from __future__ import annotations

import statistics

import numpy as np
import polars as pl
import pytest
from grouped_ratings import grouped, in_files, known, ratings
from numpy.testing import assert_allclose

from workflow import Workflow, WorkflowError, ops


def folds_of(encoding: ops.TargetEncoding, rows: int) -> pl.Series:
    """The fold of each row, as the operator's expression says."""
    numbers = Workflow(["row"] >> ops.LambdaOp(encoding.fold)).fit({"row": [0]})
    return numbers.transform({"row": range(rows)}).collect()["row"]


def smoothed(rows: list[dict], target: str, mean: float, smooth: float) -> float:
    values = known(rows, target)
    return (sum(values) + smooth * mean) / (len(values) + smooth)


def test_encoding_is_the_smoothed_mean_of_the_category(tmp_path):
    frame = ratings()
    encoded = [["user", "city"], "user"] >> ops.TargetEncoding(["rating", "clicked"], p_smooth=5)
    workflow = Workflow(encoded).fit(in_files(frame, tmp_path))
    assert workflow.output_schema.names == [
        "TE_user_city_rating",
        "TE_user_city_clicked",
        "TE_user_rating",
        "TE_user_clicked",
    ]
    made = workflow.transform(frame.select("user", "city")).collect()
    for key in (("user", "city"), ("user",)):
        groups = grouped(frame, *key)
        for target in ("rating", "clicked"):
            mean = statistics.fmean(known(frame.rows(named=True), target))
            expected = [
                smoothed(groups[tuple(row)], target, mean, 5) for row in frame.select(key).rows()
            ]
            received = made["_".join(["TE", *key, target])]
            assert_allclose(received.to_numpy(), expected, rtol=1e-6)


def test_category_that_was_not_there_has_the_mean_of_all_rows():
    workflow = Workflow(["city"] >> ops.TargetEncoding("rating")).fit(
        {"city": ["a", "a", "b"], "rating": [1.0, 2.0, 6.0]}
    )
    assert workflow.transform({"city": ["zz", None]}).collect()["TE_city_rating"].to_list() == [
        3,
        3,
    ]
    assert workflow.program.inputs.names == ["city"]


def test_training_rows_are_encoded_by_the_other_folds(tmp_path):
    frame, folds, smooth = ratings(), 4, 3.0
    encoding = ops.TargetEncoding("rating", kfold=folds, fold_seed=11, p_smooth=smooth)
    workflow = Workflow(["user"] >> encoding)
    made = workflow.fit_transform(in_files(frame, tmp_path)).collect()["TE_user_rating"]
    fold = folds_of(encoding, frame.height).to_list()
    assert set(fold) == set(range(folds))
    rows = [{**row, "fold": fold[number]} for number, row in enumerate(frame.rows(named=True))]
    expected = []
    for row in rows:
        others = [other for other in rows if other["fold"] != row["fold"]]
        own = [other for other in others if other["user"] == row["user"]]
        mean = statistics.fmean(known(others, "rating"))
        expected.append(smoothed(own, "rating", mean, smooth))
    assert_allclose(made.to_numpy(), expected, rtol=1e-6)


def test_noise_cannot_be_learnt_from_its_own_encoding():
    # Ten thousand users with a row each and a random target: there is nothing to learn.
    random = np.random.default_rng(5)
    frame = pl.DataFrame({"user": np.arange(10_000), "clicked": random.random(10_000) < 0.5})
    workflow = Workflow(["user"] >> ops.TargetEncoding("clicked", p_smooth=1))
    target = frame["clicked"].cast(pl.Float64)
    out_of_fold = workflow.fit_transform(frame).collect()["TE_user_clicked"]
    # The mean of the other folds is all that is left, and it tells at most the fold.
    assert out_of_fold.n_unique() <= workflow.nodes[-1].operator.kfold
    leaked = workflow.transform(frame).collect()["TE_user_clicked"]
    assert pl.select(pl.corr(leaked, target)).item() == pytest.approx(1)
    assert abs(pl.select(pl.corr(out_of_fold, target)).item()) < 0.1


def test_folds_are_of_the_seed_and_the_row_alone():
    one = folds_of(ops.TargetEncoding("t", fold_seed=1), 9_999)
    assert one.equals(folds_of(ops.TargetEncoding("other", fold_seed=1), 9_999))
    assert 0.2 < (one == folds_of(ops.TargetEncoding("t", fold_seed=2), 9_999)).mean() < 0.5
    # Evenly filled, and not in turn: rows come in patterns.
    assert one.value_counts()["count"].min() > 3_100
    assert 0.2 < (one == one.shift(3)).mean() < 0.5


@pytest.mark.parametrize("name", ["fold", "row", "further.fold", "key0", "sum0", "count0"])
def test_columns_may_have_the_names_of_our_own(name):
    rows = {"x": [1, 1, 2, 2, 3, 1], "t": [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]}
    want = Workflow(["x"] >> ops.TargetEncoding("t")).fit_transform(rows).collect()
    data = {name: rows["x"], "t": rows["t"]}
    made = Workflow([name] >> ops.TargetEncoding("t")).fit_transform(data).collect()
    assert made.to_series().equals(want.to_series())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kfold": 0}, "kfold as a whole number from 1"),
        ({"p_smooth": -1}, "p_smooth as a number from 0"),
        ({"fold_seed": -1}, "fold_seed from 0"),
        ({"out_dtype": "int32"}, "one of float32, float64"),
        ({"out_col": ["a", "b"]}, "distinct names"),
        ({"target": ["rating", "bought"], "out_col": ["a", "a"]}, "distinct names"),
        ({"target": ["rating", "city"]}, "numbers or booleans.*'city'"),
        ({"target": "scores"}, "numbers or booleans.*'scores', list"),
        ({"target": ["rating", "bought"], "target_mean": 0.5}, "for one target.*rating, bought"),
    ],
)
def test_encoding_settings_are_checked(settings, message):
    data = {"city": ["a"], "rating": [1.0], "bought": [True], "scores": [[1.0]]}
    with pytest.raises(WorkflowError, match=message):
        Workflow(["city"] >> ops.TargetEncoding(**{"target": "rating"} | settings)).fit(data)


def test_target_that_is_missing_or_no_number_is_refused():
    with pytest.raises(WorkflowError, match=r"No column 'rating'"):
        Workflow(["city"] >> ops.TargetEncoding("rating")).fit({"city": ["a"]})
    with pytest.raises(
        WorkflowError, match=r"TargetEncoding over city, rating: .* 'rating', string"
    ):
        Workflow(["city"] >> ops.TargetEncoding("rating")).fit({"city": ["a"], "rating": ["5"]})
    with pytest.raises(
        WorkflowError, match=r"needs integers, or floats that are whole .*'price', float64"
    ):
        Workflow(["price"] >> ops.TargetEncoding("rating")).fit({"price": [1.5], "rating": [5]})


def test_encoding_after_a_filter_is_by_the_rows_that_remain():
    frame = ratings().with_row_index("row")
    rated = ["user", "rating", "row"] >> ops.Filter(lambda df: df["row"] > 99)
    encoded = rated["user"] >> ops.TargetEncoding(rated["rating"])
    made = Workflow(encoded + rated["row"]).fit_transform(frame).collect()
    alone = Workflow(["user"] >> ops.TargetEncoding("rating"))
    expected = alone.fit_transform(frame.filter(pl.col("row") > 99)).collect()
    assert made["TE_user_rating"].equals(expected["TE_user_rating"])


@pytest.mark.parametrize(
    "operator", [ops.TargetEncoding("rating"), ops.JoinGroupby(cont_cols=["rating"])], ids=repr
)
def test_lists_are_refused_with_what_helps(operator):
    data = pl.DataFrame({"tags": [["a", "b"], ["a"]], "rating": [1.0, 2.0]})
    ids = ["tags"] >> ops.Categorify()
    for keys in (["tags"], ids, ids >> ops.ListSlice(1)):
        message = r"groups by one value a row.*'tags', list\[.*frame\.explode\('tags'\)"
        with pytest.raises(WorkflowError, match=message):
            Workflow(keys >> operator).fit(data)
    Workflow(["tags"] >> operator).fit(data.explode("tags", empty_as_null=True))


def test_a_target_that_an_operator_computes_as_nan_does_not_count():
    rows = {"shop": [1, 1, 1, 2, 2], "sold": [0, 4, 9, 1, 3], "shown": [0, 2, 3, 1, 1]}
    share = ["sold"] >> ops.LambdaOp(lambda sold, df: sold / df["shown"], dependency="shown")
    encoding = ops.TargetEncoding(share, kfold=1, p_smooth=0, out_dtype="float64")
    workflow = Workflow(["shop"] >> encoding).fit(rows)
    made = workflow.transform({"shop": [1, 2, 9]}).collect()["TE_shop_sold"]
    assert_allclose(made, [2.5, 2.0, 2.25])


@pytest.mark.parametrize("mean", [None, 0.5])
def test_an_infinite_target_is_refused_whether_the_mean_is_given_or_not(mean):
    rows = {"shop": [1, 2], "rating": [float("inf"), 1.0]}
    with pytest.raises(WorkflowError, match="'rating' holds infinite"):
        Workflow(["shop"] >> ops.TargetEncoding("rating", target_mean=mean)).fit(rows)
