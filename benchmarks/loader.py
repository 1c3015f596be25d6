"""Rows per second of the CPU loader, against its limit and its alternatives, in one run.

    python -m benchmarks.loader [--rows 4000000] [--rounds 5] [--folder build/benchmark_loader]

The data is Criteo-like after preprocessing: 13 float32, 26 int32 and a label. The limit is Polars
reading the files and doing nothing with them. All contestants take turns, round by round, since
machines are noisy: the ratio to the limit is taken within a round, and medians are shown. Row
totals and checksums come from an epoch that is not timed.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import tensorflow as tf

from loader import KerasSequenceLoader

CONTS = [f"I{number}" for number in range(1, 14)]
CATS = [f"C{number}" for number in range(1, 27)]
CARDINALITIES = np.geomspace(10, 1_000_000, len(CATS)).astype(int)
FILES = 4
ROW_GROUP = 500_000
SAMPLE = 20_000  # of tf.train.Example, which take Python a millisecond each to write
Epoch = Callable[[], Iterable[Any]]


def make_data(folder: Path, rows: int) -> list[Path]:
    """Write the parquet files, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{rows}_{number}.parquet" for number in range(FILES)]
    random = np.random.default_rng(0)
    for file in files:
        if not file.exists():
            count = rows // FILES
            columns = {name: random.standard_normal(count, np.float32) for name in CONTS}
            for name, size in zip(CATS, CARDINALITIES, strict=True):
                columns[name] = (random.pareto(1.0, count).astype(np.int64) % size).astype(np.int32)
            columns["label"] = (random.random(count) < 0.25).astype(np.int32)
            partial = file.with_suffix(".partial")
            pl.DataFrame(columns).write_parquet(
                partial, compression="snappy", row_group_size=ROW_GROUP
            )
            partial.rename(file)
    return files


def make_tfrecord(folder: Path, files: list[Path]) -> Path:
    """Write a sample as tf.train.Example, as the windowed loader reads them."""
    path = folder / "sample.tfrecord"
    if not path.exists():
        frame = pl.read_parquet(files[0], n_rows=SAMPLE)
        partial = path.with_suffix(".partial")
        with tf.io.TFRecordWriter(str(partial)) as writer:
            for row in frame.iter_rows(named=True):
                writer.write(_example(row).SerializeToString())
        partial.rename(path)
    return path


def _example(row: dict[str, Any]) -> Any:
    features = {}
    for name, value in row.items():
        if name in CONTS:
            feature = tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
        else:
            feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        features[name] = feature
    return tf.train.Example(features=tf.train.Features(feature=features))


def decode_only(files: list[Path]) -> Iterator[pl.DataFrame]:
    """The limit: Polars reads each file, and that is all."""
    for file in files:
        yield pl.read_parquet(file)


def by_hand(files: list[Path], batch_size: int, *, shuffle: bool) -> Iterator[Any]:
    """What one writes oneself: pyarrow, row group by row group. Drops no rows, mixes no groups."""
    random = np.random.default_rng(0)
    for file in files:
        parquet = pq.ParquetFile(file)
        for number in range(parquet.num_row_groups):
            table = parquet.read_row_group(number)
            columns = {name: table.column(name).to_numpy() for name in table.column_names}
            if shuffle:
                order = random.permutation(len(table))
                columns = {name: column[order] for name, column in columns.items()}
            for start in range(0, len(table), batch_size):
                x = {
                    name: tf.constant(column[start : start + batch_size, None])
                    for name, column in columns.items()
                }
                yield x, x.pop("label")


def windowed(path: Path, batch_size: int) -> Any:
    """TensorFlow's own loader: TFRecord of tf.train.Example, shuffled in a window."""
    spec = {name: tf.io.FixedLenFeature((1,), tf.float32) for name in CONTS}
    spec |= {name: tf.io.FixedLenFeature((1,), tf.int64) for name in [*CATS, "label"]}
    return tf.data.experimental.make_batched_features_dataset(
        str(path), batch_size, spec, label_key="label", num_epochs=1, reader_num_threads=2
    )


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


def contestants(files: list[Path], tfrecord: Path) -> dict[str, Epoch]:
    """Everything that is timed, by name."""
    found: dict[str, Epoch] = {"polars decode only (limit)": lambda: decode_only(files)}
    for batch_size in (65_536, 16_384):
        for shuffle in (False, True):
            label = f"{batch_size:,}{', shuffled' if shuffle else ''}"
            ours = make_loader(files, batch_size, shuffle=shuffle)
            found[f"KerasSequenceLoader {label}"] = ours.__iter__
            by = functools.partial(by_hand, files, batch_size, shuffle=shuffle)
            found[f"pyarrow by hand {label}"] = by
    found["TFRecord windowed 16,384, shuffled"] = windowed(tfrecord, 16_384).__iter__
    return found


def make_model() -> keras.Model:
    """A small click model: one embedding table for all columns and three dense layers."""
    inputs = {name: keras.Input((1,), name=name, dtype="float32") for name in CONTS}
    inputs |= {name: keras.Input((1,), name=name, dtype="int32") for name in CATS}
    ids = keras.layers.concatenate([inputs[name] for name in CATS]) % 10_000
    embedded = keras.layers.Flatten()(keras.layers.Embedding(10_000, 8)(ids))
    hidden = keras.layers.concatenate([embedded, *(inputs[name] for name in CONTS)])
    for _ in range(3):
        hidden = keras.layers.Dense(128, "relu")(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(hidden))
    model.compile("sgd", "binary_crossentropy")
    return model


def fit_ratio(files: list[Path], batch_size: int, steps: int) -> float:
    """`model.fit` from the loader, relative to the same steps on a batch already in memory."""
    data = make_loader(files, batch_size, shuffle=True)
    model = make_model()
    resident = tf.data.Dataset.from_tensors(data.peek()).repeat(steps)
    ratios = []
    for _ in range(6):
        times = []
        for batches in (resident, data):
            start = time.perf_counter()
            model.fit(batches, steps_per_epoch=steps, verbose=0, shuffle=False)
            times.append(time.perf_counter() - start)
        ratios.append(times[0] / times[1])
    return statistics.median(ratios[1:])  # the first round compiles


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("build/benchmark_loader"))
    arguments = parser.parse_args()
    files = make_data(arguments.folder, arguments.rows)
    racers = contestants(files, make_tfrecord(arguments.folder, files))
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
    print(f"\nmodel.fit with the loader: {fit_ratio(files, 16_384, 60):.2f} of the same steps")
    print("on a batch in memory (batch 16,384, an embedding table and three dense layers)")


if __name__ == "__main__":
    main()
