"""Every value of the batches that a GPU decodes is that of the CPU's, in every way to read them."""

from __future__ import annotations

from collections import Counter
from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf
from loader_rows import SETTINGS, assert_same_batches, make_frame

from loader import KerasSequenceLoader, LoaderCheckpoint

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def frame():
    return make_frame()


@pytest.fixture(scope="module")
def folder(frame, tmp_path_factory):
    folder = tmp_path_factory.mktemp("values")
    for number, part in enumerate((frame[:40_000], frame[40_000:])):
        part.write_parquet(folder / f"{number}.parquet", row_group_size=7_000)
    return folder


@pytest.fixture(scope="module")
def make(folder, device):
    """Makes loaders of shuffled rows."""
    given = {"device": device, "seed": 3, "parts_per_chunk": 3, **SETTINGS}
    return partial(KerasSequenceLoader, folder, 4096, **given)


@pytest.fixture(scope="module")
def shuffled(make):
    return list(make())


def through_function(data):
    """Batches of a compiled function's iterator."""
    iterator = iter(data)
    step = tf.function(lambda iterator: next(iterator))  # noqa: PLW0108 - `next` has no signature
    for _ in range(len(data)):
        yield step(iterator)


def checksum(batches):
    """Rows, and for each column the sum of its values: of integers modulo 2^64, of floats in 2^-40."""
    rows, sums = 0, Counter()
    for x, y in batches:
        rows += int(y.shape[0])
        for name, tensor in [*x.items(), ("label", y)]:
            for part in tensor if isinstance(tensor, tuple) else (tensor,):
                values = part.numpy()
                if values.dtype.kind == "f":
                    # In whole 2^-40: exact, so that the order of rows does not show.
                    whole = np.round(np.nan_to_num(values.astype(np.float64)) * 2.0**40)
                    sums[name] += sum(map(int, whole[:, 0]))
                else:
                    sums[name] = (sums[name] + int(values.sum(dtype=np.int64))) % 2**64
    return rows, sums


@pytest.mark.parametrize("read", [iter, through_function], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    ("batch_size", "buffer_size", "is_dense"),
    [(4096, 0.05, True), (4096, 2_000_000, True), (1000, 0.05, False), (1000, 2_000_000, True)],
)
def test_every_batch_is_the_cpus(folder, device, batch_size, buffer_size, is_dense, read):
    given = {"shuffle": False, "buffer_size": buffer_size, **SETTINGS, "sparse_as_dense": is_dense}
    ours, expected = (
        KerasSequenceLoader(folder, batch_size, device=where, **given) for where in (device, "cpu")
    )
    assert ours.device == device
    for pair in zip(read(ours), expected, strict=True):
        assert_same_batches(*pair)


def test_shuffled_rows_are_all_rows_and_come_so_again(folder, make, shuffled, frame):
    in_order = KerasSequenceLoader(folder, 4096, device="cpu", shuffle=False, **SETTINGS)
    assert checksum(shuffled) == checksum(in_order)
    first = shuffled[0][0]["id"].numpy()[:, 0]
    assert not np.array_equal(first, frame["id"][:4096].to_numpy())
    assert_same_batches(list(make()), shuffled)


def test_a_batch_draws_evenly_from_all_row_groups(make, shuffled, frame):
    """All of them fit the buffer: 6 of one file and 9 of the other."""
    starts = [*range(0, 40_000, 7_000), *range(40_000, len(frame), 7_000)]
    groups = np.searchsorted(starts, range(len(frame)), "right") - 1
    group_of = dict(zip(frame["long"], groups, strict=True))
    expected = np.diff([*starts, len(frame)]) * 4096 / len(frame)
    for x, _ in shuffled[:-1]:
        own = [group_of[value] for value in x["long"].numpy()[:, 0]]
        found = np.bincount(own, minlength=len(starts))
        # By chance they stray with the root of the expected number: six times it never comes.
        assert (abs(found - expected) < 6 * np.sqrt(expected)).all()
    assert make().mixing() == len(starts)


# Chunks of half a row group and of a few, one after another, and of a few that are mixed.
@pytest.mark.parametrize(
    ("buffer_size", "least"), [(2_000_000, 1), (80_000_000, 3), (120_000_000, 6)]
)
def test_a_small_buffer_mixes_what_it_holds(make, shuffled, buffer_size, least):
    loader, again = make(buffer_size=buffer_size), make(buffer_size=buffer_size)
    assert loader.mixing() >= least
    batches = list(loader)
    assert checksum(batches) == checksum(shuffled)
    iterator = iter(again)
    for _ in range(7):
        next(iterator)
    state = again.get_state()
    resumed = make(buffer_size=buffer_size)
    resumed.set_state(state)
    assert_same_batches(list(resumed), batches[7:])


