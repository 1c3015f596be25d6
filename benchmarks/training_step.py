"""Training steps on batches in memory: our layers, optimizers and step against Keras' own.

    python -m benchmarks.training_step [--only mlp wide] [--rounds 3] [--batch 16384] [--shrink 1]
    python -m benchmarks.training_step --device gpu [--batch 65536] [--names "bfloat16|keras float32$"]

mlp: an MLP of Criteo's shape: 13 numbers, 26 embeddings of width 16 of 10 to a million ids, and dense
layers, three of them on a CPU, four of 1,024 on a GPU. wide: Wide & Deep of 10 numbers and 40
categorical columns, three of them 10-hot, against an embedding for each column and sparse tensors.

All start from equal weights and train on the same batches, so that `loss`, of the same steps, can be
compared: in float32 with optimizers of the same rule it is the same but for rounding. Our lazy Adam
has a rule of its own, since it leaves rows alone that no batch names. Ratios are to the first of a
table; on a CPU, where all take turns, within a round. The line of matrix products is the floor: those
of the model's dense layers, and nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from benchmarks import models, resident
from benchmarks.fitting import Fit, row
from benchmarks.measure import Contestant, options, race, show, timed, use
from benchmarks.models import CRITEO, WIDE_AND_DEEP, Optimizer, Shape, Way
from training import optimizers

FIRST, STEPS = 2, 10
SMALL = (256, 128, 64)
# Keras' and ours.
OPTIMIZERS: dict[str, tuple[Optimizer, Optimizer]] = {
    "SGD": (partial(keras.optimizers.SGD, 0.05), partial(optimizers.SGD, 0.05)),
    "Adagrad": (partial(keras.optimizers.Adagrad, 0.05), partial(optimizers.Adagrad, 0.05)),
    "Adam": (partial(keras.optimizers.Adam, 0.001), partial(optimizers.Adam, 0.001)),
}


def cpu_mlp(optimizer: str) -> list[Way]:
    """Keras and ours with one kind of optimizer."""
    theirs, ours = OPTIMIZERS[optimizer]
    return [
        Way(f"Keras, {optimizer}", models.keras_mlp, theirs),
        Way(f"our layers, Keras' {optimizer}", models.our_mlp, theirs),
        Way(f"our layers, {optimizer} and step", models.our_mlp, ours, {}),
        Way("the same in bfloat16", models.our_mlp, ours, {"precision": "bfloat16"}),
    ]


def cpu_wide(optimizer: str) -> list[Way]:
    """Wide & Deep with an embedding for each column, and ours."""
    theirs, ours = OPTIMIZERS[optimizer]
    return [
        Way(f"Wide & Deep, Keras, {optimizer}", models.naive_wide_and_deep, theirs),
        Way(f"Wide & Deep, ours, {optimizer}", models.our_wide_and_deep, ours, {}),
    ]


def gpu_mlp() -> Iterator[Way]:
    """The most telling first."""
    theirs, ours = partial(Way, build=models.keras_mlp), partial(Way, build=models.our_mlp)
    keras_sgd, sgd = OPTIMIZERS["SGD"]
    together: dict[str, Any] = {"steps_per_execution": 32}
    half = {"precision": "bfloat16"}
    yield theirs("keras float32", optimizer=keras_sgd)
    yield ours("ours, bfloat16, 32 steps a call", optimizer=sgd, split=half | together)
    yield ours("ours, bfloat16", optimizer=sgd, split=half)
    auc = half | together | {"metrics": ["auc"]}
    yield ours("ours, bfloat16, 32 steps a call, AUC", optimizer=sgd, split=auc)
    for name in ("Adagrad", "Adam"):
        own = OPTIMIZERS[name][1]
        yield ours(f"ours, bfloat16, 32 steps a call, {name}", optimizer=own, split=half | together)
    yield theirs("keras mixed_bfloat16", optimizer=keras_sgd, policy="mixed_bfloat16")
    yield ours("ours, float32, 32 steps a call", optimizer=sgd, split=together)
    float16 = {"precision": "float16"} | together
    yield ours("ours, float16, 32 steps a call", optimizer=sgd, split=float16)
    yield theirs("keras mixed_float16", optimizer=keras_sgd, policy="mixed_float16")
    yield theirs("keras float32, Adam", optimizer=OPTIMIZERS["Adam"][0])
    yield ours("ours, Keras' step, float32", optimizer=sgd)


def gpu_wide() -> Iterator[Way]:
    """Feature columns against ours."""
    keras_sgd, sgd = OPTIMIZERS["SGD"]
    naive, ours = models.naive_wide_and_deep, models.our_wide_and_deep
    together = {"precision": "bfloat16", "steps_per_execution": 16}
    yield Way("naive float32", naive, keras_sgd)
    yield Way("ours, bfloat16, 16 steps a call", ours, sgd, together)
    yield Way("ours, float32", ours, sgd, {})
    # Ours takes the same ids as before: the workflow has hashed them.
    yield Way("naive float32, hashed in the model", partial(naive, hashed=True), keras_sgd)


def on_cpu(
    ways: Callable[[str], list[Way]], shape: Shape, arguments: argparse.Namespace, *, floor: bool
) -> None:
    """Print a table for each optimizer, whose contestants take turns."""
    batches = resident.repeated(resident.batches(shape, arguments.batch, "int32"))
    for optimizer in OPTIMIZERS:
        racers: list[Contestant] = [
            Fit(way.name, way.model(shape, "int32"), batches, arguments.batch, STEPS, first=FIRST)
            for way in ways(optimizer)
            if re.search(arguments.names, way.name)
        ]
        if floor and optimizer == "SGD":
            racers.append(products(shape, arguments.batch))
        race(racers, arguments.rounds)
        title = f"batch {arguments.batch:,}, medians of {arguments.rounds} rounds of {STEPS} steps"
        show(title, [row(racer, racers[0], arguments.batch) for racer in racers])


def on_gpu(
    title: str, ways: Iterator[Way], shape: Shape, batch: int, together: int, names: str
) -> None:
    """Print a table of contestants, one after the other, as each fills the GPU's memory."""
    batches = resident.batches(shape, batch, "int64")
    feed = resident.repeated(batches)
    rows, base = [], None
    for way in ways:
        if not re.search(names, way.name):
            continue
        try:
            steps = 8 * together
            model = way.model(shape, "int64")
            racer = Fit(way.name, model, feed, batch, steps, first=together, warm_up=together)
            first = racer.loss
            race([racer], rounds=3)
        except (tf.errors.OpError, ValueError) as error:
            print(f"{way.name} failed: {str(error)[:300]}", flush=True)
            continue
        base = base or racer
        rows.append(row(racer, base, batch) | {"loss": first})
        print(rows[-1], flush=True)
        keras.backend.clear_session()
    show(f"{title}: batch {batch:,}; the loss is that of the first {together} steps", rows)


