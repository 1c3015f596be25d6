"""The number of row groups that a batch draws from, and how evenly."""

from __future__ import annotations

import itertools
import time
from collections import Counter

import numpy as np
import polars as pl
import pytest

from loader import KerasSequenceLoader, LoaderError
from loader.files.parquet_files import RowGroup
from loader.order.epoch_plan import Chunk, Piece, epoch_chunks, split_row_groups
from loader.order.mixing import (
    Mixing,
    Room,
    left_after,
    mixed_batches,
    plan_mixing,
    row_groups_in,
)

SMALL, LARGE = 16_384, 40_000


def write_sorted(folder, groups, rows):
    """Numbered rows in row groups of equal size, so that a number tells its row group."""
    frame = pl.DataFrame({"row": np.arange(groups * rows, dtype=np.int32)})
    frame.write_parquet(folder / "sorted.parquet", row_group_size=rows)
    return folder


def groups_of_batches(loader, rows):
    """The number of rows that each row group gave to each whole batch of an epoch."""
    size = loader.batch_size
    numbers = [batch["row"].numpy()[:, 0] for batch in loader]
    together = np.concatenate(numbers)
    everything = np.arange(len(together))
    np.testing.assert_array_equal(np.sort(together), everything, "not every row exactly once")
    return [Counter((batch // rows).tolist()) for batch in numbers if len(batch) == size]


@pytest.fixture
def load(tmp_path):
    def make(groups, rows, batch_size=4096, **options):
        write_sorted(tmp_path, groups, rows)
        return KerasSequenceLoader(
            tmp_path, batch_size, [], cat_names=["row"], seed=1, device="cpu", **options
        )

    return make


@pytest.mark.parametrize(
    ("groups", "rows", "options", "least"),
    [
        (20, LARGE, {}, 8),
        (20, LARGE, {"parts_per_chunk": 10}, 10),
        (40, SMALL, {}, 16),
        (40, 1000, {}, 40),
        (3, LARGE, {}, 3),
        (15, LARGE, {}, 15),
        (16, 30_000, {}, 16),
        (20, 25_000, {}, 20),
    ],
    ids=[
        "large",
        "more",
        "small",
        "tiny",
        "few",
        "not twice as many",
        "half a million",
        "the same",
    ],
)
def test_a_batch_draws_from_several_row_groups(load, groups, rows, options, least):
    loader = load(groups, rows, **options)
    found = [len(batch) for batch in groups_of_batches(loader, rows)]
    assert min(found) == loader.mixing() == least
    assert np.mean(found) <= 2 * least


@pytest.mark.parametrize("row_groups", [8, 14, 24, 32])
@pytest.mark.parametrize(("options", "least"), [({}, 8), ({"parts_per_chunk": 10}, 10)])
def test_a_buffer_of_few_row_groups_is_filled_with_parts_of_them(load, row_groups, options, least):
    """A row has four bytes, and four of its place in the order."""
    loader = load(20, LARGE, buffer_size=LARGE * 8 * row_groups, **options)
    found = [len(batch) for batch in groups_of_batches(loader, LARGE)]
    assert min(found[:-1]) >= least
    assert found[0] == loader.mixing()


def test_a_batch_of_all_rows_draws_from_all_row_groups(load):
    """Row groups of one row too, which a random batch of as many rows would miss."""
    loader = load(500, 1, batch_size=500)
    assert [len(batch) for batch in groups_of_batches(loader, 1)] == [500]
    assert loader.mixing() == 500


def test_a_machine_with_other_memory_resumes_where_the_order_is_the_same(load):
    """The default buffer is a share of the memory, which differs a little even between like machines."""
    earlier, later = (load(20, LARGE, buffer_size=size) for size in (2.3e9, 2.4e9))
    batches = iter(earlier)
    next(batches)
    later.set_state(earlier.get_state())
    resumed = next(iter(later))["row"].numpy()
    np.testing.assert_array_equal(resumed, next(batches)["row"].numpy())


def test_a_buffer_that_joins_other_row_groups_does_not_resume(tmp_path):
    """Two row groups of 41,468 rows together fit one buffer and not the other, which both hold no window."""
    start = 0
    for number, size in enumerate([8_700, 32_768] * 4):
        frame = pl.DataFrame({"row": np.arange(start, start + size, dtype=np.int32)})
        frame.write_parquet(tmp_path / f"{number}.parquet", row_group_size=size)
        start += size
    earlier, later = (
        KerasSequenceLoader(
            tmp_path, 40_000, [], cat_names=["row"], seed=1, device="cpu", buffer_size=64 * rows
        )
        for rows in (40_000, 43_000)
    )
    next(iter(earlier))
    with pytest.raises(LoaderError, match="of another order of rows"):
        later.set_state(earlier.get_state())


def test_without_shuffle_rows_keep_their_places(load):
    loader = load(5, 1000, batch_size=100, shuffle=False)
    assert {len(batch) for batch in groups_of_batches(loader, 1000)} == {loader.mixing()} == {1}


@pytest.mark.parametrize("batch_size", [1000, 16_384])
def test_the_row_groups_of_a_batch_have_even_shares(load, batch_size):
    """At the ends and in between: nothing but a group's last rows falls short."""
    rows, width = LARGE, 8
    batches = groups_of_batches(load(20, rows, batch_size), rows)
    taken = Counter()
    for batch in batches:
        taken.update(batch)
        fair = batch_size / len(batch)
        whole = [count for group, count in batch.items() if taken[group] < rows - batch_size]
        assert max(batch.values()) <= 2 * fair + 1
        assert min(whole, default=fair) >= fair / 2 - 1
        assert max(batch.values()) <= batch_size / width * 1.2


def test_the_mixture_carries_over(load):
    """Row groups that end with a batch gave it no more than a quarter of its rows."""
    batches = groups_of_batches(load(20, LARGE), LARGE)
    for before, after in itertools.pairwise(batches):
        ended = sum(count for group, count in before.items() if group not in after)
        assert ended <= before.total() / 4


def test_row_groups_of_any_size_are_mixed_in_proportion(tmp_path):
    sizes = [int(size) for size in np.random.default_rng(0).integers(1, 30_000, 14)]
    start = 0
    for number, size in enumerate(sizes):
        frame = pl.DataFrame({"row": np.arange(start, start + size)})
        frame.write_parquet(tmp_path / f"{number:02}.parquet", row_group_size=size)
        start += size
    loader = KerasSequenceLoader(tmp_path, 3000, [], cat_names=["row"], seed=2, device="cpu")
    order = np.concatenate([batch["row"].numpy()[:, 0] for batch in loader])
    assert sorted(order) == list(range(start))
    edges = np.cumsum(sizes)
    for batch in order[: len(order) // 3000 * 3000].reshape(-1, 3000):
        shares = np.bincount(np.searchsorted(edges, batch, side="right"), minlength=14) / 3000
        # 4.5 standard deviations of a random draw.
        fair = np.array(sizes) / start
        assert np.all(np.abs(shares - fair) < 4.5 * np.sqrt(fair / 3000) + 0.001)


@pytest.mark.parametrize("batch_size", [1, 7, 64, 1000])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_batches_are_whole_and_take_every_row_once_in_order(width, batch_size):
    rows = [int(n) for n in np.random.default_rng(width).integers(1, 60, 23)]
    batches = list(mixed_batches(rows, width, batch_size))
    sizes = [sum(run.stop - run.start for run in batch.runs) for batch in batches]
    assert sizes[:-1] == [batch_size] * (len(batches) - 1)
    assert sum(sizes) == sum(rows)
    for chunk, count in enumerate(rows):
        runs = [r for batch in batches for r in batch.runs if r.chunk == chunk]
        taken = [row for run in runs for row in range(run.start, run.stop)]
        assert taken == list(range(count))
    assert all(run.chunk < batch.begun for batch in batches for run in batch.runs)
    begun = [batch.begun for batch in batches]
    assert begun == sorted(begun)


def test_what_is_left_and_what_was_taken_are_everything():
    chunks = [Chunk((Piece("a", n, n * 50, 50, n),), skip=n, stop=50 - n) for n in range(12)]
    wanted = {(n, row) for n in range(12) for row in range(n, 50 - n)}
    batches = list(mixed_batches([chunk.wanted for chunk in chunks], 3, 20))
    for count in range(len(batches) + 1):
        left = left_after(chunks, count, width=3, batch_size=20)
        rows = [(c.pieces[0].number, r) for c in left for r in range(c.skip, c.stop or 0)]
        taken = [
            (run.chunk, run.chunk + row)
            for batch in batches[:count]
            for run in batch.runs
            for row in range(run.start, run.stop)
        ]
        assert sorted(rows + taken) == sorted(wanted)


@pytest.mark.parametrize("count", [8, 10, 40, 41])
def test_row_groups_in_a_row_stem_from_all_parts_of_the_data(count):
    """Eight row groups in a row of sorted data are one from each eighth; each epoch has its own order."""
    pieces = [Piece("a", n, n * 10, 10, n) for n in range(count)]
    orders = set()
    for epoch in range(5):
        chunks = epoch_chunks(pieces, 1, 10, (0, epoch), spread=8)
        order = [chunk.pieces[0].number for chunk in chunks]
        assert sorted(order) == list(range(count))
        orders.add(tuple(order))
        for start in range(count - 7):
            eighths = {number * 8 // count for number in order[start : start + 8]}
            assert len(eighths) == 8 or (count % 8 and len(eighths) >= 5)
    assert len(orders) == 5


@pytest.mark.parametrize(
    ("copies", "row_groups", "in_chunk", "most_parts"),
    [(8, 8, 1, None), (8, 8, 1, 8), (10, 16, 8, 8)],
)
@pytest.mark.parametrize("batch_size", [8192, 40_000])
@pytest.mark.parametrize("rows", [10, 5_000, 16_384, 500_000])
@pytest.mark.parametrize("max_rows", [60_000, 500_000, 1_000_000, 10_000_000])
def test_a_window_of_enough_row_groups_fits_the_buffer(
    max_rows, rows, batch_size, copies, row_groups, in_chunk, most_parts
):
    """On a CPU and a GPU: row groups that are too large for it are read in parts.

    Where each part costs as much as the whole, they are few, and a batch draws from fewer row groups.
    """
    count = min(4_000_000 // rows, 4000)
    groups = [RowGroup("a", n, n * rows, rows, rows) for n in range(count)]
    room = Room(max_rows, copies, row_groups, batch_size, most_parts)
    pieces = split_row_groups(groups, room.piece_rows([group.rows for group in groups]))
    mixing = plan_mixing(pieces, room, in_chunk)
    chunks = epoch_chunks(
        pieces, mixing.pieces, max_rows, (0, 0), least_rows=mixing.least_rows, spread=row_groups
    )
    sizes = [chunk.rows for chunk in chunks]
    width = mixing.width_of(len(sizes))
    left = dict(enumerate(sizes))
    most = 0
    for batch in mixed_batches(sizes, width, batch_size):
        most = max(most, sum(sizes[n] for n in range(batch.begun) if left[n]))
        for run in batch.runs:
            left[run.chunk] -= run.stop - run.start
    reads_and_blocks = copies * max(*sizes, batch_size)
    assert most + reads_and_blocks <= copies * max_rows
    parts = len(pieces) / count
    if most_parts is not None and parts >= most_parts:
        assert width >= 4
        assert parts == most_parts or width <= 5
    else:
        assert width * mixing.pieces >= row_groups or 2 * width > len(sizes)


@pytest.mark.parametrize("batch_size", [pytest.param(7, marks=pytest.mark.long), 300])
@pytest.mark.parametrize("room", [2, 9, 16, 40])
def test_no_more_chunks_are_open_than_the_buffer_has_room_for(room, batch_size):
    """However many chunks a worker's share has."""
    for count in range(1, 60):
        mixing = Mixing(1, 1, min(room // 2, 8), room)
        left = [1000] * count
        for batch in mixed_batches(left[:], mixing.width_of(count), batch_size):
            assert sum(map(bool, left[: batch.begun])) <= room
            for run in batch.runs:
                left[run.chunk] -= run.stop - run.start
        assert not any(left)


@pytest.mark.parametrize("batch_size", [1, 8, 32, 256])
@pytest.mark.parametrize("sizes", [[2_000] + [200] * 15, list(range(100, 300, 2))], ids=len)
def test_batches_of_fewer_rows_than_chunks_draw_from_all_of_them(sizes, batch_size):
    """A small chunk, of which a batch has less than a row, is not left for the end."""
    taken, total = np.zeros(len(sizes)), 0
    for batch in mixed_batches(sizes, len(sizes), batch_size):
        for run in batch.runs:
            taken[run.chunk] += run.stop - run.start
        total = taken.sum()
        fair = total / sum(sizes) * np.array(sizes)
        assert np.all(np.abs(taken - fair) < 5)
    assert total == sum(sizes)


@pytest.mark.parametrize(("row_groups", "parts"), [(8, 4), (9, 3), (10, 9), (13, 2), (40, 26)])
def test_parts_in_a_row_are_of_different_row_groups(row_groups, parts):
    groups = [RowGroup("a", n, n * 900, 900, 900) for n in range(row_groups)]
    pieces = split_row_groups(groups, -(-900 // parts))
    assert len(pieces) == row_groups * parts
    for epoch in range(5):
        chunks = epoch_chunks(pieces, 1, 900, (0, epoch), spread=8)
        order = [chunk.pieces[0].row_group for chunk in chunks]
        for start in range(len(order) - 7):
            assert len(set(order[start : start + 8])) == 8


def test_parts_of_one_row_group_stem_from_all_of_it():
    pieces = split_row_groups([RowGroup("a", 0, 0, 2600, 2600)], 100)
    order = [chunk.pieces[0].number for chunk in epoch_chunks(pieces, 1, 100, (0, 0), spread=8)]
    assert sorted(order) == list(range(26))
    for start in range(19):
        assert len({number * 8 // 26 for number in order[start : start + 8]}) >= 6


def test_the_rest_of_many_workers_fits_the_buffer_too():
    """They leave parts of more chunks than the data has."""
    for room, width in [(8, 31), (4, 4), (10, 8)]:
        for count in range(1, 60):
            left = [1000] * count
            mixing = Mixing(1, 1, width, room)
            for batch in mixed_batches(left[:], mixing.width_of(count), 300):
                assert sum(map(bool, left[: batch.begun])) <= room
                for run in batch.runs:
                    left[run.chunk] -= run.stop - run.start
            assert not any(left)


def test_the_number_of_row_groups_of_one_row_takes_little_time():
    chunk = Chunk(tuple(Piece("a", n, n, 1, n) for n in range(16_384)))
    batch = next(mixed_batches([chunk.rows], 1, 1024))
    began = time.process_time()
    assert row_groups_in(batch, {0: chunk}) == 1024
    assert time.process_time() - began < 1
