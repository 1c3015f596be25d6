"""Metrics of ranked lists."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from training.errors import TrainingError


def ranking_metrics(
    ranked: Any, relevant: Iterable[Collection[Any]], k: Sequence[int] = (10,)
) -> dict[str, float]:
    """Recall@k and NDCG@k of ranked items, means over the rows that have a relevant item.

    recall@k is the share of a row's relevant items among its first k. NDCG@k is the sum of
    1 / log2(rank + 1) over the ranks of relevant items, as a share of the greatest possible sum.

    Source: K. Järvelin and J. Kekäläinen, Cumulated Gain-Based Evaluation of IR Techniques, ACM
    TOIS 2002, with the gain 1 for each relevant item.

    Args:
        ranked: items (N, n), the best first, n at least the largest k; numbers or strings.
        relevant: the relevant items of each row.
        k: the lengths of the lists to judge.

    Returns:
        "recall@<k>" and "ndcg@<k>" for each k.

    Raises:
        TrainingError: fewer ranked items than k, another number of rows, or no relevant item at all.

    Example:
        >>> ranking_metrics([[7, 8, 9]], [{8, 5}], k=[2])
        {'recall@2': 0.5, 'ndcg@2': 0.38...}
    """
    table = np.asarray(ranked)
    if table.ndim != 2 or not k or not all(1 <= each <= table.shape[1] for each in k):
        raise TrainingError(
            "Expected ranked items of the shape (rows, n), and each k from 1 to n. "
            f"Received: the shape {table.shape}, k={list(k)}."
        )
    wanted = [set(items) for items in relevant]
    if len(wanted) != len(table) or not any(wanted):
        raise TrainingError(
            f"Expected relevant items for each of {len(table)} rows, at least one in all. Received: "
            f"{len(wanted)} rows with {sum(map(len, wanted))} items."
        )
    rows = [(row.tolist(), items) for row, items in zip(table, wanted, strict=True) if items]
    found = np.array([[item in items for item in row] for row, items in rows])
    counts = np.array([len(items) for _, items in rows])
    gains = 1 / np.log2(np.arange(2, table.shape[1] + 2))
    made = {}
    for each in k:
        ideal = np.cumsum(gains)[np.minimum(counts, each) - 1]
        made[f"recall@{each}"] = float((found[:, :each].sum(1) / counts).mean())
        made[f"ndcg@{each}"] = float((found[:, :each] @ gains[:each] / ideal).mean())
    return made
