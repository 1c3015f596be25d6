"""The share of the nearest items that an index finds, measured when it is exported."""

from __future__ import annotations

import warnings

import numpy as np

from exporter.plan.golden_rows import GoldenRows
from exporter.prove.offline import OfflineAnswers
from training.item_index import ItemIndex

# A search is said to be poor below it.
_GOOD = 0.9
_MOST_QUERIES = 1000


def measure_recall(
    index: ItemIndex, k: int, rows: GoldenRows, answers: OfflineAnswers
) -> dict[str, float]:
    """The recall of an index against the exact search, by the queries.

    The queries are vectors of items, up to 1,000 evenly spaced in the file, and those that the tower
    makes of the golden rows, except of rows that real data may never contain. Those are few: a recall
    of the items below 0.9 is a warning.
    """
    items = index.items.vectors
    chosen = np.unique(np.linspace(0, len(items) - 1, _MOST_QUERIES).astype(np.int64))
    golden = answers.vectors(rows)
    of_items = index.recall(items[chosen], k)
    if of_items < _GOOD:
        warnings.warn(
            f"The index {index.description} finds few of the {k} nearest items: its recall is {of_items:.3f} with "
            f"{len(chosen):,} items as queries. "
            'Search more of it (search="efSearch=128" for HNSW, "nprobe=32" for IVF), quantize less, '
            'or rescore ("...,RFlat" with "k_factor_rf=4"). In an index of your own the items have to be in the '
            "order of the items' file.",
            stacklevel=5,  # where the export was called
        )
    return {
        f"{len(chosen):,} items as queries": of_items,
        f"{len(golden)} golden rows": index.recall(golden, k),
    }
