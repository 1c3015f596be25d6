"""Training speed on a GPU: Keras' own layers and step against ours.

    python -m benchmarks.gpu_training [--seconds 330] [--feed package.module:function]

Two models: an MLP of Criteo's shape (batch 65,536, 26 embeddings of width 16, 4 x 1024 relu) and
a Wide & Deep model (batch 131,072, 40 categorical columns, three of them 10-hot). The data is
already on the GPU, so that the step is measured and no loader; `--feed` names a function that
takes the batch size and gives a `tf.data.Dataset` of one epoch of the MLP's columns (I1 .. I13
float32, C1 .. C26 integers, a label), and the MLP is measured on that, too.

Columns: `first` is the first steps, 32 of the MLP and 16 of the other, tracing and compiling
included; `loss` their mean loss, which is to be the same for all; `fit` a step of `model.fit`;
`python` the share of that time in which the main thread was at work.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf

from benchmarks import training_data as data
from benchmarks import training_models as networks
from training import compile_model, optimizers

# Contestants that are measured on a loader's data, too.
FED = (
    "keras float32",
    "ours, float32",
    "ours, bfloat16",
    "ours, bfloat16, 32 steps a call",
)
Compile = Callable[[keras.Model], None]


@dataclass(frozen=True)
class Contestant:
    """A model and how it is compiled.

    Attributes:
        name: for the table.
        build: makes the model of a shape and a dtype of ids.
        compile: compiles it.
        policy: the Keras dtype policy under which it is built.
        ids: the dtype of the ids.
    """

    name: str
    build: Callable[[data.Shape, str], keras.Model]
    compile: Compile
    policy: str = "float32"
    ids: str = "int64"


def _plain(optimizer: Callable[[], Any], jit: bool) -> Compile:
    return lambda model: model.compile(optimizer(), "binary_crossentropy", jit_compile=jit)


def _split(optimizer: Callable[[], Any] = lambda: optimizers.SGD(0.05), **options: Any) -> Compile:
    return lambda model: compile_model(model, optimizer(), "binary_crossentropy", **options)


def _keras_sgd() -> Any:
    return keras.optimizers.SGD(0.05)


def mlp_contestants() -> Iterator[Contestant]:
    """The most telling first, since time may run out."""
    ours, theirs = networks.our_mlp, networks.keras_mlp
    together = partial(_split, steps_per_execution=32)
    yield Contestant("keras float32", theirs, _plain(_keras_sgd, jit=False))
    yield Contestant("ours, bfloat16, 32 steps a call", ours, together(precision="bfloat16"))
    yield Contestant("ours, bfloat16", ours, _split(precision="bfloat16"))
    yield Contestant(
        "ours, bfloat16, 32 steps a call, AUC",
        ours,
        together(precision="bfloat16", metrics=["auc"]),
    )
    for name, optimizer in (("Adagrad", optimizers.Adagrad), ("Adam", optimizers.Adam)):
        yield Contestant(
            f"ours, bfloat16, 32 steps a call, {name}",
            ours,
            together(partial(optimizer, 0.001), precision="bfloat16"),
        )
    yield Contestant(
        "keras mixed_bfloat16", theirs, _plain(_keras_sgd, jit=False), "mixed_bfloat16"
    )
    yield Contestant("ours, float32, 32 steps a call", ours, together())
    yield Contestant("ours, float32", ours, _split())
    yield Contestant("ours, float16, 32 steps a call", ours, together(precision="float16"))
    yield Contestant("keras mixed_float16", theirs, _plain(_keras_sgd, jit=False), "mixed_float16")
    yield Contestant(
        "keras float32, Adam", theirs, _plain(lambda: keras.optimizers.Adam(0.001), jit=False)
    )
    yield Contestant(
        "ours, Keras' step, float32", ours, _plain(lambda: optimizers.SGD(0.05), jit=False)
    )


def wide_and_deep_contestants() -> Iterator[Contestant]:
    """Feature columns against ours."""
    naive, ours = networks.naive_wide_and_deep, networks.our_wide_and_deep
    yield Contestant("naive float32", naive, _plain(_keras_sgd, jit=False))
    yield Contestant(
        "ours, bfloat16, 16 steps a call",
        ours,
        _split(precision="bfloat16", steps_per_execution=16),
    )
    yield Contestant("ours, float32", ours, _split())
    # Ours takes the same ids as before: the workflow has hashed them.
    yield Contestant(
        "naive float32, hashed in the model",
        partial(naive, hashed=True),
        _plain(_keras_sgd, jit=False),
    )
    yield Contestant("ours, bfloat16", ours, _split(precision="bfloat16"))


@dataclass
class Row:
    """What was measured of a contestant."""

    name: str
    first: float
    loss: float
    fit: float
    python: float

    def print(self, batch: int, baseline: float | None) -> None:
        """One line of the table."""
        ratio = f"{baseline / self.fit:6.2f}x" if baseline else ""
        print(
            f"{self.name:<40} {self.first:6.1f} {self.loss:8.4f} {self.fit * 1e3:8.2f} "
            f"{batch / self.fit / 1e6:9.3f} {self.python:7.0%} {ratio}",
            flush=True,
        )


def build(contestant: Contestant, shape: data.Shape) -> keras.Model:
    """The compiled model, from the same seed for all."""
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(contestant.policy)
    model = contestant.build(shape, contestant.ids)
    keras.config.set_dtype_policy("float32")
    contestant.compile(model)
    return model


def measure(contestant: Contestant, shape: data.Shape, batches: list[Any], first: int) -> Row:
    """Train for some seconds.

    Args:
        contestant: what to train.
        shape: of the data.
        batches: on the device.
        first: how many steps are the first, a multiple of `steps_per_execution`.
    """
    model, feed = build(contestant, shape), data.Repeated(batches)
    start = time.perf_counter()
    loss = _fit(model, feed, first).history["loss"][0]
    compiled = time.perf_counter()
    _fit(model, feed, first)
    steps = first * int(min(25, max(1, 0.8 / (time.perf_counter() - compiled))))
    clock = _Clock()
    _fit(model, feed, steps, epochs=3, callbacks=[clock])
    seconds, python = min(clock.epochs[1:])
    return Row(contestant.name, compiled - start, loss, seconds / steps, python / seconds)


def _fit(model: keras.Model, feed: Any, steps: int, **options: Any) -> Any:
    return model.fit(feed, steps_per_epoch=steps, verbose=0, shuffle=False, **options)


class _Clock(keras.callbacks.Callback):
    """The time of each epoch: of the wall, and of the main thread's work."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[tuple[float, float]] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        self._start = (time.perf_counter(), time.thread_time())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 - logs are read: waits
        now = (time.perf_counter(), time.thread_time())
        self.epochs.append((now[0] - self._start[0], now[1] - self._start[1]))


