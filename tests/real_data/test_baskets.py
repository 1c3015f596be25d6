"""A grocer's baskets: lists of product ids and of categories, households half of them unknown."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from package_data import journey_table
from whole_way import (
    Way,
    ask_plainly,
    ids_by_frequency,
    in_odd_files,
    numbers_in_batches,
    train_a_little,
)

from exporter import ServingOptions, export_tensorflow_ensemble
from serving import EnsembleClient, TritonServer, check_parity
from workflow import Workflow, ops

BASKETS = 155_848
PEOPLE = ["age", "income", "home_ownership", "kids_count"]


@pytest.fixture(scope="module")
def lines() -> pl.DataFrame:
    """The 1,469,307 lines of all baskets, each with the category of its product."""
    products = journey_table("products").select("product_id", "product_category", "department")
    bought = journey_table("transactions").with_columns(
        coupon=(pl.col("coupon_disc") > 0).cast(pl.Int8)
    )
    return bought.join(products, on="product_id", how="left", maintain_order="left")


@pytest.fixture(scope="module")
def baskets(lines, tmp_path_factory) -> pl.DataFrame:
    """One row for each basket, made by a workflow of its own, since a server groups no rows."""
    folder = tmp_path_factory.mktemp("lines")
    columns = [
        "product_id",
        "product_category",
        "sales_value",
        "coupon",
        "household_id",
        "store_id",
    ]
    grouped = ["basket_id", *columns] >> ops.Groupby(
        "basket_id",
        aggs={
            "product_id": ["list", "count"],
            "product_category": "list",
            "sales_value": "sum",
            "coupon": "max",
            "household_id": "first",
            "store_id": "first",
        },
    )
    files = in_odd_files(lines.select("basket_id", *columns), folder / "lines")
    Workflow(grouped).fit(files).transform_to_parquet(files, folder / "baskets")
    made = pl.read_parquet(folder / "baskets" / "*.parquet")
    assert made.height == BASKETS
    return made.rename(lambda name: name.removesuffix("_first").removesuffix("_list"))


def features_of_baskets() -> Workflow:
    households = journey_table("demographics").select("household_id", *PEOPLE)
    people = ["household_id"] >> ops.JoinExternal(households, on="household_id")
    described = people[PEOPLE] >> ops.Categorify()
    lists = ["product_id", "product_category"] >> ops.Categorify(freq_threshold={"product_id": 5})
    recent = (
        ["product_id"]
        >> ops.ListSlice(-3, pad=True, pad_value=-1)
        >> ops.HashBucket(1000)
        >> ops.Rename(name="recent")
    )
    ids = ["household_id", "store_id"] >> ops.Categorify(num_buckets={"store_id": 5}, max_size=200)
    spent = ["sales_value_sum"] >> ops.LogOp() >> ops.Normalize()
    size = ["product_id_count"] >> ops.Clip(max_value=30) >> ops.NormalizeMinMax()
    label = ["coupon_max"] >> ops.AddTags(["target"])
    return Workflow(lists + recent + described + ids + spent + size + label + ["basket_id"])


@pytest.fixture(scope="module")
def way(baskets, tmp_path_factory) -> Way:
    folder = tmp_path_factory.mktemp("baskets")
    shuffled = baskets.sample(fraction=1, shuffle=True, seed=0)
    learnt, unseen = shuffled[:-2_000], shuffled[-2_000:]
    workflow = features_of_baskets()
    files = in_odd_files(learnt, folder / "raw")
    workflow.fit(files).transform_to_parquet(files, folder / "train", rows_per_file=50_000)
    workflow.save(folder / "workflow")
    workflow = Workflow.load(folder / "workflow")
    model = train_a_little(workflow, folder / "train", 8_192)
    options = ServingOptions(runtime="fused_onnx")
    export_tensorflow_ensemble(model, workflow, "plain", folder / "models")
    export_tensorflow_ensemble(model, workflow, "fused", folder / "models", serving=options)
    return Way(folder, workflow, model, learnt, unseen)


@pytest.fixture(scope="module")
def server(way):
    with TritonServer(way.folder / "models") as server:
        yield server


def test_baskets_are_those_of_pandas(lines, baskets):
    rows = lines.to_pandas().groupby("basket_id", sort=True)
    assert baskets["basket_id"].to_list() == list(rows.groups)
    assert baskets["product_id_count"].to_list() == rows.size().to_list()
    np.testing.assert_allclose(baskets["sales_value_sum"], rows["sales_value"].sum(), rtol=1e-12)
    some = baskets.sample(300, seed=1)
    rows = lines.filter(pl.col("basket_id").is_in(some["basket_id"].implode())).to_pandas()
    groups = dict(list(rows.groupby("basket_id")))
    for basket in some.iter_rows(named=True):
        group = groups[basket["basket_id"]]
        assert basket["product_id"] == group["product_id"].to_list()
        categories = [None if pd.isna(c) else c for c in group["product_category"]]
        assert basket["product_category"] == categories
        assert basket["household_id"] == group["household_id"].iloc[0]
        assert basket["coupon_max"] == group["coupon"].max()


def test_every_basket_is_in_the_files_and_in_an_epoch_once(way):
    written = pl.read_parquet(way.folder / "train" / "*.parquet", columns=["basket_id"])
    expected = way.learnt["basket_id"].to_list()
    assert written["basket_id"].to_list() == expected
    assert sorted(numbers_in_batches(way.folder / "train", "basket_id", 9_001)) == sorted(expected)


def flat(lists: pl.Series) -> pd.Series:
    """The elements of all rows."""
    return pd.Series(lists.explode(empty_as_null=False).to_list(), dtype=object)


@pytest.mark.parametrize(("name", "least"), [("product_id", 5), ("product_category", 1)])
def test_ids_in_lists_are_those_of_pandas(way, name, least):
    ids = ids_by_frequency(flat(way.learnt[name]), least)
    written = pl.read_parquet(way.folder / "train" / "*.parquet", columns=[name])[name]
    for raw, made in ((way.learnt[name], written), (way.unseen[name], way.features[name])):
        values = flat(raw)
        expected = values.map(ids).fillna(2).where(values.notna(), 1).astype(int)
        assert made.list.len().to_list() == raw.list.len().to_list()
        assert flat(made).to_list() == expected.to_list()
        assert (2 if name == "product_id" else 1) in expected.to_list()
    assert way.workflow.output_schema[name].properties["cardinality"] == 3 + len(ids)


def test_households_are_joined_as_pandas_does(way):
    people = journey_table("demographics").to_pandas().set_index("household_id")
    learnt, unseen = way.learnt.to_pandas(), way.unseen.to_pandas()
    for name in PEOPLE:
        ids = ids_by_frequency(learnt["household_id"].map(people[name]))
        found = unseen["household_id"].map(people[name])
        expected = [1 if pd.isna(value) else ids[value] for value in found]
        assert way.features[name].to_list() == expected
        assert 0.3 < np.mean(np.array(expected) == 1) < 0.7, "half of the households are unknown"
    ids = ids_by_frequency(learnt["household_id"])
    kept = {value: number for value, number in ids.items() if number < 200}
    expected = [kept.get(value, 2) for value in unseen["household_id"]]
    assert way.features["household_id"].to_list() == expected


def test_numbers_are_those_of_pandas(way):
    learnt, unseen = way.learnt.to_pandas(), way.unseen.to_pandas()
    spent, of_unseen = np.log1p(learnt["sales_value_sum"]), np.log1p(unseen["sales_value_sum"])
    expected = (of_unseen - spent.mean()) / spent.std()
    np.testing.assert_allclose(way.features["sales_value_sum"], expected, atol=2e-6)
    size, of_unseen = learnt["product_id_count"].clip(upper=30), unseen["product_id_count"]
    expected = (of_unseen.clip(upper=30) - size.min()) / (size.max() - size.min())
    np.testing.assert_allclose(way.features["product_id_count"], expected, atol=1e-6)


@pytest.mark.parametrize("name", ["plain", "fused"])
def test_the_server_answers_as_the_offline_pipeline(way, server, name):
    with EnsembleClient(server.grpc_url, name) as client:
        report = check_parity(client, way.workflow, way.model, way.unseen)
        assert report.passed, f"\n{report}"
        assert report.rows == way.unseen.height


@pytest.mark.parametrize("name", ["plain", "fused"])
def test_a_plain_client_gets_the_same_answer(way, server, name):
    with EnsembleClient(server.grpc_url, name) as client:
        (output,) = [column.name for column in client.contract.outputs]
        names = [column.name for column in client.contract.inputs]
        rows = way.unseen.filter(pl.col("product_category").list.drop_nulls().list.len() > 0)
        rows = rows.with_columns(pl.col("product_category").list.drop_nulls()).head(200)
        expected = client.predict(rows)[output].to_numpy()
    assert set(names) >= {"product_id", "product_category", "household_id"}
    tensors = {}
    for column in names:
        values = rows[column]
        if isinstance(values.dtype, pl.List):
            tensors[f"{column}__nnzs"] = values.list.len().cast(pl.Int64).to_numpy().reshape(-1, 1)
            values, column = values.explode(empty_as_null=False), f"{column}__values"  # noqa: PLW2901
        text = values.dtype == pl.String
        flat = np.array([t.encode() for t in values], object) if text else values.to_numpy()
        tensors[column] = flat.reshape(-1, 1)
    (answer,) = ask_plainly(server.grpc_url, name, tensors, [output])
    np.testing.assert_allclose(answer.reshape(-1), expected, rtol=1e-6)
