"""Stands in for cuDF where there is no GPU: rows as the GPU path takes them, made by Polars."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import tensorflow as tf

from loader.files.layout import BatchColumn, BatchLayout
from loader.files.parquet_files import ColumnType
from loader.gpu.blocks import DeviceBlocks
from loader.gpu.column_matrix import BatchFormat, GpuRows, carrier, widened
from loader.gpu.transport import DeviceTransport
from loader.opening.device import open_device

LAYOUT = BatchLayout(
    (
        BatchColumn("small", ColumnType("int8")),
        BatchColumn("id", ColumnType("int32")),
        BatchColumn("long", ColumnType("int64")),
        BatchColumn("genres", ColumnType("int32", is_list=True)),
        BatchColumn("price", ColumnType("float32")),
        BatchColumn("exact", ColumnType("float64")),
        BatchColumn("tags", ColumnType("int64", is_list=True), width=3),
    ),
    (BatchColumn("label", ColumnType("bool")),),
)


def make_frame(rows: int) -> pl.DataFrame:
    random = np.random.default_rng(rows)
    lists = lambda low, high, most: [  # noqa: E731
        random.integers(low, high, n).tolist() for n in random.integers(0, most + 1, rows)
    ]
    return pl.DataFrame(
        {
            "small": random.integers(-128, 128, rows).astype(np.int8),
            # Bit patterns that are NaN to the float that carries them.
            "id": random.integers(-(2**31), 2**31, rows).astype(np.int32),
            "long": random.integers(-(2**63), 2**63 - 1, rows),
            "genres": pl.Series(lists(-(2**31), 2**31, 5), dtype=pl.List(pl.Int32)),
            "price": random.standard_normal(rows).astype(np.float32),
            "exact": random.standard_normal(rows),
            "tags": pl.Series(lists(-(2**63), 2**63 - 1, 3), dtype=pl.List(pl.Int64)),
            "label": random.random(rows) < 0.5,
        }
    )


def carried(values, dtype: str) -> np.ndarray:
    return np.asarray(values).astype(widened(dtype)).view(carrier(dtype))


def wanted_rows(frame: pl.DataFrame, chunk, seed) -> pl.DataFrame:
    """The wanted rows of a chunk of the frame, in its order."""
    rows = [np.arange(piece.start, piece.start + piece.rows) for piece in chunk.pieces]
    order = np.concatenate(rows)
    if seed is not None:
        order = np.random.default_rng([*seed, chunk.pieces[0].number]).permutation(order)
    return frame[order[chunk.skip : chunk.stop]]


def assert_batch_is(batch, part: pl.DataFrame) -> None:
    """Every column of a batch of `LAYOUT` has the values of these rows, bit for bit."""
    x, y = batch
    assert list(x) == [column.name for column in LAYOUT.features]
    for name in ("small", "id", "long", "price", "exact"):
        assert x[name].dtype.name == str(part[name].to_numpy().dtype)
        np.testing.assert_array_equal(x[name].numpy()[:, 0], part[name].to_numpy())
    np.testing.assert_array_equal(y.numpy()[:, 0], part["label"].to_numpy())
    values, lengths = x["genres"]
    assert lengths.dtype == tf.int32
    np.testing.assert_array_equal(lengths.numpy()[:, 0], part["genres"].list.len().to_numpy())
    expected = part["genres"].explode(empty_as_null=False).to_numpy()
    np.testing.assert_array_equal(values.numpy()[:, 0], expected)
    dense = [(row + [0, 0, 0])[:3] for row in part["tags"].to_list()]
    np.testing.assert_array_equal(x["tags"].numpy(), dense)


class PolarsReader:
    """Gives the rows that cuDF would."""

    order_by = "polars"

    def __init__(self, batch_format: BatchFormat, frame: pl.DataFrame) -> None:
        self.batch_format = batch_format
        self.frame = frame

    def read(self, chunks, seed):
        return self.rows(pl.concat(wanted_rows(self.frame, chunk, seed) for chunk in chunks))

    def read_ahead(self, groups, seed):
        return (self.read(group, seed) for group in groups)

    def rows(self, part: pl.DataFrame) -> GpuRows:
        matrices = [
            np.stack(
                [
                    carried(part[m.name].list.len() if m.is_lengths else part[m.name], m.dtype)
                    for m in members
                ],
                axis=1,
            )
            for members in self.batch_format.matrices.values()
        ]
        padded = []
        for column in self.batch_format.padded:
            dense = np.zeros((len(part), column.width), column.type.dtype)
            for row, values in enumerate(part[column.name].to_list()):
                dense[row, : len(values)] = values
            padded.append(dense.view(carrier(column.type.dtype)))
        values = [
            carried(part[c.name].explode(empty_as_null=False), c.type.dtype)[:, None]
            for c in self.batch_format.ragged
        ]
        return GpuRows(*(tuple(map(tf.constant, found)) for found in (matrices, padded, values)))


def open_as_gpu(frame: pl.DataFrame):
    """A stand-in for `loader.opening.device.open_device`: the GPU path behind cuDF, on the CPU."""

    def opened(_, data):
        batch_format = BatchFormat(data.layout)
        transport = DeviceTransport(batch_format, "/cpu:0")
        source = DeviceBlocks(PolarsReader(batch_format, frame), batch_format, "/cpu:0")
        return replace(open_device("cpu", data), name="gpu:0", source=source, transport=transport)

    return opened
