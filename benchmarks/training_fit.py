"""`model.fit` of one model fed in the ways that people go: rows per second, and bytes on disk.

The rows are the loader benchmark's: 13 numbers, 26 ids and a label. TensorFlow's windowed loader
reads records of `tf.train.Example`, one a row; prebatched records hold the bytes of whole batches,
which are only as good as the shuffle that was made when they were written.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from benchmarks.loader_data import CARDINALITIES, CATS, CONTS, make_data
from benchmarks.loader_peers import (
    SAMPLE,
    make_prebatched,
    make_tfrecord,
    prebatched,
    windowed,
)
from benchmarks.rounds import ratio
from benchmarks.training_clock import Clock
from loader import KerasSequenceLoader
from training import compile_model, models

BATCH = 4096
FIRST, STEPS = 4, 48


class Feed:
    """A way to feed the model.

    Args:
        name: for the table.
        make: makes endless batches.
        bytes_per_row: on disk.
    """

    def __init__(self, name: str, make: Callable[[], Any], bytes_per_row: float) -> None:
        self.name = name
        self.bytes_per_row = bytes_per_row
        self.times: list[float] = []
        self.work: list[float] = []
        self._model = make_model()
        self._data = make()
        self._fit(2)  # traces

    def run(self) -> None:
        """Trains for some steps, and keeps the time of all but the first, which fill buffers."""
        clock = Clock(FIRST)
        self._fit(FIRST + STEPS, clock)
        self.times.append(clock.seconds)
        self.work.append(clock.work)

    def _fit(self, steps: int, *callbacks: keras.callbacks.Callback) -> None:
        self._model.fit(
            self._data, steps_per_epoch=steps, verbose=0, shuffle=False, callbacks=[*callbacks]
        )


def make_model() -> keras.Model:
    """The network of all contestants."""
    sizes = {name: (int(size), 16) for name, size in zip(CATS, CARDINALITIES, strict=True)}
    model = models.mlp(sizes, CONTS, hidden=(128, 64))
    compile_model(model, "adagrad")
    return model


def compare(folder: Path, rows: int, rounds: int) -> None:
    """Prints a line for each way, with its ratio to the windowed loader within a round."""
    files = make_data(folder, rows)
    sample, records = make_tfrecord(folder, files), make_prebatched(folder, files, BATCH)
    parquet = sum(file.stat().st_size for file in files) / rows
    batches = KerasSequenceLoader(
        [*map(str, files)], BATCH, ["label"], cat_names=CATS, cont_names=CONTS, seed=0
    )
    feeds = [
        Feed(
            "TFRecord, windowed",
            lambda: windowed(sample, BATCH).repeat(),
            sample.stat().st_size / SAMPLE,
        ),
        Feed(
            "TFRecord, prebatched, window of 16",
            lambda: prebatched(records, shuffle=True).repeat(),
            records.stat().st_size / rows,
        ),
        Feed("ours, from parquet, shuffled", batches.repeat, parquet),
    ]
    for _ in range(rounds):
        for feed in feeds:
            feed.run()
    print(
        f"\nmodel.fit fed from disk, batch {BATCH:,}, medians of {rounds} rounds of {STEPS} steps"
    )
    print(f"{'':<34} {'samples/s':>11} {'ratio':>7} {'CPU':>7} {'bytes a row':>12} {'ratio':>7}")
    for feed in feeds:
        print(
            f"{feed.name:<34} {BATCH * STEPS / statistics.median(feed.times):11,.0f} "
            f"{ratio(feeds[0].times, feed.times):6.2f}x {ratio(feeds[0].work, feed.work):6.2f}x "
            f"{feed.bytes_per_row:12,.0f} {feed.bytes_per_row / parquet:6.2f}x"
        )
