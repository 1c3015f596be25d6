"""Sales of Rossmann's drugstores: a regression with embeddings, dates, joins and RMSPE, served.

    .venv/bin/python examples/rossmann.py                    # generated data, under a minute
    .venv/bin/python examples/rossmann.py --data rossmann    # the real train.csv and store.csv

The features are those of fast.ai's lesson and of NVTabular's notebook, as far as a request can have
them: parts of the date, the store's facts by a join, the months since a competitor opened and the weeks
since a promotion began. The network predicts the logarithm of a day's sales; the measure is the root
mean square percentage error (RMSPE) of the competition, on the last six weeks. The real files are at
https://www.kaggle.com/c/rossmann-store-sales/data: 1,017,209 days of 1,115 stores. The exit code is 1
when the server's answers differ from the offline pipeline's.

Source: C. Guo, F. Berkhahn, Entity Embeddings of Categorical Variables, 2016 (third place).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from datetime import date, timedelta
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import polars as pl

from exporter import export_tensorflow_ensemble
from loader import KerasSequenceLoader
from serving import EnsembleClient, TritonServer, check_parity
from training import layers, optimizers
from workflow import Workflow, get_embedding_sizes, ops

FIRST, LAST = date(2013, 1, 1), date(2015, 7, 31)
SIX_WEEKS = date(2015, 6, 20)
STORES, EPOCHS = 60, 6
# Years before 1990 are of stores next to old ones, as in NVTabular's notebook.
OLDEST = 1990


def make_stores(count: int) -> pl.DataFrame:
    """Facts of stores with the columns of store.csv; some have no competitor or no promotion."""
    random = np.random.default_rng(0)
    promoted, rival = random.random(count) < 0.5, random.random(count) < 0.7

    def known(values: Any, where: Any) -> pl.Series:
        return pl.Series(values).set(pl.Series(~where), None)

    return pl.DataFrame(
        {
            "Store": np.arange(1, count + 1),
            "StoreType": random.choice([*"abcd"], count),
            "Assortment": random.choice([*"abc"], count),
            "CompetitionDistance": known(random.integers(2, 7_586, count) * 10.0, random.random(count) > 0.02),
            "CompetitionOpenSinceMonth": known(random.integers(1, 13, count), rival),
            "CompetitionOpenSinceYear": known(random.integers(1985, 2016, count), rival),
            "Promo2": promoted.astype(np.int64),
            "Promo2SinceWeek": known(random.integers(1, 51, count), promoted),
            "Promo2SinceYear": known(random.integers(2009, 2016, count), promoted),
            "PromoInterval": known(random.choice(["Jan,Apr,Jul,Oct", "Feb,May,Aug,Nov"], count), promoted),
        }
    )  # fmt: skip


def make_days(stores: pl.DataFrame) -> pl.DataFrame:
    """A row for each store and day with the columns of train.csv, the latest day first."""
    random = np.random.default_rng(1)
    days = pl.DataFrame({"Date": [FIRST + timedelta(n) for n in range((LAST - FIRST).days + 1)]})
    rows = days.reverse().join(stores.select("Store"), how="cross")
    weekday = rows["Date"].dt.weekday().to_numpy()
    week = rows["Date"].dt.week().to_numpy()
    promo = (week % 2 == 0) & (weekday < 6)
    holiday = random.choice([*"0000000000000000000000000000000abc"], rows.height)
    is_open = ((weekday < 7) & (holiday == "0")).astype(np.int64)
    # Sales depend on the season, in each assortment's own way, and fall when a competitor opens.
    of = rows["Store"].to_numpy() - 1
    level = random.normal(8.7, 0.3, stores.height)[of]
    phase = np.array([{"a": 0.0, "b": 2.0, "c": 4.0}[kind] for kind in stores["Assortment"]])[of]
    season = 0.2 * np.sin(rows["Date"].dt.ordinal_day().to_numpy() / 58 + phase)
    opened = stores["CompetitionOpenSinceYear"] * 12 + stores["CompetitionOpenSinceMonth"]
    since = rows["Date"].dt.year().cast(pl.Int64) * 12 + rows["Date"].dt.month() - opened.gather(of)
    rival = -0.4 * since.is_between(0, 24).fill_null(False).to_numpy()
    noise = random.normal(0, 0.1, rows.height)
    sales = np.exp(level + season + rival + 0.1 * (weekday == 1) + 0.3 * promo + noise)
    return rows.select(
        "Store",
        DayOfWeek=pl.Series(weekday).cast(pl.Int64),
        Date="Date",
        Sales=pl.Series(np.round(sales) * is_open).cast(pl.Int64),
        Customers=pl.Series(np.round(sales / 9) * is_open).cast(pl.Int64),
        Open=pl.Series(is_open),
        Promo=pl.Series(promo.astype(np.int64)),
        StateHoliday=pl.Series(holiday),
        SchoolHoliday=pl.Series(random.integers(0, 2, rows.height)),
    )


def read(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The real tables: store.csv and train.csv."""
    # A day is "0" or a letter: without a schema the first rows look like numbers.
    days = pl.read_csv(
        folder / "train.csv", try_parse_dates=True, schema_overrides={"StateHoliday": pl.String}
    )
    return pl.read_csv(folder / "store.csv", infer_schema_length=None), days


