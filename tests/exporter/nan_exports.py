"""Exports of a network that is given a NaN, in this process or by itself; the argument is a folder."""

import json
import sys

import keras
import polars as pl

from exporter import ServingOptions, export_tensorflow_ensemble
from exporter.plan.runtime import RUNTIMES
from serving.embedded.golden import read_golden
from workflow import Workflow, ops


def export_all(folder):
    """Whether the proof compares the answer with a number, by runtime and golden row."""
    price = ["price"] >> ops.LambdaOp(lambda price: price.log())
    workflow = Workflow(price).fit(pl.DataFrame({"price": [1.0, 2.0, 30.0]}))
    keras.utils.set_random_seed(0)
    inputs = keras.Input((1,), name="price", dtype="float32")
    score = keras.layers.Dense(1, name="score")(keras.layers.Dense(16, "relu")(inputs))
    model = keras.Model(inputs, score)
    made = {}
    for runtime in RUNTIMES:
        report = export_tensorflow_ensemble(
            model, workflow, runtime, folder, [], serving=ServingOptions(runtime=runtime)
        )
        rows = read_golden(report.paths[runtime] / "golden.json")
        made[runtime] = {
            row.name: bool((row.allowed["score"] < float("inf")).all()) for row in rows
        }
        made[runtime]["the report says so"] = "NaN can reach the network: price" in str(report)
    return made


if __name__ == "__main__":
    print(json.dumps(export_all(sys.argv[1])))  # noqa: T201
