"""A NaN among the features, of which TensorFlow makes one number or another by the processor.

By the environment variable TensorFlow joins products with relu, as it does by itself on some
processors, or leaves them apart; relu of NaN is 0 in the first case. It is read once a process.
"""

import json
import os
import subprocess
import sys

import pytest

EXPORTS = """
import json, sys
from pathlib import Path
import keras, numpy as np, polars as pl
from exporter import ServingOptions, export_tensorflow_ensemble
from serving.embedded.golden import read_golden
from workflow import Workflow, ops

price = ["price"] >> ops.LambdaOp(lambda price: price.log())
workflow = Workflow(price).fit(pl.DataFrame({"price": [1.0, 2.0, 30.0]}))
keras.utils.set_random_seed(0)
inputs = keras.Input((1,), name="price", dtype="float32")
score = keras.layers.Dense(1, name="score")(keras.layers.Dense(16, "relu")(inputs))
model = keras.Model(inputs, score)
graph = model.predict_on_batch(np.full((1, 1), np.nan, np.float32))
made = {}
for runtime in ("tensorflow", "fused_tensorflow", "onnx", "fused_onnx"):
    report = export_tensorflow_ensemble(
        model, workflow, runtime, sys.argv[1], [], serving=ServingOptions(runtime=runtime)
    )
    rows = read_golden(report.paths[runtime] / "golden.json")
    made[runtime] = {row.name: bool(np.isfinite(row.allowed["score"]).all()) for row in rows}
print(json.dumps(made))
"""


@pytest.mark.parametrize("onednn", ["1", pytest.param("0", marks=pytest.mark.long)])
def test_an_export_does_not_depend_on_what_a_processor_makes_of_a_nan(onednn, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", EXPORTS, str(tmp_path)],
        env=os.environ | {"TF_ENABLE_ONEDNN_OPTS": onednn},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    # A server on another processor is asked for the rows too, and held to the numbers alone.
    for rows in json.loads(done.stdout.splitlines()[-1]).values():
        assert not rows["negative numbers"]
        assert rows["usual values"]
