"""Training on two GPUs of one machine: whether it is right, and how fast it is.

    python -m benchmarks.gpu_replicas [--only rows] [--rows 4000000] [--reduce nccl]

`model.fit(loader.distribute(tf.distribute.MirroredStrategy()))`, a line for each part:

- `rows`: every row comes once an epoch, and no list is cut apart, decoded on the CPU or on a GPU;
- `losses`: two replicas end with the losses and weights of one with twice the batch;
- `train`: `train` does, and the split step says that it does not;
- `speed`: million samples/s of the MLP of Criteo's shape on one GPU and on two.

On a machine without two GPUs two logical devices of the CPU stand in for them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_GPU_ALLOCATOR", "cuda_malloc_async")
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import keras
import numpy as np
import polars as pl
import tensorflow as tf

from benchmarks import gpu_loader_data as parquet
from benchmarks import training_data as data
from benchmarks import training_models as networks
from loader import KerasSequenceLoader, LoaderError
from training import TrainingError, compile_model, models, optimizers, train

ROWS, BATCH, IDS = 100_000, 4096, 1000
REDUCE = {
    "nccl": tf.distribute.NcclAllReduce,
    "copies": tf.distribute.HierarchicalCopyAllReduce,
    "one": tf.distribute.ReductionToOneDevice,
}


def devices() -> list[str]:
    """Two GPUs, or what stands in for them; before TensorFlow begins."""
    gpus = tf.config.list_physical_devices("GPU")[:2]
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if len(gpus) == 2:
        return ["/gpu:0", "/gpu:1"]
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return ["/cpu:0", "/cpu:1"]


def write(folder: Path) -> Path:
    """Rows of a number, an id, a list of that number modulo 4, a float and a label."""
    random = np.random.default_rng(0)
    row = np.arange(ROWS, dtype="int32")
    lengths = row % 4
    ends = np.cumsum(lengths)
    inside = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
    values = (np.repeat(row, lengths) + inside) % IDS
    frame = pl.DataFrame(
        {
            "row": row,
            "user": row * 7 % IDS,
            "tags": np.split(values.astype("int32"), ends[:-1]),
            "age": random.normal(size=ROWS).astype("float32"),
            "label": (row * 7 % 2).astype("int8"),
        },
        schema_overrides={"tags": pl.List(pl.Int32)},
    )
    frame.write_parquet(folder / "rows.parquet", row_group_size=10_000)
    return folder / "rows.parquet"


def load(path: Path, batch: int, **options: Any) -> KerasSequenceLoader:
    """The loader, on the CPU, of the network's columns."""
    names = {"cat_names": ["user", "tags"], "cont_names": ["age"], "seed": 0, "device": "cpu"}
    return KerasSequenceLoader(path, batch, ["label"], **{**names, **options})


def make() -> keras.Model:
    """A network of single ids and lists."""
    keras.utils.set_random_seed(0)
    dtypes: dict[str, Any] = {"user": "int32", "tags": ("int32", "int32")}
    return models.mlp(
        ({"user": (IDS, 16)}, {"tags": (IDS, 8)}), ["age"], hidden=(64, 32), id_dtypes=dtypes
    )


