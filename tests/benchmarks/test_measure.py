"""Races of benchmarks: what counts is work that was really done."""

import os
import sys
import time

import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from benchmarks.data import clicks
from benchmarks.feeds import make_batch, open_loader, resident
from benchmarks.fitting import Fit
from benchmarks.measure import Contestant, Taken, in_child, least, race
from benchmarks.models import (
    Shape,
    Way,
    keras_mlp,
    naive_wide_and_deep,
    our_mlp,
    our_wide_and_deep,
)
from benchmarks.training import OPTIMIZERS

BATCH = 64
SGD, ADAM = OPTIMIZERS["SGD"], OPTIMIZERS["Adam"][0]
MLP = Shape(13, (5, 9, 40), (), 0, 4, (8, 4))
WIDE = Shape(2, (5, 40), (6, 30), 3, 4, (8,))


def contestant(name, amount, *taken):
    turns = iter(taken)
    return Contestant(name, lambda: next(turns), amount)


def test_contestants_take_turns_and_are_compared_within_a_round():
    order = []

    def runs(name, seconds):
        costs = iter(seconds)

        def run():
            order.append(name)
            return Taken(next(costs), 1.0, 100)

        return Contestant(name, run, 100)

    slow, fast = race([runs("slow", [2.0, 8.0, 30.0]), runs("fast", [1.0, 2.0, 3.0])], rounds=3)
    assert order == ["slow", "fast"] * 3
    assert slow.seconds == 8.0
    assert fast.rate == 50.0
    found = fast.against(slow)
    assert (found.median, found.least, found.most) == (4.0, 2.0, 10.0)


def test_a_ratio_is_that_of_equal_amounts():
    whole, tenth = (
        contestant("whole", 1000, Taken(1, 4, 1000)),
        contestant("tenth", 100, Taken(1, 1, 100)),
    )
    race([whole, tenth], 1)
    assert tenth.against(whole).median == 0.1
    assert tenth.against(whole, "processor").median == 0.4


def test_a_run_that_ends_early_fails_the_benchmark():
    short = contestant("short", 1000, Taken(0.5, 0.5, 999))
    with pytest.raises(SystemExit, match=r"'short' to get through 1,000 rows. Received: 999"):
        race([short], 1)


def mlp(**options):
    return Way("", our_mlp, SGD[1], options or None).model(MLP, "int32")


def fed(*rows):
    data = [make_batch(MLP, count, "int32", seed) for seed, count in enumerate(rows)]
    return tf.data.Dataset.from_generator(
        lambda: iter(data),
        output_signature=tf.nest.map_structure(
            lambda part: tf.TensorSpec((None, *part.shape[1:]), part.dtype), data[0]
        ),
    )


@pytest.mark.parametrize("options", [{}, {"steps_per_execution": 4}], ids=["keras", "split"])
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_data_that_runs_out_within_a_fit_fails_the_benchmark(options):
    few = Fit("few", mlp(**options), fed(*[BATCH] * 7), BATCH, steps=8, warm_up=4)
    with pytest.raises(SystemExit, match=r"get through 512 rows. Received: 448"):
        race([few], 1)
    short = Fit("short", few.model, fed(*[BATCH] * 7, BATCH - 1), BATCH, steps=8, warm_up=4)
    with pytest.raises(SystemExit, match=r"get through 512 rows. Received: 511"):
        race([short], 1)
    enough = Fit("enough", few.model, fed(*[BATCH] * 12), BATCH, steps=8, first=4, warm_up=4)
    race([enough], 1)
    assert enough.taken[0].amount == 8 * BATCH
    assert enough.taken[0].seconds > 0


@pytest.mark.parametrize(
    ("shape", "theirs", "ours"),
    [
        pytest.param(
            MLP, Way("", keras_mlp, SGD[0]), Way("", our_mlp, SGD[1], {}), marks=pytest.mark.long
        ),
        (MLP, Way("", keras_mlp, ADAM), Way("", our_mlp, ADAM)),
        (WIDE, Way("", naive_wide_and_deep, SGD[0]), Way("", our_wide_and_deep, SGD[1], {})),
    ],
    ids=["mlp", "mlp under Keras' Adam", "wide"],
)
def test_contestants_start_from_equal_weights_and_learn_the_same(shape, theirs, ours):
    batches = resident(shape, BATCH, "int32")
    x, _ = next(iter(batches))
    networks = [way.model(shape, "int32") for way in (theirs, ours)]
    starts = [np.asarray(network(x)) for network in networks]
    losses = [Fit("", network, batches, BATCH, 1, warm_up=12).loss for network in networks]
    assert np.ptp(starts[0]) > 0.01, "rows differ"
    np.testing.assert_allclose(starts[1], starts[0], rtol=1e-5)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_files_hold_the_rows_once_and_are_made_once(tmp_path):
    files = clicks(tmp_path, 1001)
    frame = pl.read_parquet(files)
    assert len(frame) == 1001
    assert frame["label"].unique().sort().to_list() == [0, 1]
    assert frame["I1"].n_unique() > 990, "each file has rows of its own"
    made = [file.stat().st_mtime_ns for file in files]
    assert [file.stat().st_mtime_ns for file in clicks(tmp_path, 1001)] == made
    assert open_loader(files, 100, device="cpu").peek()[0]["C26"].shape == (100, 1)


def test_the_least_of_some_runs_in_turns_and_no_more_than_some_seconds():
    order = []

    def busy():
        order.append("busy")
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass

    idle, cost = least(lambda: order.append("idle"), busy, repeats=3, seconds=60)
    assert order == ["idle", "busy"] * 3
    assert cost >= 0.02 > idle
    order.clear()
    least(busy, repeats=3, seconds=0.03)
    assert order == ["busy", "busy"]


def test_a_child_has_an_environment_of_its_own(monkeypatch):
    monkeypatch.delenv("ONLY_IN_THE_CHILD", raising=False)
    assert in_child(os.getenv, "ONLY_IN_THE_CHILD", ONLY_IN_THE_CHILD="yes") == "yes"
    assert os.getenv("ONLY_IN_THE_CHILD") is None


def test_a_child_that_fails_fails_its_parent():
    with pytest.raises(SystemExit, match="too few"):
        in_child(sys.exit, "too few")
