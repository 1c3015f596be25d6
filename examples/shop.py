"""A small shop: from raw orders to a served, proven ensemble, with most of the operators.

    .venv/bin/python examples/shop.py      # under a minute

The orders resemble real ones: dates, missing values, lists of tags, cities in several alphabets,
customers with negative and with huge numbers. The model predicts whether an order will be sent back.
All files are written to a temporary folder. The exit code is 1 when the server's answers differ from
the offline pipeline's.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import polars as pl

from exporter import export_tensorflow_ensemble
from loader import KerasSequenceLoader
from serving import EnsembleClient, TritonServer, check_parity
from training import models
from workflow import Workflow, ops

CITIES = ["Roma", "Αθήνα", "Москва", "東京", "القاهرة", "Zürich", "São Paulo", "दिल्ली"]
TAGS = ["new", "sale", "été", "限定", "gift", "лето"]


def make_products() -> pl.DataFrame:
    """A table of the products 0 to 179 of 200; some have no cost."""
    random = np.random.default_rng(0)
    key = np.arange(180)
    shelves = [[f"shelf {s}" for s in random.integers(0, 9, n)] for n in key % 4]
    cost = pl.Series(np.round(random.gamma(2, 10, 180), 2)).set(pl.Series(key % 20 == 0), None)
    return pl.DataFrame({"sku": key, "brand": key % 23, "shelves": shelves, "cost": cost})


def make_orders(count: int, seed: int) -> pl.DataFrame:
    """Orders; the probability of a return depends on product, city and the hour of the day."""
    random = np.random.default_rng(seed)
    users = np.concatenate([[-5, -(2**62), 2**63 - 2], np.arange(1_000_000, 1_000_500)])
    product, city, hour = (random.integers(0, n, count) for n in (200, len(CITIES), 24))
    seconds = random.integers(0, 600, count) * 86_400 + hour * 3_600
    lengths, lost = random.integers(0, 5, count), random.random((5, count))
    odds = (product % 7 - 3) + 0.5 * (city % 3) + 1.5 * (hour > 20)
    orders = pl.DataFrame(
        {
            "user": random.choice(users, count),
            "product": product,
            "city": [CITIES[c] for c in city],
            "when": np.datetime64("2025-01-01", "us") + seconds * np.timedelta64(1, "s"),
            "price": np.round(np.exp(random.normal(3, 1, count)), 2),
            "quantity": random.integers(1, 9, count),
            "tags": [[TAGS[t] for t in random.integers(0, 6, n)] for n in lengths],
            "coupon": random.choice(["A1", "B2", "C3"], count),
            "returned": (random.random(count) < 1 / (1 + np.exp(-odds))).astype(np.int8),
        }
    )
    shares = {"user": 0.01, "city": 0.05, "price": 0.1, "tags": 0.02, "coupon": 0.7}
    return orders.with_columns(
        pl.when(pl.Series(row > share)).then(name).alias(name)
        for row, (name, share) in zip(lost, shares.items(), strict=True)
    )


def make_workflow() -> Workflow:
    """The inputs of the network, and the label."""
    bought = ["product"] >> ops.JoinExternal(make_products(), on="product", on_ext="sku")
    day = ["when"] >> ops.DatePart(["weekday", "hour"]) >> ops.Categorify()
    named = ["user", "city", "coupon", "tags"] + bought[["product", "brand", "shelves"]]
    ids = named >> ops.Categorify(freq_threshold={"user": 2}, num_buckets={"user": 10})
    first = ["tags"] >> ops.ListSlice(1) >> ops.Categorify() >> ops.Rename(postfix="_first")
    hashed = ["coupon"] >> ops.HashBucket(8) >> ops.Rename(name="coupon_hash")
    crossed = [["city", "coupon"]] >> ops.HashedCross(64)
    price = ["price"] >> ops.FillMissing(0) >> ops.Clip(0, 500)
    steps = price >> ops.Bucketize([5, 10, 20, 50]) >> ops.Rename(postfix="_step")
    scaled = price >> ops.LogOp() >> ops.Normalize()
    cost = bought["cost"] >> ops.FillMedian() >> ops.NormalizeMinMax()
    many = ["quantity"] >> ops.LambdaOp(lambda n: (n > 4).cast("float32"), tags=["continuous"])
    means = ["product"] >> ops.TargetEncoding("returned")
    groups = ["city"] >> ops.JoinGroupby("quantity", stats=["mean"]) >> ops.FillMissing(0)
    label = ["returned"] >> ops.AddTags(["target"])
    numbers = scaled + cost + many + means + groups
    return Workflow(ids + day + first + hashed + crossed + steps + numbers + label)


def run(folder: Path) -> bool:
    """Run all stages; return whether the server answered as the offline pipeline does."""
    make_orders(30_000, seed=1).write_parquet(folder / "orders.parquet")
    workflow = make_workflow()
    # Training rows are encoded from the other folds, so that no row sees its own target.
    workflow.fit_transform_to_parquet(folder / "orders.parquet", folder / "train")
    workflow.show()
    print(workflow.reverse_mapping("city").tail(3))

    keras.utils.set_random_seed(2)
    model = models.mlp(workflow.output_schema, max_embedding_dim=16, hidden=(64, 64))
    model.compile("adam", "binary_crossentropy", metrics=["AUC"])
    loader = KerasSequenceLoader(folder / "train", batch_size=512, seed=3)
    model.fit(loader, epochs=3, shuffle=False, verbose=2)

    workflow.save(folder / "workflow")
    saved = Workflow.load(folder / "workflow")
    print(export_tensorflow_ensemble(model, saved, "shop", folder / "models"))
    unseen = make_orders(2_000, seed=4)
    with TritonServer(folder / "models") as server, EnsembleClient(server.grpc_url, "shop") as shop:
        print(shop.predict(unseen.drop("returned").head(3)))
        parity = check_parity(shop, workflow, model, unseen)
    print(parity)
    return parity.passed


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(not run(Path(temporary)))
