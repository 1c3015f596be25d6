"""Samples per second of the loader on an NVIDIA GPU, against cuDF's decoding alone, in one run.

    python -m benchmarks.gpu_loader [--rows 40000000] [--rounds 3] [--folder /tmp/gpu_loader]

The data is that of `benchmarks.loader`: 13 float32, 26 int32 and a label, in row groups of a
million; a second set has three columns of ten ids a row more. First every value of the GPU's
batches is compared with the CPU loader's. Then epochs are timed, the contestants taking turns:
the ratio to decoding is taken within a round, and medians are shown. Last, `model.fit` is
compared with the same train step on a batch that stays on the GPU, and the copies from the
device to the host are counted by TensorFlow's profiler.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_GPU_ALLOCATOR", "cuda_malloc_async")

import polars as pl
import tensorflow as tf

from benchmarks.gpu_loader_data import (
    CATS,
    CONTS,
    FOLDER,
    as_int64,
    make_data,
    make_loader,
    python_epoch,
)
from benchmarks.gpu_loader_fit import fit, fit_windowed

Epoch = Callable[[], tuple[int, int]]


def feed(batch_size: int) -> Any:
    """An epoch for `benchmarks.gpu_training --feed benchmarks.gpu_loader:feed`, its ids int64."""
    files = make_data(FOLDER, 40_000_000, lists=False)
    loader = make_loader(files, batch_size, drop_last=True)
    return loader.map(lambda x, y: ({name: as_int64(t) for name, t in x.items()}, y))


def decode_only(files: list[Path]) -> tuple[int, int]:
    """The limit: cuDF reads each file into GPU memory, and that is all."""
    import pylibcudf as plc  # noqa: PLC0415 - only where there is a GPU

    rows = 0
    for file in files:
        source = plc.io.types.SourceInfo([str(file)])
        options = plc.io.parquet.ParquetReaderOptions.builder(source).build()
        rows += plc.io.parquet.read_parquet(options).tbl.num_rows()
    return rows, -1


class GraphEpoch:
    """A compiled loop over batches, as in `model.fit` with many steps per execution."""

    def __init__(self, data: Any) -> None:
        self._data = data

        @tf.function
        def run(iterator: Any, steps: int) -> tf.Tensor:
            total = tf.zeros([], tf.float32)
            for _ in tf.range(steps):
                x, y = next(iterator)
                # Touches every column, so that none is left out, as floats, which stay on the GPU.
                total += tf.add_n([_as_float(x[name]) for name in CONTS + CATS] + [_as_float(y)])[
                    0, 0
                ]
            return total

        self._run = run

    def __call__(self) -> tuple[int, int]:
        """One epoch; the batches."""
        self._run(iter(self._data), tf.constant(len(self._data))).numpy()
        return -1, len(self._data)


def _as_float(tensor: tf.Tensor) -> tf.Tensor:
    return tensor if tensor.dtype == tf.float32 else tf.bitcast(tensor, tf.float32)


def race(files: list[Path], rounds: int, *, lists: bool) -> None:
    """Time epochs, all contestants in turn."""
    racers: dict[str, Epoch] = {"cuDF decode only (limit)": lambda: decode_only(files)}
    for batch_size in (65_536, 16_384):
        for shuffle in (True, False) if not lists else (True,):
            data = make_loader(files, batch_size, lists=lists, shuffle=shuffle)
            label = f"{batch_size:,}{', shuffled' if shuffle else ''}"
            racers[f"compiled loop {label}"] = GraphEpoch(data)
            racers[f"Python loop {label}"] = lambda data=data: python_epoch(data)  # type: ignore[misc]
    rows = pl.scan_parquet(files).select(pl.len()).collect().item()
    times: dict[str, list[float]] = {name: [] for name in racers}
    for number in range(rounds + 1):
        for name, epoch in racers.items():
            start = time.perf_counter()
            epoch()
            if number:
                times[name].append(time.perf_counter() - start)
    limit = next(iter(times.values()))
    print(f"\n{rows:,} rows{', three 10-hot lists' if lists else ''}, median of {rounds} rounds")
    for name, passed in times.items():
        ratio = statistics.median(most / each for each, most in zip(passed, limit, strict=True))
        print(f"{name:40}{rows / statistics.median(passed) / 1e6:8.1f} M/s{ratio:7.2f}", flush=True)


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--only", default="race,lists,fit")
    arguments = parser.parse_args()
    only = arguments.only.split(",")
    files = make_data(arguments.folder, arguments.rows, lists=False)
    if "race" in only:
        race(files, arguments.rounds, lists=False)
    if "fit" in only:
        fit(files, 65_536, arguments.rounds)
        fit_windowed(files, 65_536)
    if "lists" in only:
        race(
            make_data(arguments.folder, arguments.rows // 2, lists=True),
            arguments.rounds,
            lists=True,
        )


if __name__ == "__main__":
    main()
