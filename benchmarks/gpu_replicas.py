"""Speed of training on two GPUs of one machine.

    python -m benchmarks.gpu_replicas [--rows 4000000] [--reduce nccl]

`model.fit(loader.distribute(tf.distribute.MirroredStrategy()))`: million samples/s of the MLP of
Criteo's shape on one GPU and on two, by Keras' layers and ours. `tests/gpu/test_replicas.py` asks
whether it is right. On a machine without two GPUs two logical devices of the CPU stand in for them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_GPU_ALLOCATOR", "cuda_malloc_async")
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import keras
import tensorflow as tf

from benchmarks import gpu_loader_data as parquet
from benchmarks import training_data as data
from benchmarks import training_models as networks
from training import compile_model, optimizers

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


def rate(
    strategy: tf.distribute.Strategy | None,
    build: Any,
    optimizer: Any,
    files: list[Path],
    steps: int,
    batch: int,
) -> float:
    """Million samples/s of `steps` steps: with a strategy of two replicas, or on one device."""
    fed: Any = parquet.make_loader(files, batch, drop_last=True, device="cpu")
    if strategy is not None:
        fed = fed.distribute(strategy)
    with (strategy or tf.distribute.get_strategy()).scope():
        model = build(data.CRITEO, "int32")
        compile_model(model, optimizer(0.05), split=False)
    clock = _Clock(steps // 3)
    model.fit(fed, epochs=1, verbose=0, shuffle=False, callbacks=[clock])
    return clock.steps * batch * (2 if strategy else 1) / clock.seconds / 1e6


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
    """Run both kinds of layers, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--batch", type=int, default=65_536, help="of a replica")
    parser.add_argument("--reduce", choices=REDUCE, default="nccl", help="how gradients are added")
    options = parser.parse_args()
    places = devices()
    kind = REDUCE[options.reduce if places[0] == "/gpu:0" else "one"]
    strategy = tf.distribute.MirroredStrategy(places, cross_device_ops=kind())
    print(f"{', '.join(places)}, {kind.__name__}", flush=True)
    steps = options.rows // options.batch // 2 - 1
    with tempfile.TemporaryDirectory() as folder:
        files = parquet.make_data(Path(folder), options.rows, lists=False)
        for name, build, optimizer in (
            ("Keras' layers", networks.keras_mlp, keras.optimizers.SGD),
            ("ours", networks.our_mlp, optimizers.SGD),
        ):
            one, two = (
                rate(each, build, optimizer, files, steps, options.batch)
                for each in (None, strategy)
            )
            print(f"{name} {one:.2f}, {two:.2f} ({two / one:.2f}x)", flush=True)


if __name__ == "__main__":
    main()
