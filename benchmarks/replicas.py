"""Training speed on two GPUs of one machine, by `MirroredStrategy` over NCCL, beside one.

    python -m benchmarks.replicas [--rows 8000000] [--batch 65536]

Million samples/s of the MLP of Criteo's shape, with Keras' step in float32 and the loader on the CPU,
with Keras' layers and with ours.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from benchmarks import data, models
from benchmarks.feeds import open_loader
from benchmarks.fitting import Fit
from benchmarks.measure import options, race, show, use
from benchmarks.models import CRITEO, Way
from training import optimizers

WAYS = (
    Way("Keras' layers", models.keras_mlp, lambda: keras.optimizers.SGD(0.05)),
    Way("ours", models.our_mlp, lambda: optimizers.SGD(0.05), {"split": False}),
)


def two_gpus() -> list[str]:
    """Two GPUs, whose memory grows; before TensorFlow begins."""
    gpus = tf.config.list_physical_devices("GPU")[:2]
    if len(gpus) < 2:
        raise SystemExit(f"Expected two GPUs. Received: {len(gpus)}.")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    return ["/gpu:0", "/gpu:1"]


def fit(way: Way, strategy: Any, files: list[Path], rows: int, batch: int) -> Fit:
    """An epoch, the first third of which is not timed; of a strategy, or on one device."""
    replicas = strategy.num_replicas_in_sync if strategy else 1
    fed: Any = open_loader(files, batch, drop_last=True, device="cpu")
    fed = fed.distribute(strategy) if strategy else fed
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = way.model(CRITEO, "int32")
    steps = rows // batch // replicas - 1
    first = max(1, steps // 3)
    name = f"{way.name}, {replicas}"
    return Fit(name, model, fed, batch * replicas, steps - first, first=first, warm_up=1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one after the other."""
    defaults: dict[str, Any] = {"rows": 8_000_000, "batch": 65_536}
    parsed = options(__doc__, folder=Path("build/benchmarks"), **defaults).parse_args(arguments)
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    use("gpu")
    reduce = tf.distribute.NcclAllReduce()
    strategy = tf.distribute.MirroredStrategy(two_gpus(), cross_device_ops=reduce)
    files = data.clicks(parsed.folder, parsed.rows)
    table = []
    for way in WAYS:
        racers = [fit(way, s, files, parsed.rows, parsed.batch) for s in (None, strategy)]
        for racer in racers:
            race([racer], 1)
        one, two = (racer.rate / 1e6 for racer in racers)
        table.append({"": way.name, "one, M samples/s": one, "two": two, "ratio": two / one})
    show("MirroredStrategy on two GPUs", table)


if __name__ == "__main__":
    main()
