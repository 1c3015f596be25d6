"""The example of Outbrain's clicks: MAP@12 by its definition, joins by pandas, and a whole run."""

import re

import numpy as np
import outbrain
import pandas as pd
import polars as pl
import pytest

# The first lines of the competition's files, and a platform that is missing.
FILES = {
    "clicks_train": "display_id,ad_id,clicked\n1,42337,0\n1,139684,1\n2,42337,1\n",
    "events": (
        "display_id,uuid,document_id,timestamp,platform,geo_location\n"
        "1,cb8c55702adb93,379743,61,3,US>SC>519\n2,79a85fa78311b9,1794259,81,\\N,\n"
    ),
    "promoted_content": (
        "ad_id,document_id,campaign_id,advertiser_id\n42337,938164,5969,1499\n139684,1085937,17527,2563\n"
    ),
    "documents_meta": (
        "document_id,source_id,publisher_id,publish_time\n379743,1,603,2016-06-05 00:00:00\n938164,,,\n"
    ),
    "documents_categories": (
        "document_id,category_id,confidence_level\n379743,1611,0.92\n379743,1610,0.07\n"
    ),
}  # fmt: skip


def average_precision(clicked, first):
    """The average precision at `first` of one ranking: the definition, with any number of clicks."""
    hits, total = 0, 0.0
    for rank, click in enumerate(clicked[:first], 1):
        if click:
            hits += 1
            total += hits / rank
    return total / min(sum(clicked), first)


def mean_by_definition(rows, score, first):
    found = [
        average_precision(
            display.sort_values(score, ascending=False, kind="stable")["clicked"].tolist(), first
        )
        for _, display in rows.to_pandas().groupby("display_id")
    ]
    return np.mean(found)


@pytest.mark.parametrize("first", [1, 3, 12])
def test_the_mean_average_precision_is_that_of_its_definition(first):
    random = np.random.default_rng(0)
    sizes = random.integers(1, 20, 300)
    clicked = np.concatenate([np.eye(size, dtype=int)[random.integers(size)] for size in sizes])
    rows = pl.DataFrame(
        {
            "display_id": np.repeat(np.arange(300), sizes),
            "clicked": clicked,
            "score": random.integers(0, 9, len(clicked)) / 8,  # with equal scores
        }
    ).sample(fraction=1, shuffle=True, seed=1)
    found = outbrain.mean_average_precision(rows, "score", first)
    assert found == pytest.approx(mean_by_definition(rows, "score", first))


def test_a_score_that_is_no_number_ranks_nothing():
    rows = pl.DataFrame(
        {
            "display_id": [1, 1, 2, 2],
            "clicked": [1, 0, 0, 1],
            "score": [float("nan"), 0.1, float("nan"), 0.2],
        }
    )
    assert outbrain.mean_average_precision(rows, "score") == 0.5


def test_joined_features_are_those_of_pandas():
    tables = outbrain.make_tables()
    rows = tables["clicks_train"].head(3_000)
    workflow = outbrain.make_workflow(outbrain.joined_tables(tables)).fit(rows)
    made = workflow.transform(rows).collect()
    joined = rows.to_pandas()
    for table, key in (("events", "display_id"), ("promoted_content", "ad_id")):
        renamed = tables[table].rename({"document_id": f"{table}_document"}).to_pandas()
        joined = joined.merge(renamed, on=key, how="left")
    publisher = tables["documents_meta"].to_pandas().set_index("document_id")["publisher_id"]
    for name, document in (("of_page", "events_document"), ("of_ad", "promoted_content_document")):
        mapping = workflow.reverse_mapping(f"publisher_id_{name}")
        values = dict(zip(mapping["id"].to_list(), mapping["value"].to_list(), strict=True))
        found = [values[n] for n in made[f"publisher_id_{name}"].to_list()]
        assert pd.Series(found, dtype=float).equals(
            joined[document].map(publisher).reset_index(drop=True)
        )


def test_the_real_tables_are_read(tmp_path):
    for name, text in FILES.items():
        (tmp_path / f"{name}.csv").write_text(text)
    tables = outbrain.read(tmp_path)
    assert tables["events"]["platform"].to_list() == [3, None]
    joined = outbrain.joined_tables(tables)
    assert joined["documents"].rows() == [(379743, 603, [1611, 1610]), (938164, None, None)]
    # The times are milliseconds after 1465876799998, says the competition's page.
    assert joined["events"]["at"].dt.epoch("ms")[0] == 1_465_876_799_998 + 61
    workflow = outbrain.make_workflow(joined).fit(tables["clicks_train"])
    assert workflow.transform(tables["clicks_train"]).collect().height == 3


def test_a_document_of_one_table_alone_keeps_its_facts():
    tables = outbrain.make_tables()
    tables["documents_meta"] = pl.DataFrame({"document_id": [1, 2], "publisher_id": [7, None]})
    tables["documents_categories"] = pl.DataFrame(
        {"document_id": [3, 1, 3], "category_id": [10, 11, 12], "confidence_level": [0.1, 0.9, 0.8]}
    )
    documents = outbrain.joined_tables(tables)["documents"].sort("document_id")
    assert documents.rows() == [(1, 7, [11]), (2, None, None), (3, None, [12, 10])]


@pytest.mark.long
@pytest.mark.xdist_group("end_to_end")  # one server at a time
def test_ads_are_ranked_better_than_by_popularity_and_served(run_example, tmp_path):
    printed = run_example("outbrain", "--output", tmp_path)
    precision = {
        name: float(found)
        for name, found in re.findall(r"^(\w+) +MAP@12 ([\d.]+)$", printed, re.MULTILINE)
    }
    rows = pl.read_parquet(tmp_path / "ranked.parquet")
    assert set(rows["display_id"] % 10) == {0}
    for name, found in precision.items():
        assert found == pytest.approx(mean_by_definition(rows, name, 12), abs=1e-4)
    assert precision["network"] > precision["popularity"] + 0.01
    assert "Parity passed: outbrain, 2,000 rows" in printed
    assert max(map(len, printed.splitlines())) <= 80
