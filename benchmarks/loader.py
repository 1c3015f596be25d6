"""Rows per second of the CPU loader, against its limit and its alternatives, in one run.

    python -m benchmarks.loader [--rows 4000000] [--rounds 5] [--folder build/benchmark_loader]

The data is Criteo-like after preprocessing: 13 float32, 26 int32 and a label. The limit is Polars
reading the files and doing nothing with them; that of a shuffle is Polars reading them and gathering
the rows of each row group once. All contestants take turns, round by round, since
machines are noisy: ratios are taken within a round, and medians are shown. Each passes over the
data twice in its turn and the second time counts, as an epoch in the midst of training does: the
first fetches memory from the system, or finds what its predecessor in the round left. Row totals
and checksums come from an epoch that is not timed. Merlin's dataloader, where its environment
`.venv-nvtabular` is there, runs in a process that waits between its turns.
`benchmarks.loader_fit` tells what `model.fit` makes of it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import polars as pl

from benchmarks.loader_data import CATS, CONTS, make_data
from benchmarks.loader_memory import BUFFERS, peak_over_buffer
from benchmarks.loader_peers import (
    MERLIN,
    Merlin,
    by_hand,
    decode_and_gather,
    decode_only,
    make_prebatched,
    make_tfrecord,
    prebatched,
    windowed,
)
from loader import KerasSequenceLoader

LIMIT, FLOOR = "polars decode only (limit)", "polars decode and gather (floor of a shuffle)"
OURS, PEER = "KerasSequenceLoader", "Merlin dataloader 23.08"
BATCH_SIZES = (65_536, 16_384)


@dataclass(frozen=True)
class Contestant:
    """What is timed.

    Attributes:
        epoch: passes over the data and does nothing with the batches.
        totals: passes over it and gives the rows, the sum of all ids and labels, and that of the
            first float column.
    """

    epoch: Callable[[], object]
    totals: Callable[[], tuple[int, int, float]]


def make_loader(files: list[Path], batch_size: int, *, shuffle: bool) -> KerasSequenceLoader:
    """Ours."""
    return KerasSequenceLoader(
        files, batch_size, ["label"], cat_names=CATS, cont_names=CONTS, shuffle=shuffle, seed=0
    )


def iterated(batches: Callable[[], Iterable[Any]]) -> Contestant:
    """One that is iterated over in this process."""

    def epoch() -> None:
        for _ in batches():
            pass

    return Contestant(epoch, lambda: add_up(batches()))


def asked(peer: Merlin, batch_size: int, *, shuffle: bool) -> Contestant:
    """One that runs in a process of its own."""
    epoch = functools.partial(peer.epoch, batch_size, shuffle=shuffle)

    def totals() -> tuple[int, int, float]:
        found = epoch(totals=True)
        return found["rows"], found["ids"], found["floats"]

    return Contestant(epoch, totals)


def add_up(batches: Iterable[Any]) -> tuple[int, int, float]:
    """See `Contestant.totals`."""
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


def contestants(folder: Path, files: list[Path], peer: Merlin | None) -> dict[str, Contestant]:
    """All of them by name, what is compared side by side."""
    found = {
        LIMIT: iterated(functools.partial(decode_only, files)),
        FLOOR: iterated(functools.partial(decode_and_gather, files)),
    }
    for shuffle in (False, True):
        for batch_size in BATCH_SIZES:
            ours = make_loader(files, batch_size, shuffle=shuffle)
            found[label(OURS, batch_size, shuffle)] = iterated(ours.__iter__)
        for batch_size in BATCH_SIZES:
            if peer is not None:
                found[label(PEER, batch_size, shuffle)] = asked(peer, batch_size, shuffle=shuffle)
            hand = functools.partial(by_hand, files, batch_size, shuffle=shuffle)
            found[label("pyarrow by hand", batch_size, shuffle)] = iterated(hand)
            records = prebatched(make_prebatched(folder, files, batch_size), shuffle=shuffle)
            found[label("TFRecord prebatched", batch_size, shuffle)] = iterated(records.__iter__)
    tfrecord = make_tfrecord(folder, files)
    found["TFRecord windowed 16,384, shuffled"] = iterated(windowed(tfrecord, 16_384).__iter__)
    return found


def label(name: str, batch_size: int, shuffle: bool) -> str:
    """How a contestant is called in the table."""
    return f"{name} {batch_size:,}{', shuffled' if shuffle else ''}"


def race(racers: dict[str, Contestant], rounds: int) -> dict[str, list[float]]:
    """Seconds of an epoch, by contestant and round."""
    times: dict[str, list[float]] = {name: [] for name in racers}
    for _ in range(rounds):
        for name, racer in racers.items():
            racer.epoch()
            start = time.perf_counter()
            racer.epoch()
            times[name].append(time.perf_counter() - start)
    return times


def print_table(times: dict[str, list[float]], totals: dict[str, tuple[int, int, float]]) -> None:
    """A line for each contestant."""
    print(f"{'':46}{'M rows/s':>9}{'of limit':>10}{'rows':>11}{'checksum':>32}")
    for name, passed in times.items():
        rows, ids, floats = totals[name]
        rate = rows / statistics.median(passed) / 1e6
        share = rows / totals[LIMIT][0] * ratios(times[LIMIT], passed)[0]
        print(f"{name:46}{rate:9.2f}{share:10.2f}{rows:11,}{f'{ids:,} {floats:,}':>32}")


def print_ratios(times: dict[str, list[float]]) -> None:
    """What is worth comparing within a round, with the range over rounds."""
    print()
    for name, base in comparisons():
        if base in times:
            median, least, most = ratios(times[base], times[name])
            print(f"{name:38}{median:6.2f} ({least:.2f} to {most:.2f}) times {base}")


def comparisons() -> Iterator[tuple[str, str]]:
    """Names of ours, each with what it is compared to: Merlin's, the floor, larger batches."""
    for shuffle in (False, True):
        large, small = (label(OURS, batch_size, shuffle) for batch_size in BATCH_SIZES)
        for name, batch_size in zip((large, small), BATCH_SIZES, strict=True):
            yield name, label(PEER, batch_size, shuffle)
            yield name, FLOOR if shuffle else LIMIT
        yield small, large


def ratios(base: list[float], other: list[float]) -> tuple[float, float, float]:
    """How many times as fast the other was in the same round: median, least and most."""
    found = [a / b for a, b in zip(base, other, strict=True)]
    return statistics.median(found), min(found), max(found)


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("build/benchmark_loader"))
    arguments = parser.parse_args()
    files = make_data(arguments.folder, arguments.rows)
    with Merlin(files) if MERLIN.exists() else contextlib.nullcontext() as peer:
        racers = contestants(arguments.folder, files, peer)
        totals = {name: racer.totals() for name, racer in racers.items()}
        times = race(racers, arguments.rounds)
    print(f"{os.cpu_count()} cores, {arguments.rows:,} rows, median of {arguments.rounds} rounds\n")
    print_table(times, totals)
    print_ratios(times)
    for buffer_size in BUFFERS:
        over = peak_over_buffer(files, buffer_size)
        print(f"\npeak memory: {over:.2f} of a buffer of {buffer_size / 1e6:.0f} MB", end="")
    print()


if __name__ == "__main__":
    main()
