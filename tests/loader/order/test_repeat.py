"""`repeat`: epochs one after another, for `fit` with `steps_per_epoch`."""

import gc
import threading
import time
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from loader import LoaderError


def test_epochs_follow_each_other_each_in_its_own_order(make, users, check_rows):
    loader = make(batch_size=100)
    data = loader.repeat(2)
    assert len(data) == 20
    batches = list(data)
    for x, y in batches:
        check_rows(x, y)
    first, second = users(batches[:10]), users(batches[10:])
    assert sorted(first) == sorted(second) == list(range(1000))
    assert first != second
    same = make(batch_size=100)
    assert (first, second) == (users(same), users(same)), "an order differs from that of two passes"
    assert loader.get_state()["epoch"] == 2


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_short_batch_that_is_dropped_is_in_no_later_epoch(make, users, shuffle):
    loader = make(batch_size=130, shuffle=shuffle, drop_last=True)
    batches = list(loader.repeat(3))
    assert [len(y) for _, y in batches] == [130] * 21
    same = make(batch_size=130, shuffle=shuffle, drop_last=True)
    assert users(batches) == users(same) + users(same) + users(same)


def test_epochs_that_nobody_follows_any_more_are_forgotten(make):
    """A run of a million steps over one batch has as many."""

    def positions():
        gc.collect()
        return sum(type(part).__name__ == "Position" for part in gc.get_objects())

    loader = make(batch_size=1000)
    batches = iter(loader.repeat())
    next(batches)
    before = positions()
    trail = loader.follow()
    for _ in range(20):
        next(batches)
    assert trail(20)["epoch"] == 21
    del trail
    assert positions() <= before
    for _ in range(20):
        next(batches)
    assert positions() <= before


def test_without_an_end(make, users):
    data = make(batch_size=100).repeat().map(lambda x, y: (x, y))
    assert data.cardinality() == tf.data.INFINITE_CARDINALITY
    with pytest.raises(TypeError, match="infinite"):
        len(data)
    seen = users(data.take(25))
    assert sorted(seen[1000:2000]) == list(range(1000))
    assert len(seen) == 2500


def test_fit_takes_steps_per_epoch(make):
    price = keras.Input((1,), name="price")
    model = keras.Model({"price": price}, keras.layers.Dense(1, kernel_initializer="ones")(price))
    model.compile(keras.optimizers.SGD(0.0), "mse")
    losses, steps = [], []
    told = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: losses.append(logs["loss"]),  # noqa: ARG005
        on_train_batch_end=lambda batch, logs: steps.append(batch),  # noqa: ARG005
    )
    data = make(batch_size=100, cat_names=[]).repeat()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # such as "ran out of data"
        model.fit(data, steps_per_epoch=4, epochs=5, callbacks=[told], verbose=0, shuffle=False)
    assert steps == [0, 1, 2, 3] * 5
    row = np.arange(1000)
    whole = np.mean(np.square(row / 10 - row % 2))
    assert np.mean(losses) == pytest.approx(whole, rel=1e-5), "two epochs are not every row twice"


def test_the_position_goes_on_over_the_end_of_an_epoch(make, users):
    loader = make(batch_size=100)
    batches = iter(loader.repeat())
    for _ in range(13):
        next(batches)
    state = loader.get_state()
    assert (state["epoch"], state["batch"]) == (1, 3)
    rest = users(next(batches) for _ in range(9))
    other = make(batch_size=100)
    other.set_state(state)
    again = iter(other.repeat())
    assert users(next(again) for _ in range(9)) == rest


def readers():
    return {thread for thread in threading.enumerate() if thread.name == "parquet-loader"}


def test_nothing_stays_open(make):
    gc.collect()
    before = readers()
    loader = make(batch_size=100, buffer_size=20_000)
    batches, abandoned = iter(loader.repeat()), iter(loader.repeat())
    for _ in range(11):
        next(batches)
        next(abandoned)
    both = readers() - before
    del abandoned
    gc.collect()
    deadline = time.monotonic() + 10
    while all(thread.is_alive() for thread in both) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(both) == 2
    assert len(readers() - before) == 1
    loader.close()
    assert list(batches) == [], "a closed loader began another epoch"
    assert readers() <= before


@pytest.mark.parametrize("count", [0, -2, 1.5, "2", [2], tf.constant(2)], ids=str)
def test_a_count_that_makes_no_sense(make, count):
    with pytest.raises(LoaderError, match="count as a whole number from 1"):
        make().repeat(count)
