"""The number of ids of a column."""

from __future__ import annotations

import numpy as np
import pytest

from training.column_facts.id_counts import id_count
from workflow import ColumnSchema


@pytest.mark.parametrize(
    ("dtype", "properties", "count"),
    [
        ("int64", {}, 0),
        ("int64", {"cardinality": 9}, 9),
        ("int64", {"cardinality": np.int64(9)}, 9),
        ("int64", {"cardinality": 9, "domain": {"min": 0, "max": 6}}, 7),
        ("float32", {"cardinality": 9, "domain": {"min": 0, "max": 6}}, 0),
        ("int64", {"cardinality": 9, "domain": "example.com"}, 9),
        ("int64", {"domain": None}, 0),
        ("int64", {"cardinality": "many"}, 0),
    ],
)
def test_ids_are_counted_by_facts_and_not_by_words_of_the_users(dtype, properties, count):
    assert id_count(ColumnSchema("site", dtype, properties=properties)) == count
