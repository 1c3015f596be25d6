"""The plan that divides tables among workers, and the parts that follow from it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError, optimizers
from training.sharding.layout import ByColumn, ByRow
from training.sharding.plan import bytes_of_workers, check_room, check_state_room, plan
from training.sharding.room import copies_in

# Criteo's shape, with tables from 10 to a million rows.
CRITEO = {f"C{n}": (int(rows), 16) for n, rows in enumerate(np.geomspace(10, 1_000_000, 26))}


@pytest.mark.parametrize("workers", [2, 3, 8, 64])
def test_bytes_and_lookups_are_balanced(workers):
    places = plan(CRITEO, workers, "auto")
    held = bytes_of_workers(CRITEO, places, workers)
    whole = sum(rows * width * 4 for rows, width in CRITEO.values())
    assert sum(held) >= whole
    assert max(held) <= 1.25 * whole / workers + 26 * 64  # a row more where it does not come out
    counts = np.bincount([place for place in places.values() if place is not None])
    assert counts.max() <= -(-sum(counts) // workers) + 2


def test_whole_tables_go_to_the_worker_with_the_least():
    sizes = {name: (rows, 1) for name, rows in zip("abcdef", (60, 50, 40, 30, 20, 10), strict=True)}
    places = plan(sizes, 2, "table")
    held = bytes_of_workers(sizes, places, 2)
    assert None not in places.values()
    assert sorted(held) == [100 * 4, 110 * 4]  # by hand: 60 + 30 + 20 and 50 + 40 + 10


def test_one_large_table_is_divided_and_a_small_one_is_not():
    sizes = {"user": (1_000_001, 8), "city": (9, 8)}
    assert plan(sizes, 4, "auto") == {"user": None, "city": 0}
    assert plan(sizes, 4, "row") == {"user": None, "city": None}
    assert bytes_of_workers(sizes, plan(sizes, 4, "row"), 4) == [(250_001 + 3) * 32] * 4


def test_tables_too_large_for_all_workers_are_an_error_with_their_number():
    sizes = {"user": (10**9, 50)}  # 200 GB
    held = bytes_of_workers(sizes, {"user": None}, 2)
    check_room(sizes, held, [100 * 10**9] * 2)
    with pytest.raises(TrainingError) as error:
        check_room(sizes, held, [80 * 10**9, 60 * 10**9])
    text = "room on 2 workers for tables of 200 GB. Received: 100 GB for worker 1, which has 60 GB."
    assert text in str(error.value)
    assert "Start at least 4 such workers" in str(error.value)


def test_state_too_large_beside_the_tables_is_an_error_with_the_number_of_workers():
    tables, others = [60 * 10**9] * 2, 10**9
    check_state_room("Adagrad", 1, tables, others, [61 * 10**9] * 2)
    with pytest.raises(TrainingError) as error:
        check_state_room("Adam", 2, tables, others, [130 * 10**9, 20 * 10**9])
    assert "for the state of Adam, 2 times the weights, of which the tables have 120 GB" in str(
        error.value
    )
    assert "122 GB of state for worker 1, which has 20 GB left beside its tables" in str(
        error.value
    )
    # 360 GB in all, and 80 - 2 GB on the smaller one.
    assert "Start at least 5 such workers" in str(error.value)
    with pytest.raises(TrainingError, match="Start workers with more memory"):
        check_state_room("Adam", 2, [10**9], 10**9, [10**9])


@pytest.mark.parametrize(
    "optimizer",
    [
        optimizers.SGD(),
        optimizers.SGD(momentum=0.9),
        optimizers.Adagrad(),
        optimizers.Adam(),
        optimizers.Adam(amsgrad=True),
        keras.optimizers.AdamW(use_ema=True),
        optimizers.LossScaleOptimizer(optimizers.Adam()),
    ],
)
def test_the_state_is_as_large_as_it_is_when_it_is_made(optimizer):
    copies = copies_in(optimizer)
    optimizer.build([keras.Variable(np.zeros([7, 3], "float32"))])
    assert copies == sum(variable.shape == (7, 3) for variable in optimizer.variables)


HEIGHTS, WIDTH = [7, 1, 12, 3], 6


def layouts(kind, size):
    places = {"rows": [None] * 4, "whole": [0, 0, 1, 0], "both": [None, 1, None, 0]}
    for rank in range(size):
        if kind == "columns":
            yield ByColumn(HEIGHTS, WIDTH, size, rank)
        else:
            yield ByRow(HEIGHTS, places[kind], WIDTH, size, rank)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("kind", ["rows", "whole", "both", "columns"])
def test_parts_are_found_where_they_are_kept(kind, size):
    table = np.arange(sum(HEIGHTS) * WIDTH).reshape(-1, WIDTH)
    parts = []
    for layout in layouts(kind, size):
        part = np.full(layout.shape, -1)
        for first, count in layout.blocks():
            own = layout.own(layout.rank, first, count)
            if own is not None:
                block = table[first : first + count]
                part[own.start : own.start + own.count] = block[own.rows, own.columns]
        parts.append(part)
    # Each value is kept once, besides spare rows.
    kept = np.concatenate([part.ravel() for part in parts])
    assert sorted(kept[kept >= 0]) == [*range(table.size)]
    rows = np.random.default_rng(0).permutation(sum(HEIGHTS))
    route = next(layouts(kind, size)).route(tf.constant(rows))
    held = [tf.constant(part[own.numpy()]) for part, own in zip(parts, route.rows, strict=True)]
    vectors = route.joined(held)
    np.testing.assert_array_equal(vectors, table[rows])
    for own, again in zip(held, route.divided(vectors), strict=True):
        np.testing.assert_array_equal(again, own)


@pytest.mark.parametrize("rows", [1, 2**18 + 5])
def test_blocks_of_a_long_column_are_found_too(rows):
    layouts = [ByRow([3, rows], [None, None], 4, 3, rank) for rank in range(3)]
    owned = np.zeros(3 + rows, int)
    for layout in layouts:
        starts = []
        for first, count in layout.blocks():
            own = layout.own(layout.rank, first, count)
            if own is not None:
                owned[first : first + count][own.rows] += 1
                starts += range(own.start, own.start + own.count)
        assert starts == [*range(len(starts))]
    assert (owned == 1).all()
