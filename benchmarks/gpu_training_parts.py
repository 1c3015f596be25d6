"""What the parts of a training step cost on a GPU, each measured alone.

    python -m benchmarks.gpu_training_parts [--batch 65536] [--seconds 60] [--only scatter]

The shape is that of the MLP of `benchmarks.gpu_training`. The lookups are written by hand, since
they are what the layers are measured against; the tower is the split step's own. Every call
does the work of four batches, so that Python is no part of it and nothing stays in a cache.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from benchmarks import training_data as data
from benchmarks import training_models as networks
from training import compile_model, optimizers
from training.layers import EmbeddingCollection

BATCHES = 4
Part = tuple[str, Callable[[], Any]]


class Lookups:
    """One table and the rows that batches look up in it.

    Args:
        shape: of the data.
        batch: rows of a batch.
    """

    def __init__(self, shape: data.Shape, batch: int) -> None:
        self.count = sum(shape.cardinalities)
        offsets = np.cumsum((0, *shape.cardinalities[:-1]))
        self.columns = data.on_device(shape, batch, "int64", BATCHES)
        ids = [np.concatenate([x[name] for name in shape.scalars], 1) for x, _ in self.columns]
        with tf.device(data.device()):
            self.table = tf.Variable(tf.random.uniform((self.count, shape.width)))
            self.rows = [tf.constant(each + offsets) for each in ids]
            uniform = np.random.default_rng(0)
            self.uniform = [
                tf.constant(uniform.integers(0, shape.cardinalities, each.shape) + offsets)
                for each in ids
            ]
            self.numbers = tf.random.normal((batch, shape.continuous))
            self.gradient = tf.random.normal((*ids[0].shape, shape.width), stddev=1e-6)


def gathers(shape: data.Shape, lookups: Lookups) -> Iterator[Part]:
    """From ids to the first layer's input."""
    layer = EmbeddingCollection({n: (rows, shape.width) for n, rows in shape.scalars.items()})
    layer.build()

    def joined(rows: tf.Tensor, dtype: str) -> tf.Tensor:
        vectors = tf.reshape(tf.gather(lookups.table, rows), [rows.shape[0], -1])
        return tf.concat([tf.cast(vectors, dtype), tf.cast(lookups.numbers, dtype)], axis=1)

    yield "gather", _each(lambda rows: tf.gather(lookups.table, rows), lookups.rows)
    yield "gather, joined", _each(lambda rows: joined(rows, "float32"), lookups.rows)
    yield (
        "gather, joined, bfloat16, XLA",
        _each(lambda rows: joined(rows, "bfloat16"), lookups.rows, jit_compile=True),
    )
    columns = [x for x, _ in lookups.columns]
    for name, jit in (("our layer from columns", None), ("our layer from columns, XLA", True)):
        yield name, _each(lambda x: [b for _, b in layer.blocks(x)], columns, jit_compile=jit)


def scatters(lookups: Lookups) -> Iterator[Part]:
    """From gradients to the table."""

    def add(rows: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        lookups.table.scatter_add(tf.IndexedSlices(values, rows))
        return tf.gather(lookups.table, rows[:1])

    def sgd(rows: tf.Tensor) -> tf.Tensor:
        flat = tf.reshape(lookups.gradient, [-1, lookups.table.shape[1]])
        return add(tf.reshape(rows, [-1]), -0.05 * flat)

    def unscaled(rows: tf.Tensor) -> tf.Tensor:
        return add(rows, lookups.gradient)

    def narrow(rows: tf.Tensor) -> tf.Tensor:
        return add(tf.cast(rows, tf.int32), lookups.gradient)

    def compiled(rows: tf.Tensor) -> tf.Tensor:
        start = tf.zeros_like(lookups.table)
        return tf.tensor_scatter_nd_add(start, rows[..., tf.newaxis], lookups.gradient)

    yield "scatter, scaled", _each(sgd, lookups.rows)
    yield "scatter", _each(unscaled, lookups.rows)
    yield "scatter, uniform ids", _each(unscaled, lookups.uniform)
    yield "scatter, int32 rows", _each(narrow, lookups.rows)
    yield "scatter, uniform, XLA", _each(compiled, lookups.uniform, jit_compile=True)
    yield "scatter, XLA", _each(compiled, lookups.rows, jit_compile=True)


def towers(shape: data.Shape, lookups: Lookups) -> Iterator[Part]:
    """The dense layers: forward, forward and backward."""
    keras.utils.set_random_seed(0)
    model = networks.our_mlp(shape, "int64")
    compile_model(model, optimizers.SGD(0.05), precision="bfloat16")
    step = model.train_step
    batch = lookups.numbers.shape[0]
    width = shape.continuous + len(shape.scalars) * shape.width
    inputs = [tf.random.normal((batch, width)) for _ in range(BATCHES)]
    label = lookups.columns[0][1]
    # The split step's own parts, which have no public name.
    target, compute = step._target, step._compute  # noqa: SLF001
    yield "tower forward, XLA", _each(lambda x: target([x]), inputs, jit_compile=True)

    def gradients(x: tf.Tensor) -> Any:
        return compute([x], label, None, joined=False)[:3]

    yield "tower, XLA", _each(gradients, inputs, jit_compile=True)


def _each(work: Callable[[Any], Any], batches: Sequence[Any], **options: Any) -> Callable[[], Any]:
    one = tf.function(work, autograph=False, **options)
    return tf.function(lambda: [one(batch) for batch in batches], autograph=False)


def milliseconds(work: Callable[[], Any], seconds: float = 0.5) -> float:
    """A batch's, the best of three."""
    results = []
    calls = 1
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(calls):
            out = work()
        tf.reduce_sum(tf.cast(tf.reshape(tf.nest.flatten(out)[0], [-1])[:1], tf.float32)).numpy()
        passed = time.perf_counter() - start
        results.append(passed / calls)
        calls = max(1, min(20, int(seconds / passed * calls / 3)))
    return min(results[2:]) * 1e3 / BATCHES


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--shrink", type=int, default=1, help="divides the cardinalities")
    parser.add_argument("--seconds", type=float, default=60, help="start nothing after that")
    parser.add_argument("--only", default="", help="parts whose names hold this")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    shape = data.CRITEO.shrunk(options.shrink)
    lookups = Lookups(shape, options.batch)
    print(f"ms a batch of {options.batch:,} (with compiling, s)")
    for parts in (gathers(shape, lookups), scatters(lookups), towers(shape, lookups)):
        for name, work in parts:
            if options.only not in name or time.monotonic() > deadline:
                continue
            start = time.monotonic()
            work()
            first = time.monotonic() - start
            print(f"{name:<40}{milliseconds(work):9.3f} ({first:.1f})", flush=True)


if __name__ == "__main__":
    main()
