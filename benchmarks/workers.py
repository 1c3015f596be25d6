"""Several processes that train one model: time of a step, and bytes that a worker sends.

    python -m benchmarks.workers [--workers 2] [--shard auto] [--batch 16384] [--steps 10] [--shrink 1]
    python -m benchmarks.workers --device gpu --workers 2 --batch 65536

The MLP of Criteo's shape, on a CPU with small dense layers, with Adagrad, on clicks in memory whose ids
are skewed (`benchmarks.data.prepared_clicks`). As many processes of this machine as workers, each with
batches of its own, and on a GPU each with a GPU of its own. The bytes are those of the tensors that a
worker gives to TensorFlow's collectives in a step, not counting what these pass on for others.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks import data, models
from benchmarks.fitting import Fit
from benchmarks.measure import options, show, use
from benchmarks.models import CRITEO, Shape
from benchmarks.training_step import SMALL
from training import Workers, compile_model, join_workers, optimizers

_WARM_UP = 3


class Sent:
    """A count of the bytes that a worker gives to its collectives.

    Args:
        workers: all workers.
    """

    def __init__(self, workers: Workers) -> None:
        self.bytes = 0
        for kind in ("total", "gathered", "exchanged"):
            if workers.collectives is not None:
                self._count(workers.collectives, kind)

    def _count(self, collectives: Any, kind: str) -> None:
        send = getattr(collectives, kind)

        def counted(tensor: tf.Tensor, *arguments: Any) -> tf.Tensor:
            tf.numpy_function(self._add, [tf.size(tensor), tensor.dtype.size], [])
            return send(tensor, *arguments)

        vars(collectives)[kind] = counted

    def _add(self, count: Any, size: Any) -> None:
        self.bytes += int(count) * int(size)


def batches(shape: Shape, rows: int, rank: int, count: int = 4) -> tf.data.Dataset:
    """Batches of a worker, over and over."""
    frame = data.prepared_clicks(rows * count, np.random.default_rng([7, rank]))
    frame = frame.with_columns(frame[name] % size for name, size in shape.scalars.items())
    *columns, label = (frame[name].to_numpy()[:, np.newaxis] for name in frame.columns)
    features = dict(zip(frame.columns, columns, strict=False))
    return tf.data.Dataset.from_tensor_slices((features, label)).batch(rows).cache().repeat()


def train(shape: Shape, rows: int, steps: int, shard: str | None) -> dict[str, Any]:
    """Train as the worker that TF_CONFIG names; its milliseconds, loss and bytes of a step."""
    workers = join_workers()
    sent = Sent(workers)
    keras.utils.set_random_seed(0)
    model = models.our_mlp(shape, "int32", shard)
    compile_model(model, optimizers.Adagrad(0.05), workers=workers)
    feed = batches(shape, rows, workers.rank)
    fit = Fit("", model, feed, rows * workers.size, steps, warm_up=_WARM_UP)
    before = sent.bytes
    fit.take_turn()
    return {
        "ms a step": fit.seconds / steps * 1e3,
        "MB of tables": sum(v.value.dtype.size * v.shape[0] * v.shape[1] for v in tables(model))
        / 1e6,
        "MB sent a step": (sent.bytes - before) / steps / 1e6,
        "loss": round(fit.loss, 4),
    }


def tables(model: keras.Model) -> list[keras.Variable]:
    """This worker's tables."""
    return model.get_layer("features").trainable_variables


def start(workers: int, device: str, arguments: Sequence[str]) -> list[subprocess.Popen[str]]:
    """This program as so many workers."""
    with ExitStack() as stack:
        ports = [stack.enter_context(socket.socket()) for _ in range(workers)]
        for port in ports:
            port.bind(("localhost", 0))
        addresses = [f"localhost:{port.getsockname()[1]}" for port in ports]
    processes = []
    for rank in range(workers):
        task = {"type": "worker", "index": rank}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        gpus = str(rank) if device == "gpu" else ""
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.workers", *arguments, "--one"],
                env=os.environ | {"TF_CONFIG": config, "CUDA_VISIBLE_DEVICES": gpus},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    return processes


def main(arguments: Sequence[str] | None = None) -> None:
    """Start the workers, or be one of them."""
    defaults = {"workers": 2, "batch": 16_384, "steps": 10, "shrink": 1}
    parser = options(__doc__, devices=True, **defaults)
    parser.add_argument("--shard", choices=("auto", "table", "row", "column"), help="divide tables")
    parser.add_argument("--one", action="store_true", help="be the worker that TF_CONFIG names")
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    parsed = parser.parse_args(given)
    if parsed.one:
        shape = CRITEO.shrunk(parsed.shrink)
        if parsed.device == "cpu":
            use("cpu")
            shape = replace(shape, hidden=SMALL)
        print(json.dumps(train(shape, parsed.batch, parsed.steps, parsed.shard)))
        return
    processes = start(parsed.workers, parsed.device, given)
    texts = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit("Expected all workers to end. Received: an error, see above.")
    found = [json.loads(text.splitlines()[-1]) for text in texts]
    rows = [{"worker": rank, **each} for rank, each in enumerate(found)]
    show(f"{parsed.workers} workers, batch {parsed.batch:,} each, shard={parsed.shard}", rows)


if __name__ == "__main__":
    main()
