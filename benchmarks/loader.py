"""Rows per second of the loader, against its limit and its alternatives, in one run.

    python -m benchmarks.loader [--rows 4000000] [--rounds 5] [--folder build/benchmarks]
    python -m benchmarks.loader --device gpu --rows 40000000 --rounds 1
    python -m benchmarks.loader --frameworks [--device gpu]
    python -m benchmarks.loader --tfrecords --rows 200000

The data is Criteo-like after preprocessing: 13 float32, 26 int32 and a label; on a GPU a second set
has three columns of ten ids a row more. The limit is Polars, or cuDF, reading the files and doing
nothing with them; that of a shuffle is Polars reading them and gathering the rows of each row group
once. All contestants take turns, round by round: ratios are taken within a round, and medians are
shown. Each passes over the data twice in its turn and the second time counts, as an epoch in the
midst of training does: the first fetches memory from the system, or finds what its predecessor in the
round left.

On a CPU, an epoch that is not timed adds up what each contestant read, which fails where it is something
else than the first read. Merlin's dataloader takes part where `make bench-peers` has made its
environment, in a process that waits between its turns. On a GPU "compiled loop" is a `tf.function` that
takes and adds up every column of every batch, as `model.fit` does with many steps per execution.

`--frameworks` compares the loaders of numpy, PyTorch and JAX, as far as they are installed (`make
test-frameworks` makes an environment), with that of Keras, in Python loops. On a GPU they share its
memory if JAX takes what it needs alone: XLA_PYTHON_CLIENT_PREALLOCATE=false.

`--tfrecords` converts records to parquet, `tf.train.Example`s of 40 features, some 600 bytes each. "Read"
is TensorFlow reading the file, "decode" the same with `tf.io.parse_example` and a feature of one value for
each column, which is the floor of any conversion by TensorFlow. A file of 20,000 records is read as often
as needed.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import tensorflow as tf

import loader
from benchmarks import data, feeds
from benchmarks.data import CATS, CONTS
from benchmarks.measure import PEERS, Contestant, options, race, show, timed, use
from loader import ArrayLoader, KerasSequenceLoader, convert_tfrecords_to_parquet

BATCH_SIZES = (65_536, 16_384)
# The ways of reading, by their names: whether it is shuffled, and the rows of a batch.
WAYS = {
    f"{size:,}{', shuffled' if shuffle else ''}": (shuffle, size)
    for shuffle in (False, True)
    for size in BATCH_SIZES
}
OURS = KerasSequenceLoader.__name__
Batches = Callable[[], Iterable[Any]]
FEATURES = {name: tf.io.FixedLenFeature([], tf.float32) for name in CONTS}
FEATURES |= {name: tf.io.FixedLenFeature([], tf.int64) for name in [*CATS, "label"]}


class Epochs(Contestant):
    """A contestant whose turn is two epochs, of which the second counts.

    Args:
        name: for the table.
        epoch: passes over the data, does nothing with the batches, and returns the rows.
        rows: of the data.
        batches: an epoch of batches, where what they hold is compared.
        is_elsewhere: whether another process does the work, whose processor time is not measured.
    """

    def __init__(
        self,
        name: str,
        epoch: Callable[[], int],
        rows: int,
        batches: Batches | None = None,
        *,
        is_elsewhere: bool = False,
    ) -> None:
        super().__init__(name, lambda: (epoch(), timed(epoch))[1], rows)
        self.batches = batches
        self.is_elsewhere = is_elsewhere


def iterated(name: str, batches: Batches, rows: int) -> Epochs:
    """A contestant that is iterated over in this process."""
    return Epochs(name, lambda: count_rows(batches()), rows, batches)


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


def add_up(batches: Iterable[Any]) -> tuple[int, int, float]:
    """The rows, the sum of all ids and labels, and that of the first float column."""
    rows = ids = 0
    floats = 0.0
    for batch in batches:
        columns = batch if isinstance(batch, pl.DataFrame) else batch[0] | {"label": batch[1]}
        rows += len(columns["label"])
        ids += sum(int(on_host(columns[n]).sum(dtype=np.int64)) for n in [*CATS, "label"])
        floats += float(on_host(columns["I1"]).sum(dtype=np.float64))
    return rows, ids, round(floats, 2)


def ask(peer: subprocess.Popen[str], epoch: str) -> int:
    """Let a loader in another process pass over the data; the rows, or 0 if it has ended."""
    print(epoch, file=peer.stdin, flush=True)
    return int(next(iter(peer.stdout or ()), 0))


def on_cpu(
    folder: Path, files: list[Path], rows: int, merlin: subprocess.Popen[str] | None
) -> Iterator[Epochs]:
    """The contestants, what is compared side by side."""
    yield iterated("Polars decode only (limit)", partial(feeds.decode_only, files), rows)
    yield iterated(
        "Polars decode and gather (floor of a shuffle)",
        partial(feeds.decode_and_gather, files),
        rows,
    )
    for way, (shuffle, size) in WAYS.items():
        ours = feeds.open_loader(files, size, shuffle=shuffle, device="cpu")
        yield iterated(f"{OURS} {way}", ours.__iter__, rows)
        if merlin is not None:
            epoch = f"{size} {'shuffled' if shuffle else 'ordered'}"
            name = f"Merlin's dataloader 23.08 {way}"
            yield Epochs(name, partial(ask, merlin, epoch), rows, is_elsewhere=True)
        hand = partial(feeds.by_hand, files, size, shuffle=shuffle)
        yield iterated(f"pyarrow by hand {way}", hand, rows)
        records = feeds.prebatched(feeds.make_prebatched(folder, files, size), shuffle=shuffle)
        yield iterated(f"TFRecord prebatched {way}", records.__iter__, rows)
    sample, few = feeds.make_tfrecord(folder, files)
    records = feeds.windowed(sample, size, epochs=1)  # in the last way
    yield Epochs(f"TFRecord windowed {way}", partial(count_rows, records), few)


def in_frameworks(files: list[Path], rows: int, device: str) -> Iterator[Epochs]:
    """Our loaders, that of Keras first."""
    where = "cpu" if device == "cpu" else "gpu:0"
    kinds: list[Any] = [KerasSequenceLoader, ArrayLoader]
    kinds += [loader.TorchLoader] if find_spec("torch") else []
    kinds += [loader.JaxLoader] if find_spec("jax") else []
    for way, (shuffle, size) in WAYS.items():
        for kind in kinds:
            ours = feeds.open_loader(files, size, kind=kind, shuffle=shuffle, device=where)
            yield iterated(f"{kind.__name__} {way}", ours.__iter__, rows)


def on_gpu(files: list[Path], rows: int, *, lists: bool) -> Iterator[Epochs]:
    """The contestants on a GPU."""
    yield Epochs("cuDF decode only (limit)", partial(feeds.decode_on_gpu, files), rows)
    for way, (shuffle, size) in WAYS.items():
        if shuffle or not lists:
            batches = feeds.open_loader(files, size, lists=lists, shuffle=shuffle)
            yield Epochs(f"compiled loop {way}", compiled_loop(batches, rows), rows)
            yield Epochs(f"Python loop {way}", partial(count_rows, batches), rows)


def conversions(folder: Path, files: list[Path], rows: int) -> Iterator[Epochs]:
    """Conversions of TFRecord, after decoding and reading alone."""
    sample, few = feeds.make_tfrecord(folder, files)
    records = [str(sample)] * max(rows // few, 1)

    def raw() -> tf.data.Dataset:
        return tf.data.TFRecordDataset(records).batch(8192)

    def decode() -> int:
        batches = raw().prefetch(1)
        return sum(len(tf.io.parse_example(batch, FEATURES)["label"]) for batch in batches)

    def convert(features: Any = None) -> int:
        with tempfile.TemporaryDirectory(dir=folder) as out:
            made = convert_tfrecords_to_parquet(records, f"{out}/parquet", features)
            return sum(pq.read_metadata(file).num_rows for file in made)

    works: dict[str, Callable[[], int]] = {
        "decode": decode,
        "read": lambda: sum(map(len, raw())),
        "convert": convert,
        "convert, features described": partial(convert, FEATURES),
    }
    for name, work in works.items():
        yield Epochs(name, work, few * len(records))


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


def first_batch_ms(files: list[Path], batch_size: int, rounds: int) -> float:
    """Median milliseconds until an epoch's first batch is there."""
    batches = feeds.open_loader(files, batch_size)

    def first() -> None:
        _, y = next(iter(batches))
        feeds.wait(y)

    return statistics.median([timed(first, 1).seconds for _ in range(rounds + 1)][1:]) * 1e3


