"""Training on the CPU against what people have otherwise: speed, bytes on disk, and AUC.

    python -m benchmarks.training [--rounds 3] [--only step,wide,feed,auc] [--pictures docs/pictures]

step: our layers, optimizers and step against Keras' own. The model is an MLP of Criteo's shape: 13
numbers, 26 embeddings of width 16 of 10 to a million ids, three dense layers. The batches are in
memory, so that the step is measured and no loader. All contestants take turns, round by round,
since machines are noisy: the ratio is taken within a round to Keras' own layers with the same
optimizer, and medians are shown. The loss after the same steps from the same seed says how alike
they train. `CPU` is the processor time of all threads, which a busy machine changes less. The last
line with SGD is the floor: the matrix products of the model's dense layers alone.

wide: Wide & Deep of the seeds' columns, against an embedding for each column and sparse tensors.
feed: `model.fit` from parquet and from TFRecord: see `benchmarks.training_fit`.
auc: what is learnt from our loader and from TensorFlow's: see `benchmarks.training_auc`.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf

from benchmarks import training_auc, training_fit
from benchmarks.rounds import ratio
from benchmarks.training_clock import Clock
from benchmarks.training_data import CRITEO, WIDE_AND_DEEP, Shape, make_batch
from benchmarks.training_floor import Products
from benchmarks.training_models import (
    keras_mlp,
    naive_wide_and_deep,
    our_mlp,
    our_wide_and_deep,
)
from training import compile_model, optimizers

FIRST, STEPS = 2, 10
# The first of each pair is what the second is compared with.
PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "SGD": (partial(keras.optimizers.SGD, 0.05), partial(optimizers.SGD, 0.05)),
    "Adagrad": (partial(keras.optimizers.Adagrad, 0.05), partial(optimizers.Adagrad, 0.05)),
    "Adam": (partial(keras.optimizers.Adam, 0.001), partial(optimizers.Adam, 0.001)),
}


class Contestant:
    """A compiled model that has trained for a few steps.

    Args:
        name: for the table.
        model: compiled.
        data: endless batches.
    """

    def __init__(self, name: str, model: keras.Model, data: tf.data.Dataset) -> None:
        self.name = name
        self.times: list[float] = []
        self.work: list[float] = []
        self._model, self._data = model, data
        self.loss = self._fit()  # traces, and makes the state of the optimizer

    def run(self) -> None:
        """Train for some steps more, and keep the time."""
        clock = Clock(FIRST)
        self.loss = self._fit(clock)
        self.times.append(clock.seconds / STEPS)
        self.work.append(clock.work / STEPS)

    def _fit(self, *callbacks: keras.callbacks.Callback) -> float:
        history = self._model.fit(
            self._data,
            steps_per_epoch=FIRST + STEPS,
            callbacks=[*callbacks],
            verbose=0,
            shuffle=False,
        )
        return float(history.history["loss"][0])


def contestants(shape: Shape, data: tf.data.Dataset, optimizer: str) -> list[Contestant]:
    """Keras and ours with one kind of optimizer."""
    keras_own, ours = PAIRS[optimizer]

    def keras_step(model: keras.Model) -> None:
        model.compile(keras_own(), "binary_crossentropy", jit_compile=False)

    def layers_alone(model: keras.Model) -> None:
        compile_model(model, keras_own(), split=False)

    def all_of_it(model: keras.Model) -> None:
        compile_model(model, ours())

    def in_16_bits(model: keras.Model) -> None:
        compile_model(model, ours(), precision="bfloat16")

    made = []
    for name, build, compiled in (
        (f"Keras, {optimizer}", keras_mlp, keras_step),
        (f"our layers, Keras' {optimizer}", our_mlp, layers_alone),
        (f"our layers, {optimizer} and step", our_mlp, all_of_it),
        ("the same in bfloat16", our_mlp, in_16_bits),
    ):
        keras.utils.set_random_seed(0)
        model = build(shape, "int32")
        compiled(model)
        made.append(Contestant(name, model, data))
    return made


def wide_contestants(shape: Shape, data: tf.data.Dataset, optimizer: str) -> list[Contestant]:
    """Wide & Deep with an embedding for each column, and ours, with one kind of optimizer."""
    keras_own, ours = PAIRS[optimizer]
    made = []
    for name, build, own, split in (
        (f"Wide & Deep, Keras, {optimizer}", naive_wide_and_deep, keras_own, False),
        (f"Wide & Deep, ours, {optimizer}", our_wide_and_deep, ours, True),
    ):
        keras.utils.set_random_seed(0)
        model = build(shape, "int32")
        compile_model(model, own(), split=split)
        made.append(Contestant(name, model, data))
    return made


def repeated(shape: Shape, batch: int) -> tf.data.Dataset:
    """Four batches, over and over."""
    batches = [
        tf.nest.map_structure(tf.convert_to_tensor, make_batch(shape, batch, "int32", seed))
        for seed in range(4)
    ]
    datasets = [tf.data.Dataset.from_tensors(part) for part in batches]
    whole = datasets[0]
    for dataset in datasets[1:]:
        whole = whole.concatenate(dataset)
    return whole.repeat()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16_384)
    parser.add_argument("--shrink", type=int, default=1, help="divides the cardinalities")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the data on disk")
    parser.add_argument("--only", default="step,wide,feed,auc", help="which parts")
    parser.add_argument("--data", type=Path, default=Path("build/bench_training"))
    parser.add_argument("--pictures", type=Path, help="a folder for curves of loss and AUC")
    options = parser.parse_args()
    parts = options.only.split(",")
    if "step" in parts:
        shape = replace(CRITEO, hidden=(256, 128, 64)).shrunk(options.shrink)
        data = repeated(shape, options.batch)
        head(options)
        for optimizer in PAIRS:
            racers: list[Contestant | Products] = [*contestants(shape, data, optimizer)]
            if optimizer == "SGD":
                racers.append(Products("floor: matrix products alone", shape, options.batch, STEPS))
            race(racers, options)
    if "wide" in parts:
        shape = replace(WIDE_AND_DEEP, hidden=(256, 128, 64), width=16).shrunk(8 * options.shrink)
        data = repeated(shape, options.batch)
        head(options)
        for optimizer in PAIRS:
            race(wide_contestants(shape, data, optimizer), options)
    if "feed" in parts:
        training_fit.compare(options.data, options.rows, options.rounds)
    if "auc" in parts:
        training_auc.compare(options.data, options.rows, options.pictures)


def head(options: Any) -> None:
    """The head of a table of contestants."""
    print(f"\nbatch {options.batch:,}, medians of {options.rounds} rounds of {STEPS} steps")
    print(f"{'':<34} {'ms a step':>10} {'samples/s':>11} {'ratio':>7} {'CPU':>7} {'loss':>8}")


def race(contestants: Sequence[Contestant | Products], options: Any) -> None:
    """Let them take turns, and show a line for each."""
    for _ in range(options.rounds):
        for contestant in contestants:
            contestant.run()
    base = contestants[0]
    for contestant in contestants:
        seconds = statistics.median(contestant.times)
        print(
            f"{contestant.name:<34} {seconds * 1e3:10.1f} {options.batch / seconds:11,.0f} "
            f"{ratio(base.times, contestant.times):6.2f}x "
            f"{ratio(base.work, contestant.work):6.2f}x {contestant.loss:8.4f}"
        )


if __name__ == "__main__":
    main()
