"""Clicks on Outbrain's recommendations: Wide & Deep over five joined tables, ranked, served.

    .venv/bin/python examples/outbrain.py                    # generated data, under a minute
    .venv/bin/python examples/outbrain.py --data outbrain    # the real tables of the competition

Each display shows some ads on a page to a person, of which one is clicked. A row is an ad of a display;
its features come from the display's event, the ad's campaign, and the documents of the page and of the
ad with their publisher and category, each by a join inside the workflow, so that a request has to hold
the display and the ad alone. The measure is that of the competition: the mean average precision of the first 12
ads of each display (MAP@12), over displays that the network has not seen, beside that of the ads'
popularity. The real files (clicks_train.csv, events.csv, promoted_content.csv, documents_meta.csv,
documents_categories.csv) are at https://www.kaggle.com/c/outbrain-click-prediction/data: 87 million
rows. The exit code is 1 when the server's answers differ from the offline pipeline's.

Source: NVIDIA's DeepLearningExamples, Wide & Deep for TensorFlow 2, 2021.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import polars as pl

from exporter import ServingOptions, export_tensorflow_ensemble
from loader import KerasSequenceLoader
from serving import EnsembleClient, TritonServer, check_parity
from training import models, train
from workflow import Workflow, ops

DISPLAYS, ADS, DOCUMENTS, PUBLISHERS = 24_000, 900, 1_500, 60
EPOCHS, FIRST = 3, 12
# Milliseconds from 2016-06-14 04:00 UTC are the times of events.csv.
START = 1_465_876_799_998
Tables = dict[str, pl.DataFrame]


def make_tables() -> Tables:
    """Small tables with the columns of the real ones; some clicks depend on page and ad together."""
    random = np.random.default_rng(0)
    document = np.arange(1, DOCUMENTS + 1)
    category = random.zipf(1.5, DOCUMENTS) % 30
    publisher = random.zipf(1.4, DOCUMENTS) % PUBLISHERS
    ads = np.arange(1, ADS + 1)
    landing = random.integers(0, DOCUMENTS, ADS)
    appeal = random.normal(0, 0.7, ADS)
    shown = random.integers(2, 9, DISPLAYS)
    page = random.zipf(1.3, DISPLAYS) % DOCUMENTS
    platform = random.integers(1, 4, DISPLAYS)
    display = np.repeat(np.arange(DISPLAYS), shown)
    ad = random.zipf(1.2, len(display)) % ADS
    alike = category[page[display]] == category[landing[ad]]
    score = appeal[ad] + 1.5 * alike + 0.8 * (ad % 3 == platform[display] - 1)
    score += random.gumbel(size=len(display))
    rows = pl.DataFrame({"display_id": display + 1, "ad_id": ads[ad], "score": score})
    rows = rows.unique(["display_id", "ad_id"], maintain_order=True, keep="first")
    clicked = (pl.col("score") == pl.col("score").max().over("display_id")).cast(pl.Int8)
    return {
        "clicks_train": rows.select("display_id", "ad_id", clicked=clicked),
        "events": pl.DataFrame(
            {
                "display_id": np.arange(1, DISPLAYS + 1),
                "document_id": document[page],
                "timestamp": random.integers(0, 12 * 86_400_000, DISPLAYS),
                "platform": platform,
                "geo_location": random.choice(["US>CA>807", "US>NY", "GB", "CA>ON", ""], DISPLAYS),
            }
        ),
        "promoted_content": pl.DataFrame(
            {
                "ad_id": ads,
                "document_id": document[landing],
                "campaign_id": random.integers(1, 200, ADS),
                "advertiser_id": random.integers(1, 40, ADS),
            }
        ),
        "documents_meta": pl.DataFrame(
            {
                "document_id": document,
                "publisher_id": pl.Series(publisher).set(pl.Series(publisher == 0), None),
            }
        ),
        "documents_categories": pl.DataFrame(
            {
                "document_id": np.repeat(document, 2),
                "category_id": np.column_stack([category, (category + 7) % 30]).ravel() + 1000,
                "confidence_level": np.tile([0.92, 0.07], DOCUMENTS),
            }
        ),
    }


def read(folder: Path) -> Tables:
    """The real tables."""
    names = ("clicks_train", "events", "promoted_content", "documents_meta", "documents_categories")
    # A few platforms are null in the competition's files.
    return {name: pl.read_csv(folder / f"{name}.csv", null_values=["\\N"]) for name in names}


def joined_tables(tables: Tables) -> Tables:
    """The tables to join: an event for each display, an ad, and a document with its categories."""
    events = tables["events"].select(
        "display_id",
        pl.col("document_id").alias("page"),
        pl.col("platform").cast(pl.Int64),
        pl.col("geo_location").fill_null("").str.slice(0, 2).alias("country"),
        pl.from_epoch(START + pl.col("timestamp"), "ms").alias("at"),
    )
    categories = (
        tables["documents_categories"]
        .group_by("document_id")
        .agg(pl.col("category_id").sort_by("confidence_level", "category_id", descending=True))
    )
    documents = tables["documents_meta"].select("document_id", "publisher_id")
    # Either table may lack a document that the other one has.
    documents = documents.join(categories, on="document_id", how="full", coalesce=True)
    ads = tables["promoted_content"].rename({"document_id": "landing"})
    return {"events": events, "ads": ads, "documents": documents}


def make_workflow(tables: Tables) -> Workflow:
    """The features of an ad in a display, by four joins, and the label."""
    event = ["display_id"] >> ops.JoinExternal(tables["events"], on="display_id")
    ad = ["ad_id"] >> ops.JoinExternal(tables["ads"], on="ad_id")
    page = event["page"] >> ops.JoinExternal(tables["documents"], on="page", on_ext="document_id")
    landing = ad["landing"] >> ops.JoinExternal(
        tables["documents"], on="landing", on_ext="document_id"
    )
    facts = ["publisher_id", "category_id"]
    of_page = page[facts] >> ops.Rename(postfix="_of_page")
    of_ad = landing[facts] >> ops.Rename(postfix="_of_ad")
    time = event["at"] >> ops.DatePart(["weekday", "hour"])
    named = (
        ["ad_id"] + ad[["campaign_id", "advertiser_id"]] + event[["platform", "country"]]
        + of_page + of_ad + time
    )  # fmt: skip
    ids = named >> ops.Categorify(freq_threshold={"ad_id": 5}, dtype="int32")
    # How often an ad was clicked, out of fold in training.
    rates = ["ad_id"] >> ops.TargetEncoding("clicked", p_smooth=20)
    label = ["clicked"] >> ops.AddTags(["target"])
    return Workflow(ids + rates + label)


def mean_average_precision(rows: pl.DataFrame, score: str, first: int = FIRST) -> float:
    """The mean of 1 / rank of the clicked ad over displays, 0 beyond the first ranks.

    With one click in a display, this is the mean average precision at `first`. Ads of equal score
    keep the order of the rows; a score of NaN or null has no rank.

    Args:
        rows: columns `display_id`, `clicked` and the score.
        score: name of the score, by which each display is ranked.
        first: how many ranks count.

    Example:
        >>> rows = {"display_id": [1, 1, 2, 2], "clicked": [0, 1, 1, 0], "score": [0.9, 0.4, 0.8, 0.3]}
        >>> mean_average_precision(pl.DataFrame(rows), "score")
        0.75
    """
    known = pl.col(score).fill_nan(None)  # Polars has NaN above all numbers.
    ranks = known.rank("ordinal", descending=True).over("display_id")
    ranked = rows.with_columns(rank=ranks).filter(pl.col("clicked") == 1)
    gains = ranked.select(pl.when(pl.col("rank") <= first).then(1 / pl.col("rank")).otherwise(0.0))
    return float(gains.sum().item()) / rows["display_id"].n_unique()


def split(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows to learn and rows to predict: every tenth display is unseen."""
    unseen = pl.col("display_id") % 10 == 0
    return rows.filter(~unseen), rows.filter(unseen)


