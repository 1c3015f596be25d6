"""Metrics of ranked lists, against scikit-learn and their definitions."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from sklearn.metrics import average_precision_score, ndcg_score

from training import TrainingError
from training.retrieval import ranking_metrics


@pytest.mark.parametrize("k", [1, 3, 10, 30])
def test_metrics_are_scikit_learns(k):
    random = np.random.default_rng(0)
    ranked = np.array([random.permutation(30) for _ in range(40)])
    relevant = [
        set(random.choice(30, n, replace=False).tolist()) for n in random.integers(1, 15, 40)
    ]
    truth = np.array([[item in items for item in range(30)] for items in relevant], float)
    scores = -np.argsort(ranked, axis=1).astype(float)  # of an item its rank, negative
    made = ranking_metrics(ranked, relevant, k=[k])
    assert made[f"ndcg@{k}"] == pytest.approx(ndcg_score(truth, scores, k=k))
    recalls = [len(set(r[:k]) & i) / len(i) for r, i in zip(ranked.tolist(), relevant, strict=True)]
    assert made[f"recall@{k}"] == pytest.approx(np.mean(recalls))
    first = np.where(-scores < k, scores, -np.inf)  # items beyond the first k are found last
    found = np.array([len(set(r[:k]) & i) for r, i in zip(ranked.tolist(), relevant, strict=True)])
    of_found = [
        average_precision_score(row * (values > -np.inf), np.maximum(values, -99)) if n else 0
        for row, values, n in zip(truth, first, found, strict=True)
    ]
    shares = found / [min(k, len(items)) for items in relevant]
    assert made[f"map@{k}"] == pytest.approx(np.mean(of_found * shares))


@pytest.mark.parametrize("ranked", [["a", "b"], [True, False], [7, 8], [0.5, 1.5]])
def test_relevant_items_of_numpy_are_taken(ranked):
    """Also one by one, as `numpy.unique` gives them."""
    array = np.array(ranked)
    made = ranking_metrics(array[None], [set(np.unique(array[1:]))], k=[1, 2])
    assert (made["recall@1"], made["recall@2"]) == (0.0, 1.0)


def test_a_repeated_item_is_found_once():
    assert ranking_metrics([["a", "a", "c"]], [{"a", "b"}], k=2) == {
        "recall@2": 0.5,
        "ndcg@2": pytest.approx(1 / (1 + 1 / np.log2(3))),
        "map@2": 0.5,
    }


def test_rows_without_a_relevant_item_do_not_count():
    ranked = np.array([["a", "b"], ["a", "b"]], object)
    assert ranking_metrics(ranked, [["b"], []], k=[1, 2]) == {
        "recall@1": 0.0,
        "ndcg@1": 0.0,
        "map@1": 0.0,
        "recall@2": 1.0,
        "ndcg@2": pytest.approx(1 / np.log2(3)),
        "map@2": 0.5,
    }


@pytest.mark.parametrize(
    ("ranked", "relevant", "k", "message"),
    [
        ([[1, 2]], [[1]], [3], r"k from 1 to n.*\(1, 2\), k=\[3\]"),
        ([1, 2], [[1]], [1], r"shape \(rows, n\)"),
        ([[1, 2]], [[1], [2]], [1], "2 rows with 2 items"),
        ([[1, 2]], [[]], [1], "1 rows with 0 items"),
        ([["a", "b"]], ["ab"], [1], r"of one item as \[item\]. Received: 'ab'"),
        ([[1, 2]], [1], [1], r"of one item as \[item\]. Received: 1"),
        ([[1, 2]], None, [1], r"of one item as \[item\]. Received: None"),
        (
            [[1, 2]],
            [["2"]],
            [1],
            "items of one kind.*int among the ranked and str among the relev",
        ),
        ([["1", "2"]], [[2]], [1], "items of one kind"),
        (np.array([[b"a", b"b"]], object), [["b"]], [1], "items of one kind.*bytes.*str"),
        ([[1, 2], [1, 2]], [[1], ["2"]], [1], "items of one kind"),
        ([[1, 2]], [[2, None]], [1], "items of one kind.*NoneType"),
        ([[1, 2]], np.array([[2, np.nan]]), [2], "no NaN"),
        ([[1, 2], [1]], [[2], [1]], [1], r"shape \(rows, n\).*rows of different lengths"),
        ([[1, 2]], [[2]], 1.5, "k from 1 to n"),
        ([[1, 2]], [[2]], [1.0], "k from 1 to n"),
        ([[1, 2]], [[2]], [], r"k from 1 to n.*k=\[\]"),
    ],
)
def test_arguments_that_make_no_sense(ranked, relevant, k, message):
    with pytest.raises(TrainingError, match=message):
        ranking_metrics(ranked, relevant, k=k)


def test_lists_of_a_served_frame_and_numbers_of_numpy_are_taken():
    answers = pl.DataFrame({"item": [[7, 8], [5, 6]]}, {"item": pl.Array(pl.Int64, 2)})
    expected = ranking_metrics([[7, 8], [5, 6]], [{8}, {5}], k=[1, 2])
    assert expected == {
        "recall@1": 0.5,
        "ndcg@1": 0.5,
        "map@1": 0.5,
        "recall@2": 1.0,
        "ndcg@2": pytest.approx((1 + 1 / np.log2(3)) / 2),
        "map@2": 0.75,
    }
    relevant = pl.Series([[8], [5]])
    for ranked in (answers["item"], answers["item"].arr.to_list(), answers["item"].to_pandas()):
        assert ranking_metrics(ranked, relevant, k=np.array([1, 2])) == expected
    columns = (relevant.to_arrow(), pa.chunked_array([[[8]], [[5]]]), relevant.to_pandas())
    for column in (*columns, iter([{8}, {5}])):
        assert ranking_metrics(answers["item"], column, k=[1, 2]) == expected
    assert ranking_metrics(answers["item"], relevant, k=np.int32(1))["recall@1"] == 0.5
    assert ranking_metrics([[7, 8]], np.array([[8.0]]), k=2)["recall@2"] == 1.0


LARGE = 2**53  # the first number whose successor float64 does not hold


@pytest.mark.parametrize(
    "ranked",
    [
        pl.Series([[LARGE + 1, None], [LARGE, 6]]),
        np.array([[LARGE + 1, None], [LARGE, 6]], object),
        [[LARGE + 1, None], [LARGE, 6]],
        [np.array([LARGE + 1, -1]), [LARGE, 6.0]],
        pa.chunked_array([[[LARGE + 1, None]], [[LARGE, 6]]]),
        pl.DataFrame({"first": [LARGE + 1, LARGE], "second": [None, 6]}),
    ],
    ids=["Polars", "numpy of objects", "lists", "rows of several dtypes", "Arrow", "a frame"],
)
def test_large_ids_are_not_rounded(ranked):
    assert ranking_metrics(ranked, [{LARGE + 1}, {LARGE}], 1)["recall@1"] == 1
    assert ranking_metrics(ranked, [{LARGE}, {LARGE + 1}], 1)["recall@1"] == 0


def test_ids_beyond_int64_are_not_rounded():
    largest = 2**64 - 1
    assert ranking_metrics([[largest, 3]], [{largest}], 1)["recall@1"] == 1
    assert ranking_metrics([[largest, -1]], [{2**64}], 2)["recall@2"] == 0
