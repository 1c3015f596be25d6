"""Two replicas of a `tf.distribute` strategy, in a program of its own: devices are set up once."""

import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("replicas")]

PROGRAM = """
import json, pathlib, sys
import keras, tensorflow as tf
from loader import KerasSequenceLoader
from training import TrainingError, compile_model, models, optimizers, train

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(
    ["/cpu:0", "/cpu:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
)

def load(batch):
    return KerasSequenceLoader(
        sys.argv[1], batch, ["label"], cat_names=["user", "tags"], cont_names=["age"], shuffle=False
    )

def make():
    keras.utils.set_random_seed(0)
    ids = {"tags": ("int32", "int32")}
    return models.mlp(({"user": (9, 4)}, {"tags": (50, 4)}), ["age"], hidden=(8,), id_dtypes=ids)

def fit(feed, scope):
    with scope:
        model = make()
        compile_model(model, optimizers.Adam(0.01), split=False)
    history = model.fit(feed, epochs=2, verbose=0, shuffle=False).history
    return {"loss": history["loss"], "weights": [w.tolist() for w in model.get_weights()]}

def refused(call):
    try:
        call()
    except TrainingError as error:
        return str(error)
    return "nothing"

found = {
    "one": fit(load(100), tf.distribute.get_strategy().scope()),
    "two": fit(load(50).distribute(strategy), strategy.scope()),
}
with strategy.scope():
    model = make()
fed = load(50).distribute(strategy)
report = train(model, fed, fed, optimizer="adam")
found["train"] = [report.samples, sorted(report.history)]
found["cut"] = refused(lambda: train(model, load(50)))
found["validation cut"] = refused(lambda: train(model, fed, load(50)))
found["split"] = refused(lambda: compile_model(model))
found["weights"] = refused(lambda: train(model, fed, class_weight={1: 2.0}))
pathlib.Path(sys.argv[2]).write_text(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replicas")
    random = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "user": random.integers(0, 9, 400).astype("int32"),
            "tags": [random.integers(0, 50, n).tolist() for n in random.integers(0, 4, 400)],
            "age": random.normal(size=400).astype("float32"),
            "label": random.integers(0, 2, 400).astype("int8"),
        },
        schema_overrides={"tags": pl.List(pl.Int32)},
    )
    frame.write_parquet(folder / "rows.parquet", row_group_size=64)
    command = [sys.executable, "-c", PROGRAM, folder / "rows.parquet", folder / "found.json"]
    subprocess.run(command, check=True)
    return json.loads((folder / "found.json").read_text())


def test_two_replicas_train_as_one_with_twice_the_batch(found):
    """With lists, and with rows of a table that both replicas have."""
    one, two = found["one"], found["two"]
    np.testing.assert_allclose(two["loss"], one["loss"], rtol=1e-5)
    for own, other in zip(two["weights"], one["weights"], strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-6)


def test_train_takes_distributed_data(found):
    assert found["train"] == [400, ["auc", "loss", "val_auc", "val_loss"]]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("cut", "Expected whole lists for a replica"),
        ("validation cut", "in column 'tags'"),
        ("split", "MirroredStrategy of 2 replicas. Use split=False"),
        ("weights", "to weigh rows by class_weight"),
    ],
)
def test_what_does_not_work_is_told(found, what, message):
    assert message in found[what]