def test_workers_share_all_rows_in_equal_steps(make, frame):
    ranks = [list(make(global_size=3, global_rank=rank)) for rank in range(3)]
    assert len({len(batches) for batches in ranks}) == 1
    seen = np.concatenate([x["long"].numpy()[:, 0] for batches in ranks for x, _ in batches])
    np.testing.assert_array_equal(np.unique(seen), np.unique(frame["long"].to_numpy()))
    assert len(seen) - len(frame) < 3


def test_a_resumed_epoch_is_the_rest_of_it(make, shuffled):
    part, after = make(), make()
    batches = iter(part)
    for _ in range(5):
        next(batches)
    state = part.get_state()
    del batches
    after.set_state(state)
    assert_same_batches(list(after), shuffled[5:])


def test_repeated_epochs_are_epochs(make, shuffled):
    batches = list(through_function(make().repeat(2)))
    assert_same_batches(batches[: len(shuffled)], shuffled)
    assert checksum(batches[len(shuffled) :]) == checksum(shuffled)


def test_a_short_batch_that_is_dropped_is_in_no_later_epoch(make):
    same = make(drop_last=True)
    batches = list(through_function(make(drop_last=True).repeat(3)))
    assert_same_batches(batches, [*same, *same, *same])


def test_a_checkpoint_of_repeated_epochs_knows_where_they_are(make, shuffled, tmp_path):
    loader, after = make(), make()
    exact = keras.Input((1,), name="exact")
    model = keras.Model({"exact": exact}, keras.layers.Dense(1)(exact))
    model.compile("sgd", "mse")
    data = loader.repeat().map(lambda x, y: ({"exact": tf.cast(x["exact"], tf.float32)}, y))
    checkpoint = LoaderCheckpoint(loader, tmp_path)
    given = {"epochs": 3, "callbacks": [checkpoint], "verbose": 0, "shuffle": False}
    steps = len(shuffled) // 2 + 1
    model.fit(data, steps_per_epoch=steps, **given)
    assert LoaderCheckpoint(after, tmp_path).restore(model) == 3
    state = after.get_state()
    assert (state["epoch"], state["batch"]) == divmod(3 * steps, len(shuffled))


@pytest.mark.parametrize("read", [iter, through_function], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", ["exact", "byte"])
def test_weights_of_rows_are_the_cpus(folder, device, name, read):
    given = {"shuffle": False, "buffer_size": 2_000_000, **SETTINGS, "cont_names": ["price"]}
    given |= {"cat_names": ["id", "genres", "tags"], "sample_weight": name}
    ours, expected = (
        KerasSequenceLoader(folder, 4096, device=where, **given) for where in (device, "cpu")
    )
    assert_same_batches(list(read(ours)), list(expected))
    mapped = ours.map(lambda x, y, weight: (x, y, weight))
    assert_same_batches(list(read(mapped)), list(expected))


def test_mapped_batches_are_the_batches(make, shuffled):
    mapped = make().map(lambda x, y: (x, y, tf.cast(y, tf.float32) + 1))
    compiled = list(through_function(mapped))
    assert_same_batches([(x, y) for x, y, _ in compiled], shuffled)
    for _, y, weight in compiled:
        np.testing.assert_array_equal(weight.numpy(), y.numpy().astype(np.float32) + 1)


def test_eager_operations_of_the_users_do_not_meet_those_of_the_loader(frame, device, tmp_path):
    """On a GPU TensorFlow mixes up bounds and shapes of operations that several threads run at once."""
    frame.write_parquet(tmp_path / "0.parquet", row_group_size=7_000)
    given = {"device": device, "shuffle": False, "buffer_size": 2_000_000, **SETTINGS}
    lengths = frame["genres"].list.len().fill_null(0).to_numpy()
    for _ in range(5):
        start = 0
        for x, _ in KerasSequenceLoader(tmp_path, 1000, **given):
            ids = x["long"]
            expected = frame["long"][start : start + 1000].to_numpy()
            for n in range(1, 20):
                np.testing.assert_array_equal(ids[n : 2 * n, 0].numpy(), expected[n : 2 * n])
                np.testing.assert_array_equal(tf.reshape(ids[:n], [-1]).numpy(), expected[:n])
            found = x["genres"][1].numpy()[:, 0]
            np.testing.assert_array_equal(found, lengths[start : start + 1000])
            start += len(expected)
        assert start == len(frame)
