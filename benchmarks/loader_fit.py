"""`model.fit` fed by the loader, against the same steps on a batch in memory, on the CPU.

    python -m benchmarks.loader_fit [--rows 2000000] [--rounds 3] [--folder FOLDER]

A run is a whole epoch, so that each row decoded is a row trained on: a shorter one pays for what
was read ahead.

Two models: a light one, whose step leaves a loader little to hide behind, and the Criteo-like
MLP of `benchmarks.training`. Where the time goes is told by the processor time of threads, by what
they belong to: training, decoding, or giving memory back to the system.

With `_RJEM_MALLOC_CONF=dirty_decay_ms:-1` in the environment Polars keeps the memory it has had.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf

from benchmarks.loader_data import CATS, CONTS, make_data
from benchmarks.rounds import ratio
from benchmarks.training_data import CRITEO
from benchmarks.training_models import keras_mlp
from loader import KerasSequenceLoader

BATCH = 16_384
# The beginnings of threads' names.
_OWNERS = {
    "decoding": ("polars-", "async-execut", "tokio", "parquet-load"),
    "memory": ("jemalloc", "polars-unmap"),
}
TICKS = os.sysconf("SC_CLK_TCK")


def light_model() -> keras.Model:
    """A small click model: one embedding table for all columns and three dense layers."""
    inputs = {name: keras.Input((1,), name=name, dtype="float32") for name in CONTS}
    inputs |= {name: keras.Input((1,), name=name, dtype="int32") for name in CATS}
    ids = keras.layers.concatenate([inputs[name] for name in CATS]) % 10_000
    embedded = keras.layers.Flatten()(keras.layers.Embedding(10_000, 8)(ids))
    hidden = keras.layers.concatenate([embedded, *(inputs[name] for name in CONTS)])
    for _ in range(3):
        hidden = keras.layers.Dense(128, "relu")(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(hidden))
    model.compile("sgd", "binary_crossentropy", jit_compile=False)
    return model


def criteo_model() -> keras.Model:
    """26 embeddings of width 16 with up to a million rows, and three dense layers."""
    model = keras_mlp(replace(CRITEO, hidden=(256, 128, 64)), "int32")
    model.compile(keras.optimizers.SGD(0.05), "binary_crossentropy", jit_compile=False)
    return model


def processor_time() -> Counter[str]:
    """Milliseconds of this process's threads, user and system, by what they belong to."""
    found: Counter[str] = Counter()
    for thread in Path("/proc/self/task").iterdir():
        try:
            name, _, rest = (thread / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:  # it has ended
            continue
        owners = (who for who, names in _OWNERS.items() if name.startswith(names))
        fields = rest.split()
        found[next(owners, "training")] += (int(fields[11]) + int(fields[12])) * 1000 // TICKS
    return found


class Run:
    """Fits a model on some data, again and again."""

    def __init__(self, model: keras.Model, data: Any) -> None:
        self.times: list[float] = []
        self.work: list[Counter[str]] = []
        self._fit = functools.partial(model.fit, data, verbose=0, shuffle=False)
        self._fit(steps_per_epoch=2)  # compiles

    def __call__(self) -> None:
        """Keep the seconds and the processor time of a run."""
        work, start = processor_time(), time.perf_counter()
        self._fit()
        self.times.append(time.perf_counter() - start)
        self.work.append(processor_time() - work)

    def mean(self, owner: str, steps: int) -> float:
        """Milliseconds of processor time a step."""
        return statistics.mean(work[owner] for work in self.work) / steps


def race(build: Callable[[], keras.Model], files: list[Path], rounds: int) -> str:
    """The ratio of elapsed and of processor time, and whose that was."""
    data = KerasSequenceLoader(
        files, BATCH, ["label"], cat_names=CATS, cont_names=CONTS, shuffle=True, seed=0
    )
    model, steps = build(), len(data)
    resident = Run(model, tf.data.Dataset.from_tensors(data.peek()).repeat(steps))
    loaded = Run(model, data)
    for _ in range(rounds):
        resident()
        loaded()
    elapsed = ratio(resident.times, loaded.times)
    work = ratio(*([each.total() for each in run.work] for run in (resident, loaded)))
    shares = ", ".join(f"{who} {loaded.mean(who, steps):.1f}" for who in ("training", *_OWNERS))
    return (
        f"{elapsed:.2f} of the same steps on a batch in memory, {work:.2f} by processor time "
        f"({resident.mean('training', steps):.1f} ms a step; fed by the loader: {shares})"
    )


def main() -> None:
    """Run, and print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("build/benchmark_loader"))
    arguments = parser.parse_args()
    files = make_data(arguments.folder, arguments.rows)
    for name, build in (("light model", light_model), ("Criteo-like MLP", criteo_model)):
        found = race(build, files, arguments.rounds)
        print(f"model.fit, {name}, batch {BATCH:,}: {found}", flush=True)


if __name__ == "__main__":
    main()
