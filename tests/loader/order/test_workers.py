"""Many workers: equal steps, every row once, and others that take over."""

import itertools
import json
from collections import Counter

import polars as pl
import pytest

from loader import LoaderError
from loader.order.epoch_plan import Leg, Share, rows_left


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("size", "batch_size"), [(2, 64), (3, 64), (7, 10), (3, 1000)])
def test_ranks_share_all_rows_in_equal_steps(make, users, size, batch_size, shuffle):
    loaders = [
        make(global_size=size, global_rank=rank, batch_size=batch_size, shuffle=shuffle)
        for rank in range(size)
    ]
    shares = [users(loader) for loader in loaders]
    assert len({len(loader) for loader in loaders}) == 1
    assert {len(share) for share in shares} == {-(-1000 // size)}
    together = sorted(itertools.chain(*shares))
    assert sorted(set(together)) == list(range(1000))
    assert len(together) - 1000 < size, "more than the top-up came twice"
    assert max(Counter(together).values()) <= 2


@pytest.mark.parametrize("shuffle", [False, True])
def test_more_ranks_than_rows(make, ratings, users, shuffle):
    """A rank without rows of its own repeats the row of its number, counted round those of the data."""
    shares = [
        users(make(ratings[:3], global_size=8, global_rank=rank, shuffle=shuffle))
        for rank in range(8)
    ]
    own = [2, 5, 7]
    repeated = {0: [0], 1: [1], 3: [0], 4: [1], 6: [0]}
    assert {rank: shares[rank] for rank in repeated} == repeated
    assert sorted(shares[rank] for rank in own) == [[0], [1], [2]]
    assert shuffle or [shares[rank] for rank in own] == [[0], [1], [2]]


def test_ranks_that_share_row_groups_of_one_row_repeat_different_ones(make, users, tmp_path):
    frame = pl.DataFrame({"userId": range(306), "rating": [0] * 306})
    frame.write_parquet(tmp_path / "ones.parquet", row_group_size=1)
    options = {"cat_names": ["userId"], "cont_names": []}
    shares = [users(loader) for loader in ranks_of(make, 5, data=tmp_path, **options)]
    assert sorted(Counter(itertools.chain(*shares)).values()) == [1] * 302 + [2] * 4


def test_ranks_need_a_common_seed(make):
    with pytest.raises(LoaderError, match="seed or seed_fn that is the same for all"):
        make(global_size=2, global_rank=0, seed=None)
    with pytest.raises(LoaderError, match="global_size=2, global_rank=2"):
        make(global_size=2, global_rank=2)
    with pytest.raises(LoaderError, match="global_rank=None"):
        make(global_size=2)


def state_after(loaders, batches):
    """The state that all workers agree on when each of them has taken some batches."""
    states = []
    for loader in loaders:
        batch = iter(loader)
        for _ in range(batches):
            next(batch)
        states.append(json.loads(json.dumps(loader.get_state())))
    assert all(state == states[0] for state in states)
    return states[0]


def ranks_of(make, size, **options):
    return [make(global_size=size, global_rank=rank, **options) for rank in range(size)]


@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"parts_per_chunk": 3}])
@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (3, 2), (2, 3)])
def test_another_number_of_workers_takes_over_in_the_midst_of_an_epoch(
    make, users, before, after, options
):
    options = {"batch_size": 20, **options}
    old = ranks_of(make, before, **options)
    seen = [row for loader in old for row in users(itertools.islice(iter(loader), 3))]
    state = state_after(ranks_of(make, before, **options), 3)
    new = ranks_of(make, after, **options)
    for loader in new:
        loader.set_state(state)
    rests = [users(loader) for loader in new]
    assert len({len(rest) for rest in rests}) == 1, "workers took different numbers of steps"
    together = seen + [row for rest in rests for row in rest]
    assert set(together) == set(range(1000))
    assert len(together) - 1000 < after, "more than the top-up came twice"
    following = [users(loader) for loader in new]
    assert following == [users(loader) for loader in _second_epoch(make, after, options, users)]


def _second_epoch(make, size, options, users):
    loaders = ranks_of(make, size, **options)
    for loader in loaders:
        users(loader)
    return loaders


@pytest.mark.timeout(60)
def test_a_state_of_more_workers_than_rows_is_refused_at_once(make):
    loader = make()
    with pytest.raises(LoaderError, match="of another order of rows"):
        loader.set_state(loader.get_state() | {"legs": [[10**12, 1]]})


@pytest.mark.parametrize("total", [0, 1, 7, 1000])
def test_the_rows_left_are_those_of_all_workers(total):
    for workers, batches in itertools.product([1, 2, 3, 7, 1001], [0, 1, 3, 200]):
        own = [Share(workers, rank).bounds(total) for rank in range(workers)]
        left = sum(max(last - first - batches * 5, 0) for first, last in own)
        assert rows_left(total, [Leg(workers, batches)], 5) == left


def test_workers_change_twice_in_an_epoch(make, users):
    options = {"batch_size": 10}
    seen = [r for ld in ranks_of(make, 3, **options) for r in users(itertools.islice(iter(ld), 5))]
    state = state_after(ranks_of(make, 3, **options), 5)
    pair = ranks_of(make, 2, **options)
    for loader in pair:
        loader.set_state(state)
        batches = iter(loader)
        seen += users(itertools.islice(batches, 7))
    state = pair[1].get_state()
    assert state["legs"] == [[3, 5]]
    alone = make(**options)
    alone.set_state(state)
    assert alone.get_state()["legs"] == [[3, 5], [2, 7]]
    assert sorted(seen + users(alone)) == list(range(1000))


def test_the_same_workers_go_on_with_the_identical_stream(make, users):
    for rank in range(3):
        loader = make(global_size=3, global_rank=rank, batch_size=50)
        batches = iter(loader)
        users(itertools.islice(batches, 2))
        state, rest = loader.get_state(), users(batches)
        again = make(global_size=3, global_rank=rank, batch_size=50)
        again.set_state(state)
        assert users(again) == rest


def test_the_order_of_rows_is_the_same_for_any_number_of_workers(make, users):
    alone = users(make())
    for size in (2, 5):
        assert [row for loader in ranks_of(make, size) for row in users(loader)] == alone


def test_drop_last_with_less_than_a_batch_left_goes_on_with_the_next_epoch(make):
    state = state_after(ranks_of(make, 1, batch_size=300, drop_last=True), 2)
    loaders = ranks_of(make, 4, batch_size=300, drop_last=False)
    with pytest.raises(LoaderError, match="at least one batch"):
        ranks_of(make, 4, batch_size=300, drop_last=True)
    loaders[0].set_state(state)
    assert len(list(loaders[0])) == 1  # 100 rows each
    pair = make(global_size=2, global_rank=0, batch_size=300, drop_last=True)
    pair.set_state(state)
    assert pair.get_state()["epoch"] == 1


@pytest.mark.parametrize("legs", ["no", [1], [[2]], [[0, 1]], [[1, -1]], [["1", 1]]])
def test_legs_that_make_no_sense(make, legs):
    loader = make()
    with pytest.raises(LoaderError, match="legs as pairs"):
        loader.set_state(loader.get_state() | {"legs": legs})
