"""Two replicas of `tf.distribute`, over NCCL on two GPUs: their rows, losses and `train`.

With TEST_DEVICE=cpu two logical devices stand in for the GPUs.
"""

from __future__ import annotations

import os

import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from loader import KerasSequenceLoader, LoaderError
from training import TrainingError, compile_model, models, optimizers, train

ON_CPU = os.environ.get("TEST_DEVICE") == "cpu"
GPUS = tf.config.list_physical_devices("GPU")[:2]

pytestmark = [
    pytest.mark.timeout(150),
    pytest.mark.skipif(not ON_CPU and len(GPUS) < 2, reason="needs two NVIDIA GPUs"),
]

ROWS, BATCH, IDS = 100_000, 4096, 1000


@pytest.fixture(scope="module")
def strategy():
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # not every host lets NCCL multicast
    if ON_CPU:
        devices = [tf.config.LogicalDeviceConfiguration()] * 2
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, devices)
        reduction = tf.distribute.ReductionToOneDevice()
        return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"], reduction)
    for gpu in GPUS:
        tf.config.experimental.set_memory_growth(gpu, True)
    return tf.distribute.MirroredStrategy(["/gpu:0", "/gpu:1"], tf.distribute.NcclAllReduce())


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """Makes loaders of a number, an id, a list of that number modulo 4, a float and a label."""
    random = np.random.default_rng(0)
    row = np.arange(ROWS, dtype="int32")
    ends = np.cumsum(row % 4)
    frame = pl.DataFrame(
        {
            "row": row,
            "user": row * 7 % IDS,
            "tags": np.split(list_values(row).astype("int32"), ends[:-1]),
            "age": random.normal(size=ROWS).astype("float32"),
            "label": (row * 7 % 2).astype("int8"),
        },
        schema_overrides={"tags": pl.List(pl.Int32)},
    )
    path = tmp_path_factory.mktemp("replicas") / "rows.parquet"
    frame.write_parquet(path, row_group_size=10_000)

    def load(batch, **options):
        names = {"cat_names": ["user", "tags"], "cont_names": ["age"]}
        given = {**names, "seed": 0, "device": "cpu", **options}
        return KerasSequenceLoader(path, batch, ["label"], **given)

    return load


def list_values(row):
    """The elements of the lists that stand beside these row numbers."""
    lengths = row % 4
    inside = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return (np.repeat(row, lengths) + inside) % IDS


def make_model():
    keras.utils.set_random_seed(0)
    dtypes = {"user": "int32", "tags": ("int32", "int32")}
    tables = {"user": (IDS, 16)}, {"tags": (IDS, 8)}
    return models.mlp(tables, ["age"], hidden=(64, 32), id_dtypes=dtypes)


def test_every_row_comes_once_an_epoch_with_its_list(strategy, load):
    local = strategy.experimental_local_results
    fed = load(BATCH, cat_names=["row", "tags"], cont_names=[]).distribute(strategy)
    for _ in range(2):
        seen = []
        for x, _ in fed:
            parts = [local(tensor) for tensor in (x["row"], *x["tags"])]
            for row, values, lengths in zip(*parts, strict=True):
                number = row.numpy()[:, 0]
                np.testing.assert_array_equal(lengths.numpy()[:, 0], number % 4)
                np.testing.assert_array_equal(values.numpy()[:, 0], list_values(number))
                seen.append(number)
        np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(ROWS))


@pytest.mark.skipif(ON_CPU, reason="the loader is on the CPU")
def test_a_loader_on_a_gpu_refuses_replicas(strategy, load):
    with pytest.raises(LoaderError, match=r'Received: a loader on gpu:0. Pass device="cpu"'):
        load(BATCH, device=None).distribute(strategy)


@pytest.mark.usefixtures("whole_floats")
@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: optimizers.SGD(0.1),
        lambda: optimizers.Adagrad(0.1),
        # With a small epsilon a gradient of nearly zero moves a weight by its last bits.
        lambda: optimizers.Adam(0.001, epsilon=1e-3),
    ],
    ids=["SGD", "Adagrad", "Adam"],
)
def test_two_replicas_end_as_one_with_twice_the_batch(strategy, load, optimizer):
    def fitted(batch, feed, scope):
        fed = feed(load(batch, shuffle=False, drop_last=True))
        with scope:
            model = make_model()
            compile_model(model, optimizer(), split=False)
        losses = model.fit(fed, epochs=2, verbose=0, shuffle=False).history["loss"]
        return losses, model.get_weights()

    one, weights = fitted(2 * BATCH, lambda loader: loader, tf.distribute.get_strategy().scope())
    two, found = fitted(BATCH, lambda loader: loader.distribute(strategy), strategy.scope())
    np.testing.assert_allclose(two, one, rtol=2e-3)
    for ours, expected in zip(found, weights, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)


def test_train_takes_replicas_and_the_split_step_refuses_them(strategy, load):
    with strategy.scope():
        model = make_model()
    fed = load(BATCH).distribute(strategy)
    report = train(model, fed, fed, epochs=2, optimizer=optimizers.Adam(0.01))
    assert report.samples == 2 * ROWS
    assert report.val_auc >= 0.95
    with pytest.raises(TrainingError, match="replicas"):
        train(model, fed, split=True)
