"""While rows are used, the next are shuffled and those after them decoded, and no more."""

from __future__ import annotations

import threading

import numpy as np
import polars as pl
import pytest

from loader.batches.prefetch import Prefetcher
from loader.files.layout import BatchColumn, BatchLayout
from loader.files.parquet_files import ColumnType
from loader.order.epoch_plan import Chunk, Piece
from loader.order.mixing import mix
from loader.read.cpu_blocks import HostBlocks

ROWS = 100


class Reader:
    """Gives numbered rows, and tells of each read."""

    def __init__(self, broken: int | None = None):
        self.begun = threading.Semaphore(0)
        self.count = 0
        self.seen = 0
        self.broken = broken

    def wait(self) -> bool:
        """Wait for one more read to begin."""
        self.seen += 1
        return self.begun.acquire(timeout=10)

    def read(self, pieces):
        self.count += 1
        self.begun.release()
        if any(piece.number == self.broken for piece in pieces):
            raise OSError("the disk is gone")
        starts = [piece.start for piece in pieces]
        return [pl.DataFrame({"n": np.arange(s, s + ROWS, dtype=np.int32)}) for s in starts]


def blocks(reader: Reader, width: int | None, batch_size: int = ROWS):
    """Eight row groups: in order, or so many of them mixed."""
    layout = BatchLayout((BatchColumn("n", ColumnType("int32", is_list=False)),), ())
    pieces = [Piece("a.parquet", n, n * ROWS, ROWS, n) for n in range(8)]
    chunks = [Chunk((piece,)) for piece in pieces]
    groups = [[chunk] for chunk in chunks]
    source = HostBlocks(reader, layout)
    if width is None:
        return source.in_order(groups, batch_size)
    mixture = mix(chunks, None, width, batch_size, skip=0)
    return source.mixed(groups, mixture, batch_size, seed=(3, 1))


def threads() -> list[str]:
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("parquet-loader-"))


def numbers(given) -> list[int]:
    return [int(n) for block in given for n in block.columns[0].array[:, 0]]


@pytest.mark.parametrize(
    ("width", "batch_size", "used_by_blocks", "ahead"),
    [
        (1, ROWS, range(1, 7), 2),
        # The first three begin together, then one at a time; the last three would again.
        (3, ROWS // 3, range(3, 5), 2),
        (None, ROWS, range(1, 7), 1),
    ],
)
def test_the_next_reads_go_on_while_a_block_is_used_and_no_more(
    width, batch_size, used_by_blocks, ahead
):
    """Beyond the row groups of a block, one is being shuffled and one decoded."""
    reader = Reader()
    given = blocks(reader, width, batch_size)
    for used in used_by_blocks:
        next(given)
        for _ in range(used + ahead - reader.seen):
            assert reader.wait(), "nothing was read ahead"
        assert not reader.begun.acquire(timeout=0.02)
        assert reader.count == used + ahead
    given.close()
    assert not threads()


@pytest.mark.parametrize("batch_size", [ROWS, 64, 130, 8 * ROWS])
@pytest.mark.parametrize("width", [1, 3, 8])
def test_every_row_comes_once(batch_size, width):
    found = numbers(blocks(Reader(), width, batch_size))
    assert sorted(found) == list(range(8 * ROWS))
    assert found != sorted(found)
    assert numbers(blocks(Reader(), None, batch_size)) == sorted(found)
    assert not threads()


def test_an_error_comes_as_itself_after_what_was_read_before():
    given = blocks(Reader(broken=3), width=1)
    assert len(numbers(next(given) for _ in range(3))) == 3 * ROWS
    with pytest.raises(OSError, match="the disk is gone"):
        next(given)
    assert not threads()


@pytest.mark.parametrize(("width", "begun"), [(3, ["decode", "shuffle"]), (None, ["decode"])])
def test_dropped_in_the_middle_it_leaves_no_thread(width, begun):
    given = blocks(Reader(), width)
    next(given)
    assert threads() == [f"parquet-loader-{name}" for name in begun]
    del given
    assert not threads()


def test_what_was_not_begun_is_given_up():
    """One that is closed waits for what is being read, and not for the next."""
    done = []
    begun, go_on = threading.Event(), threading.Event()

    def work(item):
        if item == 1:
            begun.set()
            go_on.wait(10)
        done.append(item)
        return item

    items = Prefetcher(lambda: map(work, range(5)), ahead=0)
    assert next(items) == 0
    assert begun.wait(10)
    threading.Timer(0.05, go_on.set).start()
    items.close()
    assert done == [0, 1]
