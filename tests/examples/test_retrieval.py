"""The example of retrieval, run as a newcomer would; its baseline is computed again, in pandas."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from package_data import journey_table

RETRIEVAL = Path(__file__).parents[2] / "examples" / "retrieval.py"


def popularity_recall(k):
    lines = journey_table("transactions").to_pandas()
    before, after = lines[lines["week"] <= 45], lines[lines["week"] > 45]
    counts = before["product_id"].value_counts()
    popular = set(counts.index[:k])
    bought = after[after["product_id"].isin(counts.index[counts >= 50])]
    shares = bought.groupby("household_id")["product_id"].agg(
        lambda products: len(popular & set(products)) / len(set(products))
    )
    return shares.mean(), len(shares), (counts >= 50).sum()


@pytest.mark.long
@pytest.mark.xdist_group("end_to_end")  # one server at a time
def test_households_get_products_that_they_will_buy():
    result = subprocess.run(
        [sys.executable, RETRIEVAL], capture_output=True, text=True, timeout=280, check=False
    )
    assert result.returncode == 0, result.stderr
    recall, households, products = popularity_recall(50)
    assert f"{households:,} households, {products:,} products" in result.stdout
    found = {
        name: float(re.search(rf"^{name} +.*recall@50 ([\d.]+)", result.stdout, re.MULTILINE)[1])
        for name in ("two towers", "popularity")
    }
    # Products with equal counts at the 50th place may come in another order.
    assert np.isclose(found["popularity"], recall, atol=0.002)
    assert found["two towers"] > 1.2 * recall
    assert f"Parity passed: grocer, {households:,} rows" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