def race(
    title: str,
    contestants: Iterator[Contestant],
    shape: data.Shape,
    batch: int,
    first: int,
    options: Any,
) -> None:
    """Measure one after the other and print each at once; `first` as in `measure`."""
    print(f"\n{title}: batch {batch:,}, ms a step, million samples/s")
    print(f"{'':<40} {'first s':>6} {'loss':>8} {'fit':>8} {'M/s':>9} {'python':>7}")
    baseline = None
    batches: dict[str, list[Any]] = {}
    for contestant in contestants:
        if not re.search(options.only, contestant.name):
            continue
        if time.monotonic() > options.deadline:
            print(f"{contestant.name:<40} skipped: out of time")
            continue
        ids = contestant.ids
        batches[ids] = batches.get(ids) or data.on_device(shape, batch, ids, 4)
        try:
            row = measure(contestant, shape, batches[ids], first)
        except (tf.errors.OpError, ValueError) as error:
            print(f"{contestant.name:<40} failed: {str(error)[:300]}", flush=True)
            continue
        row.print(batch, baseline)
        baseline = baseline or row.fit
        keras.backend.clear_session()


def race_on_feed(target: str, batch: int, options: Any) -> None:
    """The MLP on the data that a loader gives: three epochs, the best of the last two."""
    module, _, function = target.partition(":")
    dataset = getattr(importlib.import_module(module), function)(batch)
    ids = next(iter(dataset))[0]["C1"].dtype.name
    steps = int(dataset.cardinality())
    print(f"\nMLP fed by {target}: {steps} steps of {batch:,}")
    for contestant in mlp_contestants():
        if contestant.name not in FED or time.monotonic() > options.deadline:
            continue
        model = build(replace(contestant, ids=ids), data.CRITEO)
        clock = _Clock()
        losses = model.fit(dataset, epochs=3, verbose=0, shuffle=False, callbacks=[clock]).history[
            "loss"
        ]
        seconds, python = min(clock.epochs[1:])
        row = Row(contestant.name, clock.epochs[0][0], losses[0], seconds / steps, python / seconds)
        row.print(batch, None)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=330, help="start nothing after that")
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--shrink", type=int, default=1, help="divides the cardinalities")
    parser.add_argument("--feed", help="package.module:function")
    parser.add_argument("--only", default="", help="those whose names this pattern is found in")
    parser.add_argument("--models", default="mlp,wide", help="which models")
    options = parser.parse_args()
    options.deadline = time.monotonic() + options.seconds
    devices = tf.config.list_physical_devices("GPU")
    for gpu in devices:
        tf.config.experimental.set_memory_growth(gpu, True)
    print(
        f"TensorFlow {tf.__version__}, Keras {keras.__version__}, devices {devices or 'CPU only'}"
    )
    mlp, wide = (shape.shrunk(options.shrink) for shape in (data.CRITEO, data.WIDE_AND_DEEP))
    if "mlp" in options.models:
        race("MLP", mlp_contestants(), mlp, options.batch, 32, options)
    if options.feed:
        race_on_feed(options.feed, options.batch, options)
    if "wide" in options.models:
        race("Wide & Deep", wide_and_deep_contestants(), wide, 2 * options.batch, 16, options)


if __name__ == "__main__":
    main()
