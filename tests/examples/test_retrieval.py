"""The example of retrieval, run as a newcomer would; its baseline is computed again, in pandas."""

import re

import numpy as np
import pytest
from package_data import journey_table


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
def test_households_get_products_that_they_will_buy(run_example):
    printed = run_example("retrieval")
    recall, households, products = popularity_recall(50)
    assert f"{households:,} households, {products:,} products" in printed
    found = {
        name: float(re.search(rf"^{name} +.*recall@50 ([\d.]+)", printed, re.MULTILINE)[1])
        for name in ("two towers", "popularity")
    }
    # Products with equal counts at the 50th place may come in another order.
    assert np.isclose(found["popularity"], recall, atol=0.002)
    assert found["two towers"] > 1.2 * recall
    assert f"Parity passed: grocer, {households:,} rows" in printed
    assert f"Parity passed: grocer_index, {households:,} rows" in printed
    assert float(re.search(r"recall of the index: ([\d.]+)", printed)[1]) > 0.9
    assert max(map(len, printed.splitlines())) <= 80
