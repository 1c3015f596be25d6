"""Rows per second of the CPU loader, against its limit and its alternatives, in one run.

    python -m benchmarks.loader [--rows 4000000] [--rounds 5] [--folder build/benchmark_loader]

The data is Criteo-like after preprocessing: 13 float32, 26 int32 and a label. The limit is Polars
reading the files and doing nothing with them. All contestants take turns, round by round, since
machines are noisy: the ratio to the limit is taken within a round, and medians are shown. Row
totals and checksums come from an epoch that is not timed. `benchmarks.loader_fit` tells what
`model.fit` makes of it.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import polars as pl

from benchmarks.loader_data import CATS, CONTS, make_data
from benchmarks.loader_memory import BUFFERS, peak_over_buffer
from benchmarks.loader_peers import (
    by_hand,
    decode_only,
    make_prebatched,
    make_tfrecord,
    merlin,
    prebatched,
    windowed,
)
from loader import KerasSequenceLoader

Epoch = Callable[[], Iterable[Any]]


def make_loader(files: list[Path], batch_size: int, *, shuffle: bool) -> KerasSequenceLoader:
    """Ours."""
    return KerasSequenceLoader(
        files, batch_size, ["label"], cat_names=CATS, cont_names=CONTS, shuffle=shuffle, seed=0
    )


def checksum(batches: Iterable[Any]) -> tuple[int, int, float]:
    """Rows, the sum of all ids and labels, and the sum of the first float column."""
    rows = ids = 0
    floats = 0.0
    for batch in batches:
        if isinstance(batch, pl.DataFrame):
            columns = {name: batch[name].to_numpy() for name in batch.columns}
        else:
            x, y = batch
            columns = {name: np.asarray(tensor) for name, tensor in x.items()}
            columns["label"] = np.asarray(y)
        rows += len(columns["label"])
        ids += sum(int(columns[name].sum(dtype=np.int64)) for name in [*CATS, "label"])
        floats += float(columns["I1"].sum(dtype=np.float64))
    return rows, ids, round(floats, 2)


def seconds(epoch: Epoch) -> float:
    """How long one pass takes when nothing is done with the batches."""
    start = time.perf_counter()
    for _ in epoch():
        pass
    return time.perf_counter() - start


def contestants(folder: Path, files: list[Path]) -> dict[str, Epoch]:
    """Everything that is timed, by name."""
    found: dict[str, Epoch] = {"polars decode only (limit)": lambda: decode_only(files)}
    for batch_size in (65_536, 16_384):
        for shuffle in (False, True):
            label = f"{batch_size:,}{', shuffled' if shuffle else ''}"
            ours = make_loader(files, batch_size, shuffle=shuffle)
            found[f"KerasSequenceLoader {label}"] = ours.__iter__
            by = functools.partial(by_hand, files, batch_size, shuffle=shuffle)
            found[f"pyarrow by hand {label}"] = by
            records = make_prebatched(folder, files, batch_size)
            found[f"TFRecord prebatched {label}"] = prebatched(records, shuffle=shuffle).__iter__
    tfrecord = make_tfrecord(folder, files)
    found["TFRecord windowed 16,384, shuffled"] = windowed(tfrecord, 16_384).__iter__
    return found


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("build/benchmark_loader"))
    arguments = parser.parse_args()
    files = make_data(arguments.folder, arguments.rows)
    racers = contestants(arguments.folder, files)
    totals = {name: checksum(epoch()) for name, epoch in racers.items()}
    times: dict[str, list[float]] = {name: [] for name in racers}
    for _ in range(arguments.rounds):
        for name, epoch in racers.items():
            times[name].append(seconds(epoch))
    limit = [totals[next(iter(racers))][0] / passed for passed in times[next(iter(racers))]]
    print(f"{os.cpu_count()} cores, {arguments.rows:,} rows, median of {arguments.rounds} rounds\n")
    print(f"{'':46}{'M rows/s':>9}{'of limit':>10}{'rows':>11}{'checksum':>32}")
    for name, passed in times.items():
        rows, ids, floats = totals[name]
        rates = [rows / each for each in passed]
        ratio = statistics.median(rate / most for rate, most in zip(rates, limit, strict=True))
        rate = statistics.median(rates) / 1e6
        print(f"{name:46}{rate:9.2f}{ratio:10.2f}{rows:11,}{f'{ids:,} {floats:,}':>32}")
    for name, rate in merlin(files, arguments.rounds):
        ratio = rate / statistics.median(limit)
        print(f"{name:46}{rate / 1e6:9.2f}{ratio:10.2f}")
    for buffer_size in BUFFERS:
        over = peak_over_buffer(files, buffer_size)
        print(f"\npeak memory: {over:.2f} of a buffer of {buffer_size / 1e6:.0f} MB", end="")
    print()


if __name__ == "__main__":
    main()
