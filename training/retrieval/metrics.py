"""Metrics of ranked lists."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from numbers import Number
from typing import Any

import numpy as np
import polars as pl

from training.errors import TrainingError
from workflow.schema.column import Array


def ranking_metrics(
    ranked: Any, relevant: Iterable[Collection[Any]], k: int | Sequence[int] = 10
) -> dict[str, float]:
    """Recall@k, NDCG@k and MAP@k of ranked items, means over the rows that have a relevant item.

    recall@k is the share of a row's relevant items among its first k. NDCG@k is the sum of
    1 / log2(rank + 1) over the ranks of relevant items, as a share of the greatest possible sum.
    MAP@k is the sum of the precision at each rank up to k with a relevant item, divided by k or by
    the number of relevant items, whichever is less; with one relevant item it is 1 / rank.

    Source: K. Järvelin and J. Kekäläinen, Cumulated Gain-Based Evaluation of IR Techniques, ACM
    TOIS 2002, with the gain 1 for each relevant item.

    Args:
        ranked: items (N, n), the best first, n at least the largest k; numbers or strings, as an
            array, lists, or a column of a frame. A repeated item counts at its first place alone,
            None as no item.
        relevant: the relevant items of each row, a set or a list; or a column of lists.
        k: the length of the lists to judge, or several.

    Returns:
        "recall@<k>", "ndcg@<k>" and "map@<k>" for each k.

    Raises:
        TrainingError: fewer ranked items than k, another number of rows, no relevant item at all,
            an item in place of a row's items, ranked and relevant items of which some are numbers
            and others strings, which are never equal, or a missing value as a relevant item.

    Example:
        >>> ranking_metrics([[7, 8, 9]], [{8, 5}], k=[2])
        {'recall@2': 0.5, 'ndcg@2': 0.38..., 'map@2': 0.25}
    """
    table, ends = _table(ranked), np.atleast_1d(k).tolist()
    is_table = table.ndim == 2 and bool(ends)
    if not is_table or not all(type(end) is int and 1 <= end <= table.shape[1] for end in ends):
        raise TrainingError(
            "Expected ranked items of the shape (rows, n), and each k from 1 to n. "
            f"Received: the shape {table.shape}, k={k}."
        )
    rows_of_items = _listed(relevant)
    is_listed = isinstance(rows_of_items, Iterable)
    item_sets = [_items(row) for row in (rows_of_items if is_listed else [rows_of_items])]
    if len(item_sets) != len(table) or not any(item_sets):
        raise TrainingError(
            f"Expected relevant items for each of {len(table)} rows, at least one in all. Received: "
            f"{len(item_sets)} rows with {sum(map(len, item_sets))} items."
        )
    rows = [(row.tolist(), items) for row, items in zip(table, item_sets, strict=True) if items]
    _expect_comparable(rows)
    hits = np.array([_found(row, items) for row, items in rows])
    counts = np.array([len(items) for _, items in rows])
    gains = 1 / np.log2(np.arange(2, table.shape[1] + 2))
    precisions = np.cumsum(hits, axis=1) / np.arange(1, table.shape[1] + 1)
    metrics = {}
    for end in ends:
        ideal = np.cumsum(gains)[np.minimum(counts, end) - 1]
        metrics[f"recall@{end}"] = float((hits[:, :end].sum(1) / counts).mean())
        metrics[f"ndcg@{end}"] = float((hits[:, :end] @ gains[:end] / ideal).mean())
        precision = (precisions * hits)[:, :end].sum(1) / np.minimum(counts, end)
        metrics[f"map@{end}"] = float(precision.mean())
    return metrics


def _table(ranked: Any) -> Array:
    """The items as objects: in an array of one dtype integers beside a missing item would be rounded."""
    rows = _listed(ranked)
    table = np.array(rows, dtype=object)
    if table.ndim == 1 and any(isinstance(row, list) for row in rows):
        raise TrainingError(
            "Expected ranked items of the shape (rows, n). Received: rows of different lengths. Fill "
            "the short ones with None, or cut the others."
        )
    return table


def _listed(values: Any) -> Any:
    """An array, a column, a frame or a list as lists of Python's own objects."""
    if type(values) in (int, str):  # nearly all items
        return values
    if isinstance(values, np.generic):
        return values.item()
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values.tolist()
    names = ("to_list", "to_pylist", "tolist")
    if isinstance(values, pl.DataFrame):
        values = values.rows()
    elif (name := next((name for name in names if hasattr(values, name)), None)) is not None:
        values = getattr(values, name)()
    elif hasattr(values, "__array__"):
        return np.asarray(values).tolist()
    return [_listed(value) for value in values] if isinstance(values, (list, tuple)) else values


def _expect_comparable(rows: Sequence[tuple[Sequence[Any], Collection[Any]]]) -> None:
    """Check that ranked items can equal relevant ones: 7 is not "7", and a missing value is no item."""
    ranked = {type(item) for row, _ in rows for item in row} - {type(None)}
    relevant = {type(item) for _, items in rows for item in items}
    if len({Number if issubclass(kind, Number) else kind for kind in ranked | relevant}) > 1:
        names = [", ".join(sorted(kind.__name__ for kind in types)) for types in (ranked, relevant)]
        raise TrainingError(
            f"Expected items of one kind. Received: {names[0]} among the ranked and {names[1]} among "
            "the relevant items, which are never equal. Convert one of them."
        )
    if any(np.isnan(i) for _, items in rows for i in items if isinstance(i, float)):
        raise TrainingError("Expected relevant items that are no NaN. Received: NaN. Leave it out.")


def _items(row: Any) -> set[Any]:
    if isinstance(row, str) or not isinstance(row, Iterable):
        raise TrainingError(
            "Expected the relevant items of each row as a set or a list, of one item as [item]. "
            f"Received: {row!r:.50}."
        )
    # In a set: numpy's own strings and truth values are other types than Python's.
    return {item.item() if isinstance(item, np.generic) else item for item in row}


def _found(row: Sequence[Any], items: Collection[Any]) -> list[bool]:
    """Whether each item is relevant and was not there before."""
    left, found = {*items}, []
    for item in row:
        found.append(item in left)
        left.discard(item)
    return found