def products(shape: Shape, batch: int) -> Contestant:
    """The matrix products of a multi-layer perceptron, forward and backward, and nothing else.

    No training step on a CPU can go below. Without biases, activations, lookups and updates; by
    TensorFlow's kernels (oneDNN), in float32.
    """
    width = len(shape.numbers) + len(shape.scalars) * shape.width
    sizes = itertools.pairwise([width, *shape.hidden, 1])
    kernels = [tf.random.normal(size) for size in sizes]
    x = tf.random.normal((batch, width))

    @tf.function(autograph=False)
    def multiply() -> list[tf.Tensor]:
        taken = [x]
        for kernel in kernels:
            taken.append(tf.matmul(taken[-1], kernel))
        upstream, found = taken.pop(), []
        for kernel in reversed(kernels):
            found.append(tf.matmul(taken.pop(), upstream, transpose_a=True))
            upstream = tf.matmul(upstream, kernel, transpose_b=True)
        return [*found, upstream]

    def work() -> int:
        for _ in range(STEPS):
            multiply()
        return batch * STEPS

    multiply()  # traces
    return Contestant("floor: matrix products alone", partial(timed, work), batch * STEPS)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = options(__doc__, devices=True, rounds=3, shrink=1, names="")
    parser.add_argument("--batch", type=int, help="16,384 on a CPU, else 65,536 and for wide twice")
    parser.add_argument("--only", nargs="+", choices=("mlp", "wide"), default=("mlp", "wide"))
    parsed = parser.parse_args(arguments)
    use(parsed.device)
    mlp, wide = CRITEO.shrunk(parsed.shrink), WIDE_AND_DEEP.shrunk(parsed.shrink)
    if parsed.device == "gpu":
        batch = parsed.batch or 65_536
        if "mlp" in parsed.only:
            on_gpu("MLP", gpu_mlp(), mlp, batch, 32, parsed.names)
        if "wide" in parsed.only:
            on_gpu("Wide & Deep", gpu_wide(), wide, 2 * batch, 16, parsed.names)
        return
    parsed.batch = parsed.batch or 16_384
    if "mlp" in parsed.only:
        on_cpu(cpu_mlp, replace(mlp, hidden=SMALL), parsed, floor=True)
    if "wide" in parsed.only:
        small = replace(wide.shrunk(8), hidden=SMALL, width=16)
        on_cpu(cpu_wide, small, parsed, floor=False)


if __name__ == "__main__":
    main()
