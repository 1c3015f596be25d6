"""Shuffled batches take the rows that the plan says, run where there is no GPU."""

from __future__ import annotations

import gc
import itertools
import weakref

import numpy as np
import polars as pl
import pytest
from gpu_rows import LAYOUT, PolarsReader, assert_batch_is, make_frame, wanted_rows

from loader.gpu.blocks import DeviceBlocks
from loader.gpu.column_matrix import BatchFormat
from loader.gpu.transport import DeviceTransport
from loader.order.epoch_plan import Chunk, Piece
from loader.order.mixing import mix

SEED = (3, 1)
FRAME = make_frame(900)
FORMAT = BatchFormat(LAYOUT)
# Rows of each chunk, the number of chunks that begin together, rows in a batch, chunks in a read.
CASES = [
    ([100, 70, 90, 64, 33, 48, 200], 2, 32, 1),
    ([100, 70, 90, 64, 33, 48, 200], 2, 32, 3),
    ([5] * 30, 4, 16, 1),  # batches of more chunks than begin together
    ([37] * 12, 5, 20, 2),  # more spans than the smallest function takes
    ([40, 41], 4, 64, 8),  # all in one block
    ([30, 31, 32], 1, 1, 1),
    ([1, 300, 2, 1, 17], 2, 128, 2),  # a batch at aligned addresses
]


@pytest.fixture(scope="module")
def blocks():
    return DeviceBlocks(PolarsReader(FORMAT, FRAME), FORMAT, "/cpu:0")


def make_chunks(chunk_rows):
    """Chunks of two pieces, where they have two rows, that are not in the order of the frame."""
    starts = [0, *itertools.accumulate(chunk_rows)]
    chunks = []
    for number, (start, rows) in enumerate(zip(starts, chunk_rows, strict=False)):
        half = rows // 2
        pieces = [
            Piece("f", 2 * number + 1, start + half, rows - half, 2 * number + 1),
            Piece("f", 2 * number, start, half, 2 * number),
        ]
        chunks.append(Chunk(tuple(piece for piece in pieces if piece.rows)))
    return chunks


def groups_of(mixture, per_read):
    chunks = [*mixture.chunks.values()]
    return [chunks[first : first + per_read] for first in range(0, len(chunks), per_read)]


def batches_of(blocks, mixture, batch_size, per_read):
    groups = groups_of(mixture, per_read)
    for block in blocks.mixed(groups, mixture, batch_size, SEED):
        most = max(sum(chunk.wanted for chunk in group) for group in groups)
        assert len(block.parts) * batch_size <= max(most, batch_size)
        for batch in block.batches(batch_size):
            for part, expected in zip(batch.parts, FORMAT.specs, strict=True):
                assert part.dtype == expected.dtype
                assert part.shape.is_compatible_with(expected.shape)
            yield DeviceTransport(FORMAT, "/cpu:0").to_batch(batch)


def planned(mixture, frame=FRAME):
    """The rows of each batch, from the plan and the order of each chunk."""
    rows = {number: wanted_rows(frame, chunk, SEED) for number, chunk in mixture.chunks.items()}
    for batch in mixture.batches:
        yield pl.concat(rows[run.chunk][run.start : run.stop] for run in batch.runs)


def assert_planned(received, expected):
    received, expected = list(received), list(expected)
    for batch, part in zip(received, expected, strict=True):
        assert_batch_is(batch, part)
    return expected


@pytest.mark.parametrize(("chunk_rows", "width", "batch_size", "per_read"), CASES)
def test_batches_are_those_of_the_plan_bit_for_bit(blocks, chunk_rows, width, batch_size, per_read):
    ours, plan = (mix(make_chunks(chunk_rows), None, width, batch_size, 0) for _ in range(2))
    expected = assert_planned(batches_of(blocks, ours, batch_size, per_read), planned(plan))
    everything = FRAME[: sum(chunk_rows)]
    assert sorted(pl.concat(expected)["long"]) == sorted(everything["long"])
    sizes = [len(part) for part in expected]
    assert sizes[:-1] == [batch_size] * (len(sizes) - 1)
    assert 0 < sizes[-1] <= batch_size


