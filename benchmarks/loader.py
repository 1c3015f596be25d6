"""Rows per second of the loader, against its limit and its alternatives, in one run.

    python -m benchmarks.loader [--rows 4000000] [--rounds 5] [--folder build/benchmarks]
    python -m benchmarks.loader --device gpu --rows 40000000 --rounds 1
    python -m benchmarks.loader --frameworks [--device gpu]

The data is Criteo-like after preprocessing: 13 float32, 26 int32 and a label; on a GPU a second set
has three columns of ten ids a row more. The limit is Polars, or cuDF, reading the files and doing
nothing with them; that of a shuffle is Polars reading them and gathering the rows of each row group
once. All contestants take turns, round by round: ratios are taken within a round, and medians are
shown. Each passes over the data twice in its turn and the second time counts, as an epoch in the
midst of training does: the first fetches memory from the system, or finds what its predecessor in the
round left.

On a CPU, checksums come from an epoch that is not timed, and Merlin's dataloader takes part where its
environment `.venv-nvtabular` is there, in a process that waits between its turns. On a GPU "compiled
loop" is a `tf.function` that takes and adds up every column of every batch, as `model.fit` does with
many steps per execution.

`--frameworks` compares the loaders of numpy, PyTorch and JAX, as far as they are installed (`make
test-frameworks` makes an environment), with that of Keras, in Python loops. On a GPU they share its
memory if JAX takes what it needs alone: XLA_PYTHON_CLIENT_PREALLOCATE=false.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import tensorflow as tf

import loader
from benchmarks import data
from benchmarks.data import CATS, CONTS
from benchmarks.feeds import (
    MERLIN,
    Merlin,
    by_hand,
    decode_and_gather,
    decode_on_gpu,
    decode_only,
    make_prebatched,
    make_tfrecord,
    open_loader,
    prebatched,
    wait,
    windowed,
)
from benchmarks.measure import Contestant, options, race, show, timed, use
from loader import ArrayLoader, KerasSequenceLoader

LIMIT, FLOOR = "Polars decode only (limit)", "Polars decode and gather (floor of a shuffle)"
GPU_LIMIT = "cuDF decode only (limit)"
OURS, PEER = "KerasSequenceLoader", "Merlin dataloader 23.08"
BATCH_SIZES = (65_536, 16_384)
Totals = tuple[int, int, float]


class Epochs(Contestant):
    """A contestant whose turn is two epochs, of which the second counts.

    Args:
        name: for the table.
        epoch: passes over the data, does nothing with the batches, and returns the rows.
        rows: of the data.
        totals: passes over it, and returns the rows, the sum of all ids and labels, and that of the
            first float column.
    """

    def __init__(
        self,
        name: str,
        epoch: Callable[[], int],
        rows: int,
        totals: Callable[[], Totals] | None = None,
    ) -> None:
        def turn() -> Any:
            epoch()
            return timed(epoch)

        super().__init__(name, turn, rows)
        self.totals = totals


def iterated(name: str, batches: Callable[[], Iterable[Any]], rows: int) -> Epochs:
    """A contestant that is iterated over in this process."""
    return Epochs(name, lambda: count_rows(batches()), rows, lambda: add_up(batches()))


def count_rows(batches: Iterable[Any]) -> int:
    """Take all batches, and wait for the last one."""
    rows = 0
    for batch in batches:
        rows += len(batch) if isinstance(batch, pl.DataFrame) else int(batch[1].shape[0])
    if not isinstance(batch, pl.DataFrame):
        on_host(batch[1])
    return rows


def on_host(tensor: Any) -> Any:
    """A framework's tensor as an array, once its GPU is done with it."""
    return np.asarray(tensor.cpu() if hasattr(tensor, "cpu") else tensor)


def asked(name: str, peer: Merlin, rows: int, batch_size: int, *, shuffle: bool) -> Epochs:
    """A contestant that runs in a process of its own."""
    epoch = functools.partial(peer.epoch, batch_size, shuffle=shuffle)

    def totals() -> Totals:
        found = epoch(totals=True)
        return found["rows"], found["ids"], found["floats"]

    return Epochs(name, lambda: int(epoch()["rows"]), rows, totals)


