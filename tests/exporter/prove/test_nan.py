"""A NaN among the features, of which TensorFlow makes one number or another by the processor.

By the environment variable TensorFlow joins products with relu, as it does by itself on some
processors, or leaves them apart; relu of NaN is 0 in the first case. It is read once a process.
"""

import json
import os
import subprocess
import sys

import keras
import nan_exports
import numpy as np
import polars as pl
import pytest

from exporter import ServingOptions, export_ensemble
from exporter.plan.runtime import RUNTIMES
from serving.embedded.golden import read_golden
from workflow import Workflow, ops


def exported(folder, onednn):
    """The exports of this process, or of another with the variable."""
    if onednn is None:
        return nan_exports.export_all(folder)
    done = subprocess.run(
        [sys.executable, nan_exports.__file__, folder],
        env=os.environ | {"TF_ENABLE_ONEDNN_OPTS": onednn, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "onednn", [None, *(pytest.param(value, marks=pytest.mark.long) for value in "01")]
)
def test_an_export_does_not_depend_on_what_a_processor_makes_of_a_nan(onednn, tmp_path):
    made = exported(tmp_path, onednn)
    assert len(made) == 4
    # A server on another processor is asked for the rows too, and held to the numbers alone.
    for rows in made.values():
        assert not rows["negative numbers"]
        assert rows["usual values"]
        assert rows["the report says so"]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_network_that_makes_nan_of_a_row_is_exported_with_a_warning(runtime, tmp_path):
    """A mean of no values, which the kernels for one processor turn into a number."""
    tags = ["tags"] >> ops.Categorify() >> ops.ListSlice(3, pad=True)
    workflow = Workflow(tags).fit(pl.DataFrame({"tags": [["a"], ["a", "b"]]}))
    inputs = keras.Input((3,), name="tags", dtype="int64")
    vectors = keras.layers.Embedding(5, 4, mask_zero=True)(inputs)
    mean = keras.layers.GlobalAveragePooling1D()(vectors)
    score = keras.layers.Dense(1, name="score")(keras.layers.Dense(16, "relu")(mean))
    model = keras.Model(inputs, score)
    with pytest.warns(UserWarning, match=r"makes NaN of .*\(empty lists\).* a number") as found:
        report = export_ensemble(
            model, workflow, "mean", tmp_path, [], serving=ServingOptions(runtime=runtime)
        )
    assert found[0].filename == __file__
    assert "makes NaN of golden rows: empty lists" in " ".join(str(report).split())
    rows = read_golden(report.paths["mean"] / "golden.json")
    free = {row.name for row in rows if np.isinf(row.allowed["score"]).all()}
    assert free == {"empty lists"}


def test_a_nan_in_a_list_that_travels_padded_reaches_the_network(tmp_path):
    """The list is laid out flat again before the network, which alone says what NaN means to it."""
    import tensorflow as tf

    class Sums(keras.layers.Layer):
        def call(self, halves):
            values, lengths = halves
            known = tf.where(tf.math.is_nan(values), tf.cast(100.0, values.dtype), values)
            rows = tf.repeat(tf.range(tf.shape(lengths)[0]), lengths[:, 0])
            return tf.math.unsorted_segment_sum(known, rows, tf.shape(lengths)[0])

        def compute_output_shape(self, shapes):
            return shapes[1]

    dtypes = {"x__values": "float64", "x__nnzs": "int64"}
    halves = {name: keras.Input((1,), name=name, dtype=dtype) for name, dtype in dtypes.items()}
    network = keras.Model(halves, Sums(dtype="float64", name="y")([*halves.values()]))
    workflow = Workflow(["x"] >> ops.LambdaOp(lambda x: x.log())).fit({"x": [[1.0, 2.0], []]})
    options = ServingOptions(runtime="tensorflow", max_batch_size=8)
    report = export_ensemble(network, workflow, "sums", tmp_path, [], serving=options)
    assert "negative numbers" in report.proof.rows