@pytest.mark.parametrize("skip", [1, 4, 11, 18])
def test_a_resumed_mixture_is_the_rest_of_it(blocks, skip):
    chunk_rows, width, batch_size, per_read = CASES[1]
    chunks = make_chunks(chunk_rows)
    whole, rest = (mix(chunks, None, width, batch_size, start) for start in (0, skip))
    expected = itertools.islice(planned(whole), skip, None)
    assert_planned(batches_of(blocks, rest, batch_size, per_read), expected)


def test_a_rank_takes_its_part_of_chunks_and_a_row_again(blocks):
    first, *whole, last = make_chunks([80, 50, 60, 70, 90])
    share = [Chunk(first.pieces, 23), *whole, Chunk(last.pieces, 0, 41)]
    again = Chunk((Piece("f", 1, 40, 1, 1),))
    ours, plan = (mix(share, again, 2, 64, 0) for _ in range(2))
    expected = assert_planned(batches_of(blocks, ours, 64, 2), planned(plan))
    assert expected[-1]["long"][-1] == FRAME["long"][40]
    assert sum(map(len, expected)) == 57 + 50 + 60 + 70 + 41 + 1


def test_lists_without_elements_are_dealt():
    empty = pl.Series([[]] * len(FRAME))
    frame = FRAME.with_columns(
        genres=empty.cast(pl.List(pl.Int32)), tags=empty.cast(pl.List(pl.Int64))
    )
    ours, plan = (mix(make_chunks([60, 50, 40, 30]), None, 2, 32, 0) for _ in range(2))
    blocks = DeviceBlocks(PolarsReader(FORMAT, frame), FORMAT, "/cpu:0")
    assert_planned(batches_of(blocks, ours, 32, 1), planned(plan, frame))


class CountingReader(PolarsReader):
    """Knows which of its rows are alive, and what they are made of."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.given = []

    def read(self, chunks, seed):
        rows = super().read(chunks, seed)
        self.given.append(weakref.ref(rows))
        return rows

    def alive(self):
        gc.collect()
        return [number for number, rows in enumerate(self.given) if rows() is not None]


@pytest.mark.parametrize("per_read", [pytest.param(1, marks=pytest.mark.long), 2])
def test_memory_is_given_back_with_a_reads_last_chunk(per_read):
    reader = CountingReader(FORMAT, FRAME)
    blocks = DeviceBlocks(reader, FORMAT, "/cpu:0")
    ours, plan = (mix(make_chunks([64] * 8), None, 2, 32, 0) for _ in range(2))
    left = {number: chunk.wanted for number, chunk in plan.chunks.items()}
    for block in blocks.mixed(groups_of(ours, per_read), ours, 32, SEED):
        for batch in itertools.islice(plan.batches, len(block.parts)):
            begun = batch.begun
            for run in batch.runs:
                left[run.chunk] -= run.stop - run.start
        reads = {number // per_read for number in range(begun) if left[number]}
        assert reader.alive() == sorted(reads)
    assert not any(left.values())


def test_mixed_batches_are_no_views_of_what_cudf_takes_back():
    class Reader(PolarsReader):
        given = ()

        def read(self, chunks, seed):
            rows = super().read(chunks, seed)
            self.given += (*rows.matrices, *rows.padded, *rows.values)
            return rows

    reader = Reader(FORMAT, FRAME)
    mixture = mix([*make_chunks([128])], None, 1, 128, 0)
    (block,) = DeviceBlocks(reader, FORMAT, "/cpu:0").mixed(
        groups_of(mixture, 1), mixture, 128, SEED
    )
    (batch,) = block.batches(128)
    assert batch.columns()
    for part, given in itertools.product(batch.parts, reader.given):
        assert not np.shares_memory(np.from_dlpack(part), np.from_dlpack(given))