def add_up(batches: Iterable[Any]) -> Totals:
    """See `Epochs.totals`."""
    rows = ids = 0
    floats = 0.0
    for batch in batches:
        if isinstance(batch, pl.DataFrame):
            columns = {name: batch[name].to_numpy() for name in batch.columns}
        else:
            x, y = batch
            columns = {name: on_host(tensor) for name, tensor in x.items()}
            columns["label"] = on_host(y)
        rows += len(columns["label"])
        ids += sum(int(columns[name].sum(dtype=np.int64)) for name in [*CATS, "label"])
        floats += float(columns["I1"].sum(dtype=np.float64))
    return rows, ids, round(floats, 2)


def on_cpu(folder: Path, files: list[Path], rows: int, peer: Merlin | None) -> Iterator[Epochs]:
    """The contestants, what is compared side by side."""
    yield iterated(LIMIT, functools.partial(decode_only, files), rows)
    yield iterated(FLOOR, functools.partial(decode_and_gather, files), rows)
    for shuffle in (False, True):
        for batch_size in BATCH_SIZES:
            ours = open_loader(files, batch_size, shuffle=shuffle, device="cpu")
            yield iterated(label(OURS, batch_size, shuffle), ours.__iter__, rows)
        for batch_size in BATCH_SIZES:
            if peer is not None:
                name = label(PEER, batch_size, shuffle)
                yield asked(name, peer, rows, batch_size, shuffle=shuffle)
            hand = functools.partial(by_hand, files, batch_size, shuffle=shuffle)
            yield iterated(label("pyarrow by hand", batch_size, shuffle), hand, rows)
            records = prebatched(make_prebatched(folder, files, batch_size), shuffle=shuffle)
            name = label("TFRecord prebatched", batch_size, shuffle)
            yield iterated(name, records.__iter__, rows)
    sample, few = make_tfrecord(folder, files)
    records = windowed(sample, BATCH_SIZES[1], epochs=1)
    yield iterated(label("TFRecord windowed", BATCH_SIZES[1], True), records.__iter__, few)


def in_frameworks(files: list[Path], rows: int, device: str) -> Iterator[Epochs]:
    """Our loaders, that of Keras first."""
    where = "cpu" if device == "cpu" else "gpu:0"
    kinds: list[Any] = [KerasSequenceLoader, ArrayLoader]
    kinds += [loader.TorchLoader] if find_spec("torch") else []
    kinds += [loader.JaxLoader] if find_spec("jax") else []
    for shuffle in (False, True):
        for batch_size in BATCH_SIZES:
            for kind in kinds:
                ours = open_loader(files, batch_size, kind=kind, shuffle=shuffle, device=where)
                name = label(kind.__name__, batch_size, shuffle)
                yield iterated(name, ours.__iter__, rows)


def on_gpu(files: list[Path], rows: int, *, lists: bool) -> Iterator[Epochs]:
    """The contestants on a GPU."""
    yield Epochs(GPU_LIMIT, functools.partial(decode_on_gpu, files), rows)
    for batch_size in BATCH_SIZES:
        for shuffle in (True,) if lists else (True, False):
            batches = open_loader(files, batch_size, lists=lists, shuffle=shuffle)
            compiled = compiled_loop(batches, rows)
            yield Epochs(label("compiled loop", batch_size, shuffle), compiled, rows)
            python = functools.partial(count_rows, batches)
            yield Epochs(label("Python loop", batch_size, shuffle), python, rows)


def compiled_loop(batches: Any, rows: int) -> Callable[[], int]:
    """A compiled loop over batches of so many rows; raises where there are fewer than the loader said."""

    @tf.function
    def run(iterator: Any, steps: int) -> tf.Tensor:
        total = tf.zeros([], tf.float32)
        for _ in tf.range(steps):
            x, y = next(iterator)
            # Touches every column, so that none is left out, as floats, which stay on the GPU.
            columns = [_as_float(x[name]) for name in CONTS + CATS] + [_as_float(y)]
            total += tf.add_n(columns)[0, 0]
        return total

    def epoch() -> int:
        run(iter(batches), tf.constant(len(batches))).numpy()
        return rows

    return epoch


