"""Several processes that train one model: speed, and bytes that a worker sends in a step.

    python -m benchmarks.workers [--workers 1 2] [--shard none auto] [--batch 16384] [--steps 10]
    python -m benchmarks.workers --device gpu --batch 65536 --steps 128 [--precision bfloat16]
    python -m benchmarks.workers --device gpu ... --model mlp wide [--rows 26000000] [--gigabytes 100]
    python -m benchmarks.workers --device gpu --collectives 1 14 54

As many processes of this machine as workers, each with batches of its own, and on a GPU each with a
GPU of its own. The models are those of `benchmarks.training`; their batches stay in memory, or on
the GPU, or with `--rows` come from files, by a loader for each worker (mlp alone). `--gigabytes` makes
the tables so large together, whether they fit one GPU or not. Ratios are to the first number of
workers with the same tables. The bytes are those of the tensors that a worker gives to TensorFlow's
collectives in a step, not counting what these pass on for others; `--bytes` counts them on CPUs, in
steps that are not timed. `--trace` prints which kernels of the first worker's GPU
took the time, as `benchmarks.profile` does.

`--collectives` times operations of TensorFlow between two workers, for so many MB of each.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from benchmarks import data
from benchmarks.feeds import open_loader, resident, wait
from benchmarks.fitting import Fit
from benchmarks.measure import options, show, timed, use
from benchmarks.models import NETWORKS, OPTIMIZERS, SMALL, Shape
from benchmarks.profile import show_device, traced
from training import Workers, compile_model, join_workers

SHARDS = ("none", "auto", "table", "row", "column")
KINDS = ("total", "gathered", "exchanged")
REPEATS = 10
# Seconds after which a run that has not ended is given up.
LIMIT = 300


@contextmanager
def counted(workers: Workers) -> Iterator[list[int]]:
    """The bytes of each tensor that a graph, traced in the block, gives to the collectives."""
    sent: list[int] = []

    def count(send: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensor: tf.Tensor, *arguments: Any) -> tf.Tensor:
            size = tensor.dtype.size
            tf.numpy_function(lambda count: sent.append(int(count) * size), [tf.size(tensor)], [])
            return send(tensor, *arguments)

        return call

    if workers.collectives is None:
        yield sent
        return
    own = vars(workers.collectives)
    own |= {kind: count(getattr(workers.collectives, kind)) for kind in KINDS}
    yield sent
    for kind in KINDS:
        del own[kind]


def shape_of(given: Namespace) -> tuple[Shape, Any]:
    """The shape of the model, and what builds it."""
    shape, build = NETWORKS[given.model]
    shape = shape.shrunk(given.shrink)
    if given.gigabytes:
        share = given.gigabytes * 1e9 / (4 * shape.width) / sum(shape.cardinalities)
        shape = replace(shape, cardinalities=tuple(int(n * share) for n in shape.cardinalities))
    return (shape if given.device == "gpu" else replace(shape, hidden=SMALL)), build


def feed(given: Namespace, shape: Shape, workers: Workers) -> Any:
    """Batches of a worker, over and over."""
    if not given.rows:
        return resident(shape, given.batch, "int32", workers.rank)
    files = data.clicks(Path(given.folder), given.rows, device=given.device)
    ranks: dict[str, Any] = {"global_size": workers.size, "global_rank": workers.rank}
    return open_loader(files, given.batch, drop_last=True, **ranks)


def train(given: Namespace) -> dict[str, Any]:
    """Train as the worker that TF_CONFIG names; its speed, loss and bytes of a step."""
    workers = join_workers(timeout=LIMIT / 2)
    shape, build = shape_of(given)
    batches = feed(given, shape, workers)
    together = 32 if given.device == "gpu" else 1

    def fit(steps: int, first: int = 0) -> Fit:
        keras.utils.set_random_seed(0)
        model = build(shape, "int32", given.shard)
        compile_model(
            model, OPTIMIZERS[given.optimizer](0.05), workers=workers,
            precision=given.precision, steps_per_execution=together,
        )  # fmt: skip
        rows = given.batch * workers.size
        return Fit("", model, batches, rows, steps, first=first, warm_up=first + together)

    row = {}
    if given.bytes:
        with counted(workers) as sent:
            counting = fit(together)
            sent.clear()
            counting.take_turn()
            row = {"MB sent a step": sum(sent) / together / 1e6}
        counting.release()
    steps = given.steps // together * together
    racer = fit(steps, together)
    racer.take_turn()
    if given.trace:
        with traced() as found:
            racer.model.fit(batches, steps_per_epoch=together, verbose=0, shuffle=False)
        if workers.rank == 0 and given.device == "gpu":
            show_device(found[0], together)
    tables = racer.model.get_layer("features").trainable_variables
    return {
        "ms a step": racer.seconds / steps * 1e3,
        "processor ms": racer.median("processor") / steps * 1e3,
        "M samples/s": racer.rate / 1e6,
        "GB of tables": sum(
            table.value.dtype.size * table.value.shape.num_elements() for table in tables
        )
        / 1e9,
        "loss": round(racer.loss, 4),
        **row,
    }


def collectives(given: Namespace) -> list[dict[str, Any]]:
    """Milliseconds of each operation, as the worker that TF_CONFIG names."""
    workers = join_workers(timeout=LIMIT / 2)
    found: Any = workers.collectives
    table = []
    for megabytes in given.collectives:
        with tf.device(found.device):
            values = tf.ones([workers.size, int(megabytes * 1e6) // 4 // workers.size])
        row = {"MB": megabytes}
        for kind in KINDS[:2] if found.on_gpu else KINDS:
            row[kind] = milliseconds(getattr(found, kind), values, found.reserve(1))
        if found.on_gpu:
            row["compiled"] = milliseconds(found.compiled(found.summed), values)
        table.append(row)
    return table


def milliseconds(send: Callable[..., tf.Tensor], values: tf.Tensor, *number: int) -> float:
    """The time of one of several operations, one after another."""

    @tf.function(autograph=False)
    def work() -> tf.Tensor:
        total = tf.zeros([])
        for _ in range(REPEATS):
            with tf.control_dependencies([total]):
                total += send(values + total * 0, *number)[0, 0]
        return total

    times = [timed(lambda: wait(work()), 1).seconds for _ in range(5)]
    return min(times) / REPEATS * 1e3


def run(count: int, given: Namespace) -> list[Any]:
    """The answers of so many workers, by rank; ends them all if one fails or is late.

    Raises:
        SystemExit: a worker failed, or did not end in time.
    """
    with ExitStack() as stack:
        ports = [stack.enter_context(socket.socket()) for _ in range(count)]
        for port in ports:
            port.bind(("localhost", 0))
        addresses = [f"localhost:{port.getsockname()[1]}" for port in ports]
    one = json.dumps(vars(given) | {"folder": str(given.folder)})
    processes = []
    for rank in range(count):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
        seen = {"CUDA_VISIBLE_DEVICES": str(rank) if given.device == "gpu" else ""}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.workers", "--one", one],
                env=os.environ | {"TF_CONFIG": json.dumps(task)} | seen,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    until = time.monotonic() + LIMIT
    try:
        texts = [each.communicate(timeout=until - time.monotonic())[0] for each in processes]
    except subprocess.TimeoutExpired:
        raise SystemExit(f"Expected an end within {LIMIT} s. Received: none.") from None
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        raise SystemExit("Expected all workers to end. Received: an error, see above.")
    print(*texts[0].splitlines()[:-1], sep="\n", flush=True)
    return [json.loads(text.splitlines()[-1]) for text in texts]


def compare(given: Namespace) -> Iterator[dict[str, Any]]:
    """A line for each worker of each run."""
    for model, shard in itertools.product(given.model, given.shard):
        first = 0.0
        for count in given.workers:
            shared = None if shard == "none" else shard
            found = run(count, Namespace(**vars(given) | {"model": model, "shard": shared}))
            # All take the same steps: the slowest ends last.
            speed = min(each["M samples/s"] for each in found)
            first = first or speed
            named = {"model": model, "shard": shard, "workers": count}
            for rank, each in enumerate(found):
                yield {**named, "worker": rank, **each, "ratio": f"{speed / first:.2f}x"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Start the workers, or be one of them."""
    defaults: dict[str, Any] = {"batch": 16_384, "steps": 10, "shrink": 1, "precision": "float32"}
    defaults |= {"rows": 0, "gigabytes": 0.0, "workers": (2,), "bytes": False, "trace": False}
    parser = options(__doc__, devices=True, files=True, **defaults)
    parser.add_argument("--model", nargs="+", choices=NETWORKS, default=["mlp"])
    parser.add_argument("--shard", nargs="+", choices=SHARDS, default=["none"])
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adagrad")
    parser.add_argument("--collectives", nargs="+", type=float, default=[], metavar="MB")
    parser.add_argument("--one", help="be the worker that TF_CONFIG names")
    parsed = parser.parse_args(arguments)
    if parsed.one:
        own = Namespace(**json.loads(parsed.one))
        use(own.device)
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
        print(json.dumps(collectives(own) if own.collectives else train(own)))
        return
    if parsed.bytes and parsed.device == "gpu":
        parser.error("--bytes counts on CPUs")
    if parsed.collectives:
        show("ms of an operation between two workers", run(2, parsed)[0])
        return
    if parsed.rows:
        data.clicks(parsed.folder, parsed.rows, device=parsed.device)
    title = f"batch {parsed.batch:,} a worker, {parsed.optimizer}, {parsed.precision}"
    show(title, compare(parsed))


if __name__ == "__main__":
    main()
