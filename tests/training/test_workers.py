"""Several processes that train one model, each a worker of TF_CONFIG, on this machine's CPU."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from training import TrainingError, join_workers

PROGRAM = Path(__file__).with_name("train_together.py")
ROWS = 180

_spec = importlib.util.spec_from_file_location("train_together", PROGRAM)
program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(program)


def start(size, arguments, program=PROGRAM):
    """Processes with TF_CONFIG, and their output."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(size)]
        for one in sockets:
            one.bind(("localhost", 0))
        ports = [one.getsockname()[1] for one in sockets]
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    return [
        subprocess.Popen(
            [sys.executable, program, *map(str, arguments(rank))],
            env={
                **os.environ,
                "TF_CONFIG": json.dumps(
                    {"cluster": cluster, "task": {"type": "worker", "index": rank}}
                ),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Few users, so that workers look up the same ids; tags of rows whose lists have 0 to 5."""
    folder = tmp_path_factory.mktemp("together")
    random = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "user": random.integers(0, 9, ROWS).astype("int32"),
            "tags": [random.integers(0, 50, n).tolist() for n in random.integers(0, 6, ROWS)],
            "age": np.arange(ROWS, dtype="float32") / ROWS,
            "label": random.integers(0, 2, ROWS).astype("int8"),
        },
        schema_overrides={"tags": pl.List(pl.Int32)},
    )
    frame.write_parquet(folder / "rows.parquet", row_group_size=32)
    return folder


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.long)])
def found(folder, tmp_path_factory, request):
    results = tmp_path_factory.mktemp("results")
    workers = start(
        request.param, lambda rank: ["main", folder / "rows.parquet", results / f"{rank}.json"]
    )
    output = [worker.communicate(timeout=250)[0] for worker in workers]
    assert {worker.returncode for worker in workers} == {0}, "\n".join(output)[-4000:]
    return [json.loads((results / f"{rank}.json").read_text()) for rank in range(request.param)]


def joined(folder, lists, size):
    """For each epoch the batches of all workers, each step's as one."""
    loaders = [program.load(folder / "rows.parquet", lists, rank, size) for rank in range(size)]
    for _ in range(program.EPOCHS):
        epoch = [
            tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=0), *batches)
            for batches in zip(*loaders, strict=True)
        ]
        signature = tf.nest.map_structure(
            lambda part: tf.TensorSpec((None, 1), part.dtype), epoch[0]
        )
        yield tf.data.Dataset.from_generator(
            lambda epoch=epoch: iter(epoch), output_signature=signature
        ).apply(tf.data.experimental.assert_cardinality(len(epoch)))


@pytest.mark.parametrize("case", program.CASES)
def test_workers_train_as_one_with_their_batches_joined(found, folder, case):
    optimizer, lists = program.CASES[case]
    epochs = joined(folder, lists, len(found))
    model = program.make(lists)
    model.set_weights([np.array(weight) for weight in found[0][case]["initial"]])
    program.compile_model(model, optimizer(), metrics=["auc"], xla=not lists)
    one = [model.fit(epoch, verbose=0, shuffle=False).history for epoch in epochs]
    for worker in found:
        for name in ("loss", "auc"):
            expected = [epoch[name][0] for epoch in one]
            np.testing.assert_allclose(worker[case]["history"][name], expected, rtol=0, atol=1e-6)
        for own, expected in zip(worker[case]["weights"], model.get_weights(), strict=True):
            np.testing.assert_allclose(own, expected, rtol=0, atol=1e-6)
    first, *others = (worker[case] for worker in found)
    for other in others:
        assert first["initial"] != other["initial"]  # others take the first one's
        assert first["weights"] == other["weights"]  # bit for bit


def test_every_row_is_read_once(found):
    rows = [round(value * ROWS) for worker in found for value in worker["ages"]]
    assert sorted(rows) == list(range(ROWS))


@pytest.mark.parametrize(
    ("what", "messages"),
    [
        ("model", ["the same weights", "worker 0 (localhost:", "worker 1 (localhost:"]),
        ("optimizer", ["the same optimizer", "learning_rate=0.1", "learning_rate=1.1"]),
        ("batch_size", ["the same batch_size. Received: 20 on worker 0", "21 on worker 1"]),
        ("steps", ["the same number of steps in an epoch", "5 on worker 0", "9 on worker 1"]),
        ("epochs", ["the same number of epochs. Received: 1 on worker 0", "2 on worker 1"]),
        ("split", ["Expected split=True for several workers"]),
        ("rows", ["batches of as many rows on all workers. Received: 4 rows on", "5 on worker 1"]),
    ],
)
def test_workers_that_differ_are_an_error_on_all(found, what, messages):
    for worker in found:
        for message in messages:
            assert message in worker[what]


@pytest.mark.long
def test_a_worker_that_dies_ends_all_and_fewer_resume(folder, tmp_path):
    def arguments(rank):  # noqa: ARG001
        return ["main_until_one_dies", folder / "rows.parquet", tmp_path / "run"]

    workers = start(3, arguments)
    workers[2].communicate(timeout=200)
    assert workers[2].returncode == -signal.SIGKILL
    for worker in workers[:2]:
        worker.communicate(timeout=30)
    for rank in (0, 1):
        error = (tmp_path / f"run-3-{rank}").read_text()
        assert (
            "Expected all 3 workers to train until the end. Received: worker 2 (localhost" in error
        )
    for worker in start(2, arguments):
        worker.communicate(timeout=200)
    assert {(tmp_path / f"run-2-{rank}").read_text() for rank in (0, 1)} == {"nothing"}
    saved = json.loads((tmp_path / "run-checkpoint" / "checkpoint.json").read_text())
    assert saved["epoch"] == 3


@pytest.mark.parametrize(
    "config",
    [
        "{",
        "[]",
        '{"cluster": {"worker": ["a:1", "b:1"]}}',
        '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}}',
        '{"cluster": {"worker": ["a:1", 2]}, "task": {"type": "worker", "index": 0}}',
        '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}',
    ],
)
def test_a_wrong_tf_config_is_refused(config, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(TrainingError, match=r"Expected TF_CONFIG as .* Received: ") as raised:
        join_workers()
    assert str(raised.value).endswith(config)


def test_a_process_that_uses_tensorflow_already_cannot_join(monkeypatch):
    tf.zeros([1])
    cluster = {"worker": ["localhost:1", "localhost:2"]}
    config = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(TrainingError, match=r"Expected join_workers\(\) before TensorFlow is used"):
        join_workers()


def test_one_worker_alone_needs_no_others(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert (join_workers().size, join_workers().rank) == (1, 0)
