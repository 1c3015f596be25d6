"""The GPU path behind cuDF, run where there is no GPU: rows come from Polars here."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
import pytest
import tensorflow as tf
from gpu_rows import LAYOUT, PolarsReader, assert_batch_is, make_frame

from loader.errors import LoaderError
from loader.files.layout import BatchColumn, BatchLayout
from loader.files.parquet_files import ColumnType
from loader.gpu.blocks import DeviceBlocks
from loader.gpu.column_matrix import BatchFormat
from loader.gpu.transport import DeviceTransport
from loader.order.epoch_plan import Chunk, Piece


def batches_of(frame: pl.DataFrame, chunk_rows: list[int], batch_size: int):
    batch_format = BatchFormat(LAYOUT)
    ends = list(itertools.accumulate(chunk_rows))
    chunks = [
        Chunk((Piece("f", n, end - size, size, n),))
        for n, (end, size) in enumerate(zip(ends, chunk_rows, strict=True))
    ]
    blocks = DeviceBlocks(PolarsReader(batch_format, frame), batch_format, "/cpu:0")
    transport = DeviceTransport(batch_format, "/cpu:0")
    groups = [group for group in (chunks[:2], chunks[2:]) if group]
    for block in blocks.in_order(groups, batch_size):
        for batch in block.batches(batch_size):
            for part, expected in zip(batch.parts, batch_format.specs, strict=True):
                assert part.dtype == expected.dtype
                assert part.shape.is_compatible_with(expected.shape)
            yield transport.to_batch(batch)


@pytest.mark.parametrize(
    ("chunk_rows", "batch_size"),
    [
        ([100], 100),
        ([64, 64, 64], 64),
        ([7, 5, 90], 32),
        ([3, 4, 5, 6], 64),
        ([1, 200, 1], 50),
        ([20, 120], 1),  # so many batches that their lists are cut in several calls
    ],
)
def test_batches_hold_every_row_in_order_bit_for_bit(chunk_rows, batch_size):
    rows = sum(chunk_rows)
    frame = make_frame(rows)
    batches = list(batches_of(frame, chunk_rows, batch_size))
    sizes = [len(y) for _, y in batches]
    assert sizes == [batch_size] * (rows // batch_size) + (
        [rows % batch_size] if rows % batch_size else []
    )
    start = 0
    for batch, size in zip(batches, sizes, strict=True):
        assert_batch_is(batch, frame[start : start + size])
        start += size


@pytest.mark.parametrize(("columns", "batch_size"), [(1, 64), (8, 1), (2, 64)])
def test_batches_are_no_views_of_what_cudf_takes_back(columns, batch_size):
    names = [f"c{number}" for number in range(columns)]
    layout = BatchLayout(tuple(BatchColumn(name, ColumnType("int64")) for name in names), ())
    batch_format = BatchFormat(layout)

    class Reader(PolarsReader):
        def read(self, chunks, seed):
            self.given = super().read(chunks, seed)
            return self.given

    reader = Reader(batch_format, pl.DataFrame({name: range(192) for name in names}))
    blocks = DeviceBlocks(reader, batch_format, "/cpu:0")
    chunk = Chunk((Piece("f", 0, 0, 192, 0),))
    for block in blocks.in_order([[chunk]], batch_size):
        for batch in block.batches(batch_size):
            (part,) = batch.parts
            memory = [np.from_dlpack(tensor) for tensor in (part, reader.given.matrices[0])]
            assert not np.shares_memory(*memory)


@pytest.mark.parametrize("count", [40, 128])  # 128 values of any width end at aligned addresses
def test_a_compiled_function_gets_the_same_batch(count):
    batch_format = BatchFormat(LAYOUT)
    frame = make_frame(count)
    (block,) = DeviceBlocks(PolarsReader(batch_format, frame), batch_format, "/cpu:0").in_order(
        [[Chunk((Piece("f", 0, 0, count, 0),))]], count
    )
    (batch,) = block.batches(count)
    assert bool(batch.columns()) is (count == 128)
    transport = DeviceTransport(batch_format, "/cpu:0")
    compiled = tf.function(
        lambda *parts: tf.nest.pack_sequence_as(
            transport.element_spec, parts, expand_composites=True
        )
    )
    both = (transport.to_batch(batch), compiled(*batch.parts))
    tf.nest.map_structure(np.testing.assert_array_equal, *both)


def test_padded_lists_alone_make_batches():
    layout = BatchLayout((BatchColumn("tags", ColumnType("int32", is_list=True), width=2),), ())
    batch_format = BatchFormat(layout)
    frame = pl.DataFrame({"tags": pl.Series([[7], [], [1, 2]] * 64, dtype=pl.List(pl.Int32))})
    blocks = DeviceBlocks(PolarsReader(batch_format, frame), batch_format, "/cpu:0")
    chunks = [[Chunk((Piece("f", 0, 0, 192, 0),))]]
    batches = [b for block in blocks.in_order(chunks, 96) for b in block.batches(96)]
    first, second = (DeviceTransport(batch_format, "/cpu:0").to_batch(batch) for batch in batches)
    for batch in (first, second):
        np.testing.assert_array_equal(batch["tags"], [[7, 0], [0, 0], [1, 2]] * 32)


@pytest.mark.parametrize("dtype", ["string", "float16"])
def test_what_a_gpu_does_not_carry_is_named(dtype):
    layout = BatchLayout((BatchColumn("city", ColumnType(dtype)),), ())
    with pytest.raises(LoaderError, match=r"column 'city'.*device=\"cpu\""):
        BatchFormat(layout)
