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
from benchmarks.models import CRITEO, SMALL, WIDE_AND_DEEP, Optimizer, Shape, Way
from training import optimizers

FIRST, STEPS = 2, 10
# Keras' and ours.
OPTIMIZERS: dict[str, tuple[Optimizer, Optimizer]] = {
    name: (
        partial(getattr(keras.optimizers, name), rate),
        partial(getattr(optimizers, name), rate),
    )
    for name, rate in (("SGD", 0.05), ("Adagrad", 0.05), ("Adam", 0.001))
}
HALF = {"precision": "bfloat16"}


def cpu_mlp(optimizer: str) -> list[Way]:
    """Keras and ours with one kind of optimizer."""
    theirs, ours = OPTIMIZERS[optimizer]
    return [
        Way(f"Keras, {optimizer}", models.keras_mlp, theirs),
        Way(f"our layers, Keras' {optimizer}", models.our_mlp, theirs),
        Way(f"our layers, {optimizer} and step", models.our_mlp, ours, {}),
        Way("the same in bfloat16", models.our_mlp, ours, HALF),
    ]


def cpu_wide(optimizer: str) -> list[Way]:
    """Wide & Deep with an embedding for each column, and ours."""
    theirs, ours = OPTIMIZERS[optimizer]
    return [
        Way(f"Wide & Deep, Keras, {optimizer}", models.naive_wide_and_deep, theirs),
        Way(f"Wide & Deep, ours, {optimizer}", models.our_wide_and_deep, ours, {}),
    ]


def gpu_mlp() -> list[Way]:
    """The most telling first."""
    (theirs, sgd), (_, adagrad), (their_adam, adam) = OPTIMIZERS.values()
    keras_mlp, our_mlp = models.keras_mlp, models.our_mlp
    steps: dict[str, Any] = {"steps_per_execution": 32}
    many = HALF | steps
    return [
        Way("keras float32", keras_mlp, theirs),
        Way("ours, bfloat16, 32 steps a call", our_mlp, sgd, many),
        Way("ours, bfloat16", our_mlp, sgd, HALF),
        Way("ours, bfloat16, 32 steps a call, AUC", our_mlp, sgd, many | {"metrics": ["auc"]}),
        Way("ours, bfloat16, 32 steps a call, Adagrad", our_mlp, adagrad, many),
        Way("ours, bfloat16, 32 steps a call, Adam", our_mlp, adam, many),
        Way("keras mixed_bfloat16", keras_mlp, theirs, policy="mixed_bfloat16"),
        Way("ours, float32, 32 steps a call", our_mlp, sgd, steps),
        Way("ours, float16, 32 steps a call", our_mlp, sgd, {"precision": "float16"} | steps),
        Way("keras mixed_float16", keras_mlp, theirs, policy="mixed_float16"),
        Way("keras float32, Adam", keras_mlp, their_adam),
        Way("ours, Keras' step, float32", our_mlp, sgd),
    ]


def gpu_wide() -> list[Way]:
    """Feature columns against ours."""
    theirs, sgd = OPTIMIZERS["SGD"]
    naive, ours = models.naive_wide_and_deep, models.our_wide_and_deep
    return [
        Way("naive float32", naive, theirs),
        Way("ours, bfloat16, 16 steps a call", ours, sgd, HALF | {"steps_per_execution": 16}),
        Way("ours, float32", ours, sgd, {}),
        # Ours takes the same ids as before: the workflow has hashed them.
        Way("naive float32, hashed in the model", partial(naive, hashed=True), theirs),
    ]


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


def on_gpu(ways: list[Way], shape: Shape, batch: int, together: int) -> Iterator[dict[str, Any]]:
    """Lines of contestants, one after the other, as each fills the GPU's memory."""
    feed = resident.repeated(resident.batches(shape, batch, "int64"))
    base = None
    for way in ways:
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
        yield row(racer, base, batch) | {"loss": first}
        keras.backend.clear_session()


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
        kinds = {"mlp": (gpu_mlp(), mlp, batch, 32), "wide": (gpu_wide(), wide, 2 * batch, 16)}
        for kind in parsed.only:
            ways, shape, batch, together = kinds[kind]
            ways = [way for way in ways if re.search(parsed.names, way.name)]
            title = f"{kind}: batch {batch:,}; the loss is that of the first {together} steps"
            show(title, on_gpu(ways, shape, batch, together))
        return
    parsed.batch = parsed.batch or 16_384
    if "mlp" in parsed.only:
        on_cpu(cpu_mlp, replace(mlp, hidden=SMALL), parsed, floor=True)
    if "wide" in parsed.only:
        small = replace(wide.shrunk(8), hidden=SMALL, width=16)
        on_cpu(cpu_wide, small, parsed, floor=False)


if __name__ == "__main__":
    main()
