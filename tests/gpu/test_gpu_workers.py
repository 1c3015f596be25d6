"""Two processes, each with a GPU, that train one model over NCCL, beside one with all batches.

With TEST_DEVICE=cpu the processes have the processor.
"""

from __future__ import annotations

import os
import signal
import subprocess

import gpu_workers as program
import numpy as np
import polars as pl
import pytest
from gpu_workers import start
from worker_processes import found_by

ON_CPU = os.environ.get("TEST_DEVICE") == "cpu"
ROWS = 20_000


def count_gpus():
    """The number of GPUs, without using one in this process."""
    try:
        found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return 0
    return found.stdout.count("GPU ")


pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not ON_CPU and count_gpus() < 2, reason="needs two NVIDIA GPUs"),
]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    row = np.arange(ROWS, dtype="int32")
    frame = pl.DataFrame({"row": row, "label": (row % 3 == 0).astype("int8")})
    file = tmp_path_factory.mktemp("rows") / "rows.parquet"
    frame.write_parquet(file, row_group_size=1000)
    return file


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("found")
    two = found_by(start(2, folder, program.trained, 2), folder, timeout=250)
    (one,) = found_by(start(1, folder, program.trained, 2), folder, timeout=250)
    return one, two


@pytest.mark.parametrize("case", program.CASES)
def test_two_gpus_train_as_one_with_both_batches(found, case):
    one, two = found
    first, second = (worker[case] for worker in two)
    for worker in (first, second, one[case]):
        assert worker["devices"] == ["CPU" if ON_CPU else "GPU"]
        np.testing.assert_allclose(worker["loss"], one[case]["loss"], rtol=0, atol=1e-6)
    for kind in ("weights", "state"):
        for own, expected in zip(first[kind], one[case][kind], strict=True):
            np.testing.assert_allclose(own, expected, rtol=0, atol=1e-6)
    if program.CASES[case][0] is None:
        for own, other in zip(first["weights"], second["weights"], strict=True):
            np.testing.assert_allclose(own, other, rtol=0, atol=1e-6)


def test_loaders_of_two_gpus_read_every_row_once(rows, tmp_path):
    place = "cpu" if ON_CPU else "gpu:0"
    found = found_by(start(2, tmp_path, program.read, rows, place), tmp_path)
    assert min(map(len, found)) > ROWS / 3
    assert sorted(found[0] + found[1]) == list(range(ROWS))


@pytest.mark.parametrize("shard", ["none", "row"])
def test_a_worker_that_dies_ends_the_other(tmp_path, shard):
    workers = start(2, tmp_path, program.until_one_fails, shard, "dies", 60)
    workers[1].join(150)
    assert workers[1].exitcode == -signal.SIGKILL
    (error,) = found_by(workers[:1], tmp_path, timeout=30)
    assert "Expected all 2 workers to train until the end. Received: worker 1 (local" in error


def test_a_worker_that_hangs_ends_the_other(tmp_path):
    """Its heartbeat goes on, and nothing ends the operation of NCCL that waits for it."""
    workers = start(2, tmp_path, program.until_one_fails, "none", "hangs", 20)
    try:
        (error,) = found_by(workers[:1], tmp_path, timeout=150)
    finally:
        workers[1].kill()
    assert error.startswith("Expected an answer of all 2 workers within 20 seconds")
    assert "NCCL_DEBUG=INFO" in error


def test_one_gpu_resumes_what_two_began(rows, tmp_path):
    run = tmp_path / "run"
    began = found_by(start(2, tmp_path, program.up_to, rows, run, 1), tmp_path)
    (resumed,) = found_by(start(1, tmp_path, program.up_to, rows, run, 2), tmp_path)
    (whole,) = found_by(start(1, tmp_path, program.up_to, rows, tmp_path / "whole", 2), tmp_path)
    np.testing.assert_allclose(began[0]["loss"], whole["loss"][:1], rtol=1e-2)
    np.testing.assert_allclose(resumed["loss"][-1:], whole["loss"][1:], rtol=1e-2)
