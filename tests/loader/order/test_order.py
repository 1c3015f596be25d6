"""The order of rows: shuffling, epochs, workers, and resuming after an interruption."""

import itertools
import json

import numpy as np
import pytest

from loader import LoaderError


def test_seed_and_epoch_decide_the_order(make, users):
    first, second = make(seed=3), make(seed=3)
    epochs = [users(first), users(first)]
    assert [users(second), users(second)] == epochs
    assert epochs[0] != epochs[1]
    assert users(make(seed=4)) != epochs[0]
    assert users(make(seed=None)) != users(make(seed=None))


def test_seed_fn_is_asked_once_an_epoch(make, users):
    seeds = itertools.count(10)
    loader = make(seed=None, seed_fn=lambda: next(seeds))
    first, second = users(loader), users(loader)
    assert next(seeds) == 12
    assert first != second
    assert users(make(seed=None, seed_fn=lambda: 10)) == first


def test_a_state_without_a_seed_is_shuffled_by_the_own_seed(make, users):
    """A loader with `seed_fn` writes one between two epochs."""
    before = make(seed=None, seed_fn=lambda: 3)
    users(before)
    own, twice = make(seed=5), make(seed=5)
    own.set_state(before.get_state())
    users(twice)
    assert users(own) == users(twice)


@pytest.mark.timeout(60)
def test_a_seed_fn_may_ask_for_the_epoch(make, users):
    loader = make(seed=None, seed_fn=lambda: 10 + loader.get_state()["epoch"])
    epochs = [users(loader), users(loader)]
    seeds = iter([10, 11])
    same = make(seed=None, seed_fn=lambda: next(seeds))
    assert [users(same), users(same)] == epochs


@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"parts_per_chunk": 4}])
@pytest.mark.parametrize("taken", [0, 1, 5, 15])
def test_resume_goes_on_with_the_identical_stream(make, users, taken, options):
    original = make(**options)
    users(original)
    iterator = iter(original)
    users(itertools.islice(iterator, taken))
    state = json.loads(json.dumps(original.get_state()))
    rest = users(iterator) if taken else users(original)
    following = users(original)
    resumed = make(**options | {"seed": 99})
    resumed.set_state(state)
    assert users(resumed) == rest
    assert users(resumed) == following


def test_resume_skips_row_groups_unread(make, folder, users, tmp_path):
    copies = [tmp_path / file.name for file in sorted(folder.glob("*.parquet"))]
    for copy in copies:
        copy.write_bytes((folder / copy.name).read_bytes())
    loader = make(copies, shuffle=False, batch_size=100)
    iterator = iter(loader)
    users(itertools.islice(iterator, 4))
    state = loader.get_state()
    resumed = make(copies, shuffle=False, batch_size=100)
    resumed.set_state(state)
    copies[0].unlink()
    assert users(resumed) == list(range(400, 1000))


def test_state_counts_whole_epochs(make, users):
    loader = make()
    assert (loader.get_state()["epoch"], loader.get_state()["batch"]) == (0, 0)
    iterator = iter(loader)
    assert loader.get_state()["epoch"] == 0, "an iterator that was not used took an epoch"
    next(iterator)
    assert (loader.get_state()["epoch"], loader.get_state()["batch"]) == (0, 1)
    users(iterator)
    assert (loader.get_state()["epoch"], loader.get_state()["batch"]) == (1, 0)


def test_chunks_and_epochs_differ_in_row_order(make, ratings, users):
    """No permutation is used twice, neither within an epoch nor in the next one."""
    whole = make(ratings[:400], batch_size=400)
    assert users(whole) != users(whole)
    loader = make(batch_size=100)
    chunks = np.array(users(loader)[:900]).reshape(9, 100) % 100
    assert len({tuple(chunk) for chunk in chunks}) == 9