def print_race(title: str, racers: list[Epochs], rounds: int) -> None:
    """Compare what they read, let them take turns, and print a table."""
    totals = {racer.name: add_up(racer.batches()) for racer in racers if racer.batches}
    if len({*totals.values()}) > 1:
        raise SystemExit(f"Expected the same rows, ids and floats of all. Received: {totals}.")
    race(racers, rounds)
    keras = [racer for racer in racers if racer.name.startswith(OURS)]
    rows = []
    for racer in racers:
        same_way = (k for k in keras if racer.name.endswith(k.name.removeprefix(OURS)))
        row: dict[str, Any] = {"": racer.name, "M rows/s": racer.rate / 1e6}
        for what, base in {"of the first": racers[0], "of Keras'": next(same_way, None)}.items():
            row |= {what: "", f"{what}, processor": ""}
            if base:
                row[what] = racer.against(base)
            if base and not racer.is_elsewhere:
                row[f"{what}, processor"] = racer.against(base, "processor")
        rows.append(row)
    show(f"{title}, median of {rounds} rounds", rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    counts = {"rows": 4_000_000, "rounds": 5}
    parser = options(__doc__, devices=True, files=True, **counts, frameworks=False, tfrecords=False)
    parsed = parser.parse_args(arguments)
    use(parsed.device)
    rows, rounds = parsed.rows, parsed.rounds
    files = data.clicks(parsed.folder, rows, device=parsed.device)
    title = f"{rows:,} rows"
    if parsed.frameworks:
        print_race(title, [*in_frameworks(files, rows, parsed.device)], rounds)
    elif parsed.tfrecords:
        print_race(title, [*conversions(parsed.folder, files, rows)], rounds)
    elif parsed.device == "cpu":
        pipe = subprocess.PIPE
        with (
            subprocess.Popen([*PEERS, "loader", *files], stdin=pipe, stdout=pipe, text=True)
            if PEERS[0].exists()
            else contextlib.nullcontext()
        ) as merlin:
            print_race(title, [*on_cpu(parsed.folder, files, rows, merlin)], rounds)
    else:
        print_race(title, [*on_gpu(files, rows, lists=False)], rounds)
        first = [first_batch_ms(files, size, rounds) for size in BATCH_SIZES]
        print("\nthe first batch is there after {:.1f} and {:.1f} ms".format(*first))
        rows //= 2
        files = data.clicks(parsed.folder, rows, device="gpu", lists=True)
        print_race(
            f"{rows:,} rows, three 10-hot lists more", [*on_gpu(files, rows, lists=True)], rounds
        )


if __name__ == "__main__":
    main()
