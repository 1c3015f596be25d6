"""What the loader is measured against: the limit, and the ways that people go otherwise."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import tensorflow as tf

from benchmarks.loader_data import CATS, CONTS, ROW_GROUP

SAMPLE = 20_000  # of tf.train.Example, which take Python a millisecond each to write
MERLIN = Path(".venv-nvtabular/bin/python")


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


def decode_and_gather(files: list[Path]) -> Iterator[pl.DataFrame]:
    """The floor of a shuffle: Polars reads, and gathers the rows of each row group in one order."""
    order = pl.int_range(ROW_GROUP, dtype=pl.UInt32, eager=True).shuffle(seed=0)
    for frame in decode_only(files):
        for group in frame.iter_slices(ROW_GROUP):
            yield group[order.filter(order < len(group)) if len(group) < ROW_GROUP else order]


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


def make_prebatched(folder: Path, files: list[Path], batch_size: int) -> Path:
    """Write whole batches as records: the bytes of each column, one after another."""
    path = folder / f"{files[0].stem}_{batch_size}.prebatched"
    if not path.exists():
        partial = path.with_suffix(".partial")
        with tf.io.TFRecordWriter(str(partial)) as writer:
            frames = (pl.read_parquet(file) for file in files)
            carry = next(frames)
            for frame in frames:
                carry = _write_batches(writer, pl.concat([carry, frame]), batch_size)
            _write_batches(writer, carry, batch_size, last=True)
        partial.rename(path)
    return path


def _write_batches(
    writer: Any, frame: pl.DataFrame, batch_size: int, *, last: bool = False
) -> pl.DataFrame:
    stop = len(frame) if last else len(frame) // batch_size * batch_size
    for start in range(0, stop, batch_size):
        batch = frame[start : min(start + batch_size, stop)]
        writer.write(b"".join(batch[name].to_numpy().tobytes() for name in batch.columns))
    return frame[stop:]


def prebatched(path: Path, *, shuffle: bool) -> tf.data.Dataset:
    """Records of whole batches, decoded from raw bytes; shuffled within a window of batches."""
    names = [*CONTS, *CATS, "label"]

    def decode(record: tf.Tensor) -> Any:
        rows = tf.strings.length(record) // (4 * len(names))
        columns = {}
        for number, name in enumerate(names):
            part = tf.strings.substr(record, number * 4 * rows, 4 * rows)
            dtype = tf.float32 if name in CONTS else tf.int32
            columns[name] = tf.reshape(tf.io.decode_raw(part, dtype), (-1, 1))
        return columns, columns.pop("label")

    records = tf.data.TFRecordDataset(str(path))
    if shuffle:
        records = records.shuffle(16)
    return records.map(decode, num_parallel_calls=2).prefetch(2)


class Merlin:
    """Merlin's dataloader in a process of its own, as it needs its own environment.

    It lives until it is closed and waits between the epochs that it is asked for, so that it can
    take turns with the others.

    Args:
        files: what it reads.
    """

    def __init__(self, files: list[Path]) -> None:
        self._process = subprocess.Popen(
            [MERLIN, "benchmarks/peers/merlin_loader.py", *files],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def epoch(self, batch_size: int, *, shuffle: bool, totals: bool = False) -> dict[str, Any]:
        """Wait for one epoch; what it held is told where `totals` are asked for."""
        asked = {"batch_size": batch_size, "shuffle": shuffle, "totals": totals}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        found: dict[str, Any] = json.loads(next(iter(self._process.stdout or ())))
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # the end of its input is that of the process