def test_the_order_of_row_groups_changes_with_the_epoch(make, users):
    loader = make(buffer_size=32_000, batch_size=50)
    assert loader.mixing() == 1, "the buffer is for one row group at a time"
    starts = [0, 100, 200, 300, 400, 500, 600, 700, 750, 850, 950]
    orders = set()
    for _ in range(4):
        groups = np.searchsorted(starts, users(loader), side="right")
        orders.add(tuple(dict.fromkeys(groups)))
    assert all(sorted(order) == list(range(1, 12)) for order in orders)
    assert len(orders) == 4


def test_peek_asks_seed_fn_no_more_than_the_epoch_does(make, users):
    seeds = itertools.count(10)
    loader = make(seed=None, seed_fn=lambda: next(seeds))
    first = users([loader.peek()])
    assert users([loader.peek()]) == first
    assert users(loader)[:64] == first
    assert next(seeds) == 11


def test_nothing_runs_ahead_of_the_saved_position(make):
    """TensorFlow would prefetch behind `take` and `map`, and the state would tell its position."""
    loader = make(batch_size=10)
    batches = iter(loader.map(lambda x, y: (x, y)).take(50))
    for _ in range(3):
        next(batches)
    assert loader.get_state()["batch"] == 3


def test_peek_takes_nothing(make, users):
    loader = make()
    first = users([loader.peek()])
    state = loader.get_state()
    assert users(loader)[:64] == first
    assert (state["epoch"], state["batch"]) == (0, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 99}, "another order of rows"),
        ({"order": 1}, "another order of rows"),
        ({"epoch": -1}, "whole numbers"),
        ({"batch": "2"}, "whole numbers"),
        ({"format": 2}, "format 1"),
        ({"extra": 2}, "keys format, epoch"),
    ],
)
def test_states_that_do_not_fit(make, change, message):
    loader = make()
    next(iter(loader))
    state = loader.get_state() | change
    with pytest.raises(LoaderError, match=message):
        loader.set_state(state)


def test_a_state_of_other_settings(make):
    loader = make()
    next(iter(loader))
    with pytest.raises(LoaderError, match="same data and settings"):
        make(batch_size=65).set_state(loader.get_state())


def test_follow_counts_batches_that_were_used_and_not_those_read_ahead(make):
    loader = make(batch_size=100)
    state_after_use = loader.follow()
    batches = iter(loader.prefetch(5))
    for used in range(1, 4):
        next(batches)
        assert state_after_use(used)["batch"] == used
    list(batches)
    assert (state_after_use(10)["epoch"], state_after_use(10)["batch"]) == (1, 0)
    assert state_after_use(0) == make(batch_size=100).get_state()


def test_close_ends_what_is_being_read(make, users):
    with make(batch_size=10, shuffle=False) as loader:
        batches = iter(loader)
        assert users([next(batches)]) == list(range(10))
    assert users(batches) == []
    assert users(loader) == list(range(1000)), "a closed loader begins the next epoch"


def test_next_walks_through_one_epoch_after_another(make, users):
    loader, other = make(seed=3), make(seed=3)
    for _ in range(2):
        taken = [next(loader) for _ in range(len(loader))]
        assert users(taken) == users(other)
        with pytest.raises(StopIteration):
            next(loader)


def test_next_resumes_at_a_state_that_was_set_in_between(make, users):
    loader = make(batch_size=100)
    taken = [users([next(loader)]) for _ in range(3)]
    state = loader.get_state()
    following = users([next(loader)])
    loader.set_state(state)
    assert users([next(loader)]) == following
    assert loader.get_state()["batch"] == 4
    with pytest.raises(LoaderError):
        loader.set_state(state | {"batch": -1})
    assert users([next(loader)]) not in [*taken, following], "a refused state ends nothing"


def test_close_lets_next_begin_an_epoch(make, users):
    loader = make(batch_size=10, shuffle=False)
    assert users([next(loader), next(loader)]) == list(range(20))
    # An iterator has a place of its own.
    assert users([next(iter(loader))]) == list(range(10))
    assert users([next(loader)]) == list(range(20, 30))
    loader.close()
    assert users([next(loader)]) == list(range(10))
