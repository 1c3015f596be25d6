"""Ways to feed a model with prepared clicks: our loader, its limits, and what people use otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import tensorflow as tf

from benchmarks.data import CATS, CONTS, LISTS
from loader import KerasSequenceLoader

SAMPLE = 20_000  # of tf.train.Example, which take Python a millisecond each to write


def open_loader(
    files: list[Any],
    batch_size: int,
    *,
    kind: Callable[..., Any] = KerasSequenceLoader,
    lists: bool = False,
    **more: Any,
) -> Any:
    """Ours, for Keras or another framework."""
    cats = CATS + (LISTS if lists else [])
    settings: dict[str, Any] = {"cat_names": cats, "cont_names": CONTS, "seed": 0}
    return kind([*files], batch_size, ["label"], **settings | more)


def with_int64(data: Any) -> tf.data.Dataset:
    """The batches with ids as int64, which Keras' own layers leave on the GPU.

    Ids in int32 they move through the host.
    """

    def widen(tensor: tf.Tensor) -> tf.Tensor:
        return tf.cast(tensor, tf.int64) if tensor.dtype == tf.int32 else tensor

    return data.map(lambda x, y: (tf.nest.map_structure(widen, x), y))


def wait(tensor: Any) -> None:
    """Wait for the GPU."""
    tf.reshape(tf.cast(tensor, tf.float32), [-1])[:1].numpy()


def decode_only(files: list[Path]) -> Iterator[pl.DataFrame]:
    """The limit on a CPU: Polars reads each file, and that is all."""
    for file in files:
        yield pl.read_parquet(file)


def decode_on_gpu(files: list[Path]) -> int:
    """The limit on a GPU: cuDF reads each file into GPU memory, and that is all; returns the rows."""
    import pylibcudf as plc  # noqa: PLC0415 - only where there is a GPU

    rows = 0
    for file in files:
        source = plc.io.types.SourceInfo([str(file)])
        options = plc.io.parquet.ParquetReaderOptions.builder(source).build()
        rows += plc.io.parquet.read_parquet(options).tbl.num_rows()
    return rows


def decode_and_gather(files: list[Path]) -> Iterator[pl.DataFrame]:
    """The floor of a shuffle: Polars reads, and gathers the rows of each row group in one order."""
    largest = max(rows_of_groups(files))
    order = pl.int_range(largest, dtype=pl.UInt32, eager=True).shuffle(seed=0)
    for frame in decode_only(files):
        for group in frame.iter_slices(largest):
            yield group[order.filter(order < len(group)) if len(group) < largest else order]


def rows_of_groups(files: list[Path]) -> list[int]:
    """The rows of each row group."""
    footers = [pq.ParquetFile(file).metadata for file in files]
    return [f.row_group(number).num_rows for f in footers for number in range(f.num_row_groups)]


def by_hand(files: list[Path], batch_size: int, *, shuffle: bool) -> Iterator[Any]:
    """A loop by hand: pyarrow, row group by row group. Drops no rows, mixes no groups."""
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


def make_tfrecord(folder: Path, files: list[Path]) -> tuple[Path, int]:
    """Write a sample as tf.train.Example, as the windowed loader reads them; its file and rows."""
    path, rows = folder / f"{files[0].stem}.tfrecord", SAMPLE
    frame = pl.read_parquet(files[0], n_rows=rows)
    if not path.exists():
        partial = path.with_suffix(".partial")
        with tf.io.TFRecordWriter(str(partial)) as writer:
            for row in frame.iter_rows(named=True):
                writer.write(_example(row).SerializeToString())
        partial.rename(path)
    return path, len(frame)


def _example(row: dict[str, Any]) -> Any:
    train = tf.train
    return train.Example(
        features=train.Features(
            feature={
                name: train.Feature(float_list=train.FloatList(value=[value]))
                if name in CONTS
                else train.Feature(int64_list=train.Int64List(value=[value]))
                for name, value in row.items()
            }
        )
    )


def windowed(path: Path, batch_size: int, *, epochs: int | None, threads: int = 2) -> Any:
    """TensorFlow's own loader: TFRecord of tf.train.Example, shuffled in a window."""
    spec = {name: tf.io.FixedLenFeature((1,), tf.float32) for name in CONTS}
    spec |= {name: tf.io.FixedLenFeature((1,), tf.int64) for name in [*CATS, "label"]}
    return tf.data.experimental.make_batched_features_dataset(
        str(path), batch_size, spec, label_key="label", num_epochs=epochs,
        reader_num_threads=threads, parser_num_threads=threads,
    )  # fmt: skip


def make_prebatched(folder: Path, files: list[Path], batch_size: int) -> Path:
    """Write whole batches as records: the bytes of each column, one after another."""
    path = folder / f"{files[0].stem}_{batch_size}.prebatched"
    if not path.exists():
        partial = path.with_suffix(".partial")
        with tf.io.TFRecordWriter(str(partial)) as writer:
            for batch in pl.read_parquet(files).iter_slices(batch_size):
                writer.write(b"".join(column.to_numpy().tobytes() for column in batch))
        partial.rename(path)
    return path


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


def endless(data: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
    """Whole batches, epoch after epoch."""
    return data.filter(lambda _, y: tf.shape(y)[0] == batch_size).repeat()