def run(tables: Tables, folder: Path) -> bool:
    """Run all stages; return whether the server answered as the offline pipeline does."""
    before, after = split(tables["clicks_train"])
    print(f"{before.height:,} rows to learn, {after.height:,} to rank")
    before.write_parquet(folder / "clicks.parquet", row_group_size=100_000)
    after.write_parquet(folder / "unseen.parquet")
    workflow = make_workflow(joined_tables(tables))
    workflow.fit_transform_to_parquet(folder / "clicks.parquet", folder / "train", shuffle=True)
    workflow.transform_to_parquet(folder / "unseen.parquet", folder / "valid")

    keras.utils.set_random_seed(2)
    batch = 1024 if before.height < 10**6 else 65_536
    network = models.wide_and_deep(
        workflow.output_schema, hidden=(128, 64), max_embedding_dim=16, dropout=0.1
    )
    report = train(
        network,
        KerasSequenceLoader(folder / "train", batch, seed=3),
        KerasSequenceLoader(folder / "valid", batch, shuffle=False),
        epochs=EPOCHS,
        optimizer="adam",
        verbose=True,
    )
    print(report)

    options = ServingOptions(runtime="fused_onnx", max_batch_size=16_384)
    export_tensorflow_ensemble(network, workflow, "outbrain", folder / "models", serving=options)
    with (
        TritonServer(folder / "models") as server,
        EnsembleClient(server.grpc_url, "outbrain") as client,
    ):
        answers = client.predict(after.drop("clicked").head(1_000_000))
        parity = check_parity(client, workflow, network, after.head(2_000))
    ranked = rank(before, after.head(answers.height), answers["output"])
    ranked.write_parquet(folder / "ranked.parquet")
    for name in ("network", "popularity"):
        print(f"{name:10} MAP@{FIRST} {mean_average_precision(ranked, name):.4f}")
    print(parity)
    return parity.passed


def rank(before: pl.DataFrame, after: pl.DataFrame, answers: pl.Series) -> pl.DataFrame:
    """Rows to rank with two scores: the network's, and the share of an ad's showings with a click."""
    rates = before.group_by("ad_id").agg(
        popularity=(pl.col("clicked").sum() + 0.2 * 20) / (pl.len() + 20)
    )
    return (
        after.with_columns(network=answers)
        .join(rates, on="ad_id", how="left", maintain_order="left")
        .with_columns(pl.col("popularity").fill_null(0.2))
    )


def main() -> bool:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="the folder of the real tables, as CSV")
    parser.add_argument("--output", type=Path, help="keep all files there")
    parsed = parser.parse_args()
    tables: Any = make_tables() if parsed.data is None else read(parsed.data)
    with tempfile.TemporaryDirectory() as temporary:
        folder = parsed.output or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        return run(tables, folder)


if __name__ == "__main__":
    sys.exit(not main())