class Replicas:
    """The parts.

    Args:
        strategy: of two replicas.
        folder: for files.
        rows: of the data of `speed`.
        batch: of a replica there.
    """

    def __init__(
        self, strategy: tf.distribute.Strategy, folder: Path, rows: int, batch: int
    ) -> None:
        self.strategy = strategy
        self.path = write(folder)
        self._files: Callable[[], list[Path]] = lambda: parquet.make_data(
            folder / "criteo", rows, lists=False
        )
        self._steps, self._batch = rows // batch // 2 - 1, batch

    def rows(self) -> str:
        """Every row once, with its list."""
        return ", ".join(f"{device or 'any'}: {self._seen(device)}" for device in ("cpu", None))

    def _seen(self, device: str | None) -> str:
        loader = load(self.path, BATCH, cat_names=["row", "tags"], cont_names=[], device=device)
        try:
            distributed = loader.distribute(self.strategy)
        except LoaderError as error:
            return f"refused: {error}"
        for _ in range(2):
            seen = np.concatenate([self._checked(x) for x, _ in distributed])
            np.testing.assert_array_equal(np.sort(seen), np.arange(ROWS))
        return f"{loader.device} ok"

    def _checked(self, x: Any) -> Any:
        local = self.strategy.experimental_local_results
        values, lengths = map(local, x["tags"])
        for row, given, length in zip(local(x["row"]), values, lengths, strict=True):
            number, count = row.numpy()[:, 0], length.numpy()[:, 0]
            np.testing.assert_array_equal(count, number % 4)
            inside = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            np.testing.assert_array_equal(
                given.numpy()[:, 0], (np.repeat(number, count) + inside) % IDS
            )
        return np.concatenate([row.numpy()[:, 0] for row in local(x["row"])])

    def losses(self) -> str:
        """As one with twice the batch."""
        told = []
        for kind, rate in (
            (optimizers.SGD, 0.1),
            (optimizers.Adagrad, 0.1),
            (optimizers.Adam, 0.001),
        ):
            make_optimizer = partial(kind, rate)
            one, one_weights = self._fitted(make_optimizer, BATCH * 2, lambda loader: loader)
            two, two_weights = self._fitted(
                make_optimizer, BATCH, lambda loader: loader.distribute(self.strategy)
            )
            np.testing.assert_allclose(two, one, rtol=2e-3)
            apart = max(
                float(abs(a - b).max()) for a, b in zip(one_weights, two_weights, strict=True)
            )
            told.append(f"{kind.__name__} {one[-1]:.5f} and {two[-1]:.5f}, weights {apart:.1e}")
        return "; ".join(told)

    def _fitted(
        self, optimizer: Callable[[], Any], batch: int, feed: Any
    ) -> tuple[list[float], list[Any]]:
        fed = feed(load(self.path, batch, shuffle=False, drop_last=True))
        with self._scope(fed):
            model = make()
            compile_model(model, optimizer(), split=False)
        history = model.fit(fed, epochs=2, verbose=0, shuffle=False).history
        return history["loss"], model.get_weights()

    def _scope(self, fed: Any) -> Any:
        if isinstance(fed, tf.distribute.DistributedDataset):
            return self.strategy.scope()
        return tf.distribute.get_strategy().scope()

    def train(self) -> str:
        """By `train`, with validation."""
        with self.strategy.scope():
            model = make()
        fed = load(self.path, BATCH).distribute(self.strategy)
        report = train(model, fed, fed, epochs=2, optimizer=optimizers.Adam(0.01))
        if report.samples != 2 * ROWS or (report.val_auc or 0) < 0.95:
            raise AssertionError(report)
        try:
            train(model, fed, split=True)
        except TrainingError as error:
            return f"{report!r}; split step: {error}"
        raise AssertionError("the split step said nothing")

    def speed(self) -> str:
        """Million samples/s, by Keras' layers and ours; and of our split step on one GPU."""
        shape = data.CRITEO
        told = []
        for name, build, optimizer in (
            ("Keras' layers", networks.keras_mlp, keras.optimizers.SGD),
            ("ours", networks.our_mlp, optimizers.SGD),
        ):
            rates = [self._rate(build, optimizer, shape, replicas) for replicas in (1, 2)]
            told.append(f"{name} {rates[0]:.2f}, {rates[1]:.2f} ({rates[1] / rates[0]:.2f}x)")
        return "; ".join(told)

    def _rate(self, build: Any, optimizer: Any, shape: data.Shape, replicas: int) -> float:
        fed: Any = parquet.make_loader(self._files(), self._batch, drop_last=True, device="cpu")
        if replicas > 1:
            fed = fed.distribute(self.strategy)
        with self._scope(fed):
            model = build(shape, "int32")
            compile_model(model, optimizer(0.05), split=False)
        clock = _Clock(self._steps // 3)
        model.fit(fed, epochs=1, verbose=0, shuffle=False, callbacks=[clock])
        return clock.steps * self._batch * replicas / clock.seconds / 1e6


class _Clock(keras.callbacks.Callback):
    """The time of steps after the first ones; Keras reads the loss, and so waits, before each call."""

    def __init__(self, warm: int) -> None:
        super().__init__()
        self.steps, self.seconds, self._warm, self._start = 0, 0.0, warm, 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        now = time.perf_counter()
        if batch == self._warm:
            self._start = now
        elif batch > self._warm:
            self.steps, self.seconds = batch - self._warm, now - self._start


def main() -> None:
    """Runs all parts, or those wanted; one that fails says so, and the next is run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="rows,speed,losses,train")
    parser.add_argument("--rows", type=int, default=8_000_000, help="of `speed`")
    parser.add_argument("--batch", type=int, default=65_536, help="of a replica in `speed`")
    parser.add_argument("--reduce", choices=REDUCE, default="nccl", help="how gradients are added")
    options = parser.parse_args()
    places = devices()
    kind = REDUCE[options.reduce if places[0] == "/gpu:0" else "one"]
    strategy = tf.distribute.MirroredStrategy(places, cross_device_ops=kind())
    print(f"{', '.join(places)}, {kind.__name__}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        parts = Replicas(strategy, Path(temporary), options.rows, options.batch)
        for name in options.only.split(","):
            start = time.perf_counter()
            try:
                told = getattr(parts, name)()
            except Exception as error:  # noqa: BLE001 - the other parts are wanted all the same
                told = f"FAILED, {type(error).__name__}: {str(error)[:1500]}"
            print(f"{name} ({time.perf_counter() - start:.0f} s): {told}", flush=True)


if __name__ == "__main__":
    main()