def make_workflow(stores: pl.DataFrame) -> Workflow:
    """Embedded ids and normalised numbers of a day and its store, and the logarithm of the sales."""
    facts = ["Store"] >> ops.JoinExternal(stores, on="Store")
    day = ["Date"] >> ops.DatePart(["year", "month", "day", "weekday", "dayofyear"])
    month = day["Date_year"] >> ops.LambdaOp(
        lambda year, df: year * 12 + df["Date_month"], day["Date_month"]
    )
    week = day["Date_year"] >> ops.LambdaOp(
        lambda year, df: (year * 366 + df["Date_dayofyear"]) // 7, day["Date_dayofyear"]
    )
    # As many months, or weeks, as fast.ai's lesson distinguishes.
    rival = facts["CompetitionOpenSinceYear"] >> ops.LambdaOp(
        lambda year, df: (
            df["Date_year"] - year.clip(OLDEST, None) * 12 - df["CompetitionOpenSinceMonth"]
        ).clip(0, 24),
        month + facts["CompetitionOpenSinceMonth"],
    )
    promoted = facts["Promo2SinceYear"] >> ops.LambdaOp(
        lambda year, df: (
            df["Date_year"] - (year * 366 + (df["Promo2SinceWeek"] - 1) * 7 + 1) // 7
        ).clip(0, 25),
        week + facts["Promo2SinceWeek"],
    )
    named = ["Store", "StateHoliday", "Promo", "SchoolHoliday"]
    kinds = facts[["StoreType", "Assortment", "PromoInterval", "Promo2"]]
    since = (rival >> ops.Rename(name="CompetitionMonths")) + (
        promoted >> ops.Rename(name="PromoWeeks")
    )
    parts = day[["Date_year", "Date_month", "Date_day", "Date_weekday"]]
    ids = (named + kinds + since + parts) >> ops.Categorify()
    distance = facts["CompetitionDistance"] >> ops.FillMedian() >> ops.LogOp() >> ops.Normalize()
    sales = ["Sales"] >> ops.LambdaOp(
        lambda sales: np.log1p(sales.cast("float32")), tags=["target"]
    )
    return Workflow(ids + distance + sales)