def _as_float(tensor: tf.Tensor) -> tf.Tensor:
    return tensor if tensor.dtype == tf.float32 else tf.bitcast(tensor, tf.float32)


def label(name: str, batch_size: int, shuffle: bool) -> str:
    """The name of a contestant in the table."""
    return f"{name} {batch_size:,}{', shuffled' if shuffle else ''}"


def print_ratios(racers: Sequence[Epochs]) -> None:
    """Compare ours with Merlin's, with the floor, and with larger batches."""
    found = {racer.name: racer for racer in racers}
    for shuffle in (False, True):
        large, small = (label(OURS, batch_size, shuffle) for batch_size in BATCH_SIZES)
        peers = [label(PEER, batch_size, shuffle) for batch_size in BATCH_SIZES]
        limit = FLOOR if shuffle else LIMIT
        pairs = [(large, peers[0]), (large, limit), (small, peers[1]), (small, limit)]
        for name, base in [*pairs, (small, large)]:
            if base in found:
                print(f"{name}: {found[name].against(found[base])} {base}")


def first_batch_ms(files: list[Path], batch_size: int, rounds: int) -> float:
    """Median milliseconds until an epoch's first batch is there."""
    batches = open_loader(files, batch_size)

    def first() -> None:
        _, y = next(iter(batches))
        wait(y)

    return statistics.median([timed(first, 1).seconds for _ in range(rounds + 1)][1:]) * 1e3


def print_race(title: str, racers: list[Epochs], rounds: int) -> None:
    """Let them take turns, and print a table."""
    totals = {racer.name: racer.totals() for racer in racers if racer.totals}
    race(racers, rounds)
    rows = [
        {
            "": racer.name,
            "M rows/s": racer.rate / 1e6,
            "of limit": racer.against(racers[0]).median,
            "rows, ids, floats": ", ".join(map("{:,}".format, totals.get(racer.name, ()))),
        }
        for racer in racers
    ]
    show(f"{title}, median of {rounds} rounds", rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    folder = Path("build/benchmarks")
    parser = options(__doc__, devices=True, rows=4_000_000, rounds=5, folder=folder)
    parser.add_argument("--frameworks", action="store_true")
    parsed = parser.parse_args(arguments)
    use(parsed.device)
    files = data.clicks(parsed.folder, parsed.rows, device=parsed.device)
    title = f"{parsed.rows:,} rows"
    if parsed.frameworks:
        racers = [*in_frameworks(files, parsed.rows, parsed.device)]
        print_race(title, racers, parsed.rounds)
        found = {racer.name: racer for racer in racers}
        for name, racer in found.items():
            base = found[f"{OURS} {name.partition(' ')[2]}"]
            processor = racer.against(base, "processor")
            print(f"{name}: {racer.against(base)}, by processor time {processor} {base.name}")
        return
    if parsed.device == "gpu":
        print_race(title, [*on_gpu(files, parsed.rows, lists=False)], parsed.rounds)
        first = [first_batch_ms(files, size, parsed.rounds) for size in BATCH_SIZES]
        print("\nthe first batch is there after {:.1f} and {:.1f} ms".format(*first))
        half = parsed.rows // 2
        files = data.clicks(parsed.folder, half, device="gpu", lists=True)
        racers = [*on_gpu(files, half, lists=True)]
        print_race(f"{half:,} rows, three 10-hot lists more", racers, parsed.rounds)
        return
    with Merlin(files) if MERLIN.exists() else contextlib.nullcontext() as peer:
        racers = [*on_cpu(parsed.folder, files, parsed.rows, peer)]
        print_race(title, racers, parsed.rounds)
    print_ratios(racers)


if __name__ == "__main__":
    main()
