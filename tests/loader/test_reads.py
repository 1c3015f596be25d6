"""How much is read at once: little for who waits for a first batch, then as much as is allowed."""

from __future__ import annotations

import pytest

from loader.epochs import Epochs, Settings
from loader.plan import Piece, Share


class Source:
    """Notes what it is asked to read at once, and gives nothing."""

    order_by = "test"

    def __init__(self, chunks_per_read):
        self.chunks_per_read = chunks_per_read
        self.groups = []

    def blocks(self, groups, batch_size, seed):
        del batch_size, seed
        self.groups = [[p.start for chunk in group for p in chunk.pieces] for group in groups]
        return iter(())


def read_at_once(
    count: int, rows: int, max_rows: int, parts_per_chunk: int = 1, chunks_per_read: int = 8
):
    pieces = [Piece("a.parquet", n, n * rows, rows, n) for n in range(count)]
    settings = Settings(10, False, 0, None, parts_per_chunk, max_rows, False, Share())
    source = Source(chunks_per_read)
    with pytest.raises(StopIteration):
        next(Epochs(pieces, source, settings).stream())
    flat = [start for group in source.groups for start in group]
    assert flat == [piece.start for piece in pieces], "rows are lost, doubled or out of order"
    return [len(group) for group in source.groups]


def test_the_first_batch_waits_for_few_row_groups():
    assert read_at_once(20, 100, 10_000) == [2, 8, 8, 2]
    assert read_at_once(5, 100, 10_000, chunks_per_read=2) == [2, 2, 1]


def test_no_more_is_read_at_once_than_the_buffer_holds():
    assert read_at_once(10, 100, 399) == [2, 3, 3, 2]
    assert read_at_once(3, 100, 100) == [1, 1, 1]


def test_what_is_shuffled_together_is_read_together():
    assert read_at_once(12, 100, 10_000, parts_per_chunk=3) == [6, 6]