def make_network(workflow: Workflow, highest: float) -> keras.Model:
    """Embeddings and dense layers; the output is at most a little above the highest sales.

    Args:
        workflow: fitted.
        highest: the greatest logarithm of sales in training.
    """
    sizes = get_embedding_sizes(workflow, rule=lambda rows: min(32, (rows + 1) // 2))
    numbers = ["CompetitionDistance"]
    inputs = {name: keras.Input((1,), name=name, dtype="int64") for name in sizes}
    inputs |= {name: keras.Input((1,), name=name, dtype="float32") for name in numbers}
    x = layers.DenseFeatures(sizes, numbers)(inputs)
    for width in (256, 128):
        x = keras.layers.Dense(width, "relu")(x)
    share = keras.layers.Dense(1, "sigmoid")(x)
    output = keras.layers.Rescaling(1.2 * highest, name="log_sales")(share)
    return keras.Model(inputs, output)


def percentage_error(sales: Any, predicted: Any) -> float:
    """The root mean square percentage error, over days with sales.

    Args:
        sales: shape (N,), above 0.
        predicted: shape (N,).

    Example:
        >>> percentage_error(np.array([100.0, 200.0]), np.array([110.0, 200.0]))
        0.0707...
    """
    return float(np.sqrt((((sales - predicted) / sales) ** 2).mean()))


def run(stores: pl.DataFrame, days: pl.DataFrame, folder: Path) -> bool:
    """Run all stages; return whether the server answered as the offline pipeline does."""
    sold = days.filter((pl.col("Open") == 1) & (pl.col("Sales") > 0)).drop("Open", "Customers")
    before, after = (
        sold.filter(pl.col("Date") < SIX_WEEKS),
        sold.filter(pl.col("Date") >= SIX_WEEKS),
    )
    print(f"{stores.height:,} stores, {before.height:,} days to learn, {after.height:,} to predict")
    before.write_parquet(folder / "days.parquet", row_group_size=50_000)
    workflow = make_workflow(stores).fit(folder / "days.parquet")
    workflow.transform_to_parquet(folder / "days.parquet", folder / "train", shuffle=True)

    keras.utils.set_random_seed(1)
    batch = 512 if before.height < 200_000 else 4096
    network = make_network(workflow, float(np.log1p(before["Sales"].max())))  # type: ignore[arg-type]
    loader = KerasSequenceLoader(folder / "train", batch, seed=1)
    steps = EPOCHS * len(loader)
    rate = keras.optimizers.schedules.CosineDecay(0.003, steps)
    network.compile(optimizers.Adam(rate), "mean_squared_error")
    network.fit(loader, epochs=EPOCHS, shuffle=False, verbose=2)

    print(export_tensorflow_ensemble(network, workflow, "rossmann", folder / "models"))
    with (
        TritonServer(folder / "models") as server,
        EnsembleClient(server.grpc_url, "rossmann") as client,
    ):
        answers = client.predict(after.drop("Sales"))["log_sales"].to_numpy()
        parity = check_parity(client, workflow, network, after.head(2_000))
    # What a shop sells on the same day of the week, with and without a promotion.
    keys = ["Store", "DayOfWeek", "Promo"]
    means = before.group_by(keys).agg(mean=pl.col("Sales").log1p().mean())
    usual = after.join(means, on=keys, how="left", maintain_order="left")["mean"]
    for name, logs in (("network", answers), ("mean", usual.fill_null(usual.mean()).to_numpy())):
        error = percentage_error(after["Sales"].to_numpy(), np.expm1(logs))
        print(f"{name:8} RMSPE of the last six weeks {error:.4f}")
    after.with_columns(log_sales=answers).write_parquet(folder / "predicted.parquet")
    print(parity)
    return parity.passed


def main() -> bool:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="the folder of the real train.csv and store.csv")
    parser.add_argument("--output", type=Path, help="keep all files there")
    parsed = parser.parse_args()
    stores = make_stores(STORES)
    tables = (stores, make_days(stores)) if parsed.data is None else read(parsed.data)
    with tempfile.TemporaryDirectory() as temporary:
        folder = parsed.output or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        return run(*tables, folder)


if __name__ == "__main__":
    sys.exit(not main())
