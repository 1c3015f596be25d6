"""GPU memory that the loader takes against the buffer that was asked for, and gives back.

In a process of its own, whose pools are empty at first, and with 6.4 GB of rows.
"""

from __future__ import annotations

import concurrent.futures
import os
import time

import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from loader import KerasSequenceLoader

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.environ.get("TEST_DEVICE") == "cpu", reason="needs an NVIDIA GPU"),
]

FILES, FILE_ROWS, COLUMNS, BATCH = 8, 5_000_000, 40, 65_536
DECODED = FILES * FILE_ROWS * COLUMNS * 4
# Of its own memory an allocator may keep more than is used, and it grows by steps of 32 MiB.
SLACK, STEPS = 1.1, 3 * 2**25


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of 13 float columns, 26 of ids and a label, all of 4 bytes."""
    folder = tmp_path_factory.mktemp("memory")
    random = np.random.default_rng(0)
    columns = {f"I{n}": random.standard_normal(FILE_ROWS, np.float32) for n in range(13)}
    for number, size in enumerate(np.geomspace(10, 1_000_000, 26).astype(int)):
        columns[f"C{number}"] = (random.pareto(1.0, FILE_ROWS) % size).astype(np.int32)
    frame = pl.DataFrame(columns | {"label": (random.random(FILE_ROWS) < 0.25).astype(np.int32)})
    files = [folder / f"{number}.parquet" for number in range(FILES)]
    for file in files:
        frame.write_parquet(file, compression="snappy", row_group_size=1_000_000)
    return files


def load(files, buffer_size):
    names = {
        "cat_names": [f"C{n}" for n in range(26)],
        "cont_names": [f"I{n}" for n in range(13)],
    }
    given = {"seed": 0, "buffer_size": buffer_size, "device": "gpu:0"}
    return KerasSequenceLoader(files, BATCH, ["label"], **names, **given)


def free():
    import rmm

    return rmm.mr.available_device_memory()[0]


def least_free(files, buffer_size):
    """The least memory that is free during an epoch, as a thread beside it sees."""
    loader = load(files, buffer_size)

    def epoch():
        rows = 0
        for _, y in loader:
            rows += int(y.shape[0])
        y.numpy()  # waits for the GPU
        return rows

    least = free()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        read = pool.submit(epoch)
        while not read.done():
            least = min(least, free())
            time.sleep(0.001)
    assert read.result() == len(files) * FILE_ROWS
    return least


def test_an_epoch_takes_no_more_than_the_buffer(files):
    (tf.zeros([1]) + 1).numpy()  # what TensorFlow takes by itself
    before = free()
    for share in (20, 5):  # the smaller one first: pools keep what they have
        buffer_size = DECODED / share
        assert before - least_free(files, buffer_size) <= SLACK * buffer_size + STEPS


def test_epochs_that_are_begun_and_dropped_give_their_memory_back(files):
    (tf.zeros([1]) + 1).numpy()  # what TensorFlow takes by itself
    before, buffer_size = free(), 1e9
    left = []
    for _ in range(60):
        for _ in load(files, buffer_size):
            break
        left.append(free())
    # Pools keep memory, at most the buffer; sixty row groups would be more. The reader of a dropped
    # epoch may have one for another moment.
    assert before - max(left[50:]) <= SLACK * buffer_size + STEPS
