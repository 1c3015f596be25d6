"""Ways to feed a model: our loader, its limits, what people use otherwise, and batches that stay in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import tensorflow as tf

from benchmarks.data import CATS, CONTS, LISTS, shaped_clicks
from benchmarks.models import Shape
from loader import KerasSequenceLoader
from loader.gpu.column_matrix import carrier
from loader.tensorflow.batch_spec import batch_spec
from loader.tensorflow.generator_dataset import GeneratorFunctions, StreamRegistry

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


def make_batch(shape: Shape, rows: int, ids: str, seed: int) -> tuple[dict[str, Any], Any]:
    """Features and label of one batch, as the loader gives them; some lists are empty."""
    frame = shaped_clicks(shape, rows, np.random.default_rng(seed))
    features: dict[str, Any] = {n: frame[n].to_numpy().reshape(-1, 1) for n in shape.numbers}
    for name in shape.scalars:
        features[name] = frame[name].to_numpy().astype(ids).reshape(-1, 1)
    lengths = np.full((rows, 1), shape.length, ids)
    lengths[::100] = 0
    for name in shape.multi:
        values = frame[name].explode(empty_as_null=False).to_numpy().reshape(rows, shape.length)
        features[name] = (values[lengths[:, 0] > 0].astype(ids).reshape(-1, 1), lengths)
    return features, frame["label"].to_numpy().reshape(-1, 1)


def resident(shape: Shape, rows: int, ids: str, rank: int = 0) -> tf.data.Dataset:
    """Four batches of so many rows on the GPU, if TensorFlow has one; other ones for each worker."""
    with tf.device(device_of_training()):
        return repeated(
            [
                tf.nest.map_structure(tf.convert_to_tensor, make_batch(shape, rows, ids, seed))
                for seed in range(4 * rank, 4 * rank + 4)
            ]
        )


def repeated(batches: list[Any]) -> tf.data.Dataset:
    """Batches over and over: on a GPU without leaving it, on the CPU from TensorFlow's datasets."""
    if device_of_training() == "/gpu:0":
        return resident_on_device(batches)
    datasets = map(tf.data.Dataset.from_tensors, batches)
    return reduce(tf.data.Dataset.concatenate, datasets).repeat()


def device_of_training() -> str:
    """The device on which training runs."""
    return "/gpu:0" if tf.config.get_visible_devices("GPU") else "/cpu:0"


def resident_on_device(batches: list[Any]) -> tf.data.Dataset:
    """Batches of one structure on a device, over and over, without leaving it.

    They travel as the loader's do on a GPU: ids as floats, bit for bit, since TensorFlow moves
    int32 through the host, and each batch is put together inside the function that uses it.
    """
    parts = [_carried(batch) for batch in batches]
    streams = StreamRegistry(lambda: itertools.cycle(parts))
    functions = GeneratorFunctions(streams, _Transport(batches[0]))
    dataset = functions.dataset()
    dataset.functions = functions  # which must outlive it
    return dataset


def _carried(batch: Any) -> list[tf.Tensor]:
    return [tf.bitcast(part, carrier(part.dtype.name)) for part in tf.nest.flatten(batch)]


class _Transport:
    """Tensors that are on the device already; see `loader.tensorflow.tensors.Transport`."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._dtypes = [tensor.dtype for tensor in tf.nest.flatten(batch)]
        self.device = device_of_training()
        self.specs = [
            tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype) for tensor in _carried(batch)
        ]
        self.element_spec = batch_spec(self.specs, self.to_batch)

    def arrange(self, parts: Sequence[Any]) -> list[Any]:
        """They come in the order of the specs."""
        return list(parts)

    def call(self, function: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Unlike `tf.numpy_function` this leaves tensors where they are."""
        return tf.py_function(function, inputs, [spec.dtype for spec in self.specs])

    def to_batch(self, parts: Any) -> Any:
        """The columns in their own dtypes again."""
        tensors = [tf.bitcast(*pair) for pair in zip(parts, self._dtypes, strict=True)]
        return tf.nest.pack_sequence_as(self._batch, tensors)

    def finish(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Nothing: batches are put together where they are used."""
        return dataset
