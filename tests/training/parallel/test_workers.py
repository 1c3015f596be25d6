"""Several processes that train one model, each a worker of TF_CONFIG, on this machine's CPU."""

import json
import re
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf
import train_together as program
from worker_processes import found_by, start

from training import TrainingError, Workers, compile_model, join_workers
from training.parallel.failures import lost_workers
from training.parallel.meeting import meet

ROWS = 180


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Few users, so that workers look up the same ids; tags of rows whose lists have 0 to 5."""
    random = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "user": random.integers(0, 9, ROWS).astype("int32"),
            "tags": [random.integers(0, 50, n).tolist() for n in random.integers(0, 6, ROWS)],
            "age": np.arange(ROWS, dtype="float32") / ROWS,
            "label": random.integers(0, 2, ROWS).astype("int8"),
            # Of unequal sums on the workers.
            "weight": np.linspace(0, 1.5, ROWS) ** 2,
        },
        schema_overrides={"tags": pl.List(pl.Int32)},
    )
    file = tmp_path_factory.mktemp("together") / "rows.parquet"
    frame.write_parquet(file, row_group_size=32)
    return file


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.long)])
def found(rows, tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("results")
    size = request.param
    return found_by(
        start(size, folder, program.joined_and_different, rows, chief=size == 3), folder
    )


def joined(rows, case, size):
    """The batches of all workers in each epoch, each step's as one."""
    loaders = [program.load(rows, case, rank, size) for rank in range(size)]
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
def test_workers_train_as_one_with_their_batches_joined(found, rows, case):
    epochs = joined(rows, case, len(found))
    model = program.make(case)
    model.set_weights([np.array(weight) for weight in found[0][case]["initial"]])
    settings, measures = program.MEASURED[case]
    compile_model(model, program.CASES[case](), **settings)
    one = [model.fit(epoch, verbose=0, shuffle=False).history for epoch in epochs]
    for worker in found:
        for name in ("loss", *measures):
            expected = [epoch[name][0] for epoch in one]
            np.testing.assert_allclose(worker[case]["history"][name], expected, rtol=0, atol=1e-6)
        for own, expected in zip(worker[case]["weights"], model.get_weights(), strict=True):
            np.testing.assert_allclose(own, expected, rtol=0, atol=1e-6)
    first, *others = (worker[case] for worker in found)
    for other in others:
        assert first["initial"] != other["initial"]  # others take the first one's
        assert first["weights"] == other["weights"]  # bit for bit
        assert first["history"] == other["history"]  # validation too


def test_every_row_is_read_once(found):
    rows = [round(value * ROWS) for worker in found for value in worker["ages"]]
    assert sorted(rows) == list(range(ROWS))


def test_moving_averages_are_the_mean_of_those_of_the_workers(found):
    batches = np.stack([program.numbers(rank) for rank in range(len(found))])
    mean, variance = 0.0, 1.0
    for _ in range(2):
        for step in range(2):
            mean = 0.5 * mean + 0.5 * batches[:, step].mean(axis=1).mean()
            variance = 0.5 * variance + 0.5 * batches[:, step].var(axis=1).mean()
    for worker in found:
        assert worker["moving"]["weights"] == found[0]["moving"]["weights"]
        assert worker["moving"]["mean"][4] == pytest.approx(mean, abs=1e-5)
        assert worker["moving"]["variance"][4] == pytest.approx(variance, abs=1e-5)


def test_only_what_changes_is_exchanged(found):
    normalization, dense, loss = 4 * 5, 5 + 1, 2
    for worker in found:
        assert sum(worker["moving"]["sent"]) == normalization + dense + loss  # and no table


def test_a_repeated_row_is_sent_once(found):
    for worker in found:
        # A matrix of one row, and then rows and values, padded to the least length; 60 need 60.
        assert sorted(set(worker["repeated"])) == [1, 32]


def test_operations_leave_no_threads_behind(found):
    for worker in found:
        assert worker["threads"] < 20  # of some hundred operations


@pytest.mark.parametrize(
    ("what", "messages"),
    [
        ("weights", ["the same weights", "worker 0 (localhost:", "worker 1 (localhost:"]),
        ("layers", ["the same layers", "Dropout"]),
        ("frozen", ["the same frozen weights. Received: 0 of them on worker 0"]),
        ("optimizer", ["the same optimizer", "learning_rate=0.1", "learning_rate=1.1"]),
        ("batch_size", ["the same batch_size. Received: 20 on worker 0", "21 on worker 1"]),
        ("steps", ["the same number of steps in an epoch. Received: 5 on worker 0", "9 on worker"]),
        ("seed", ["the same seed of the loader. Received: 3 on worker 0", "4 on worker 1"]),
        ("seed of rows in order", ["nothing"]),
        ("order", ["the same order of rows, by the loader's row groups, shuffle, "]),
        ("data", ["the same data of the loader. Received: 180 rows, ", "on worker 0 (localhost:"]),
        ("fit", ["the same fit of the features. Received: user=digest 0 on worker 0"]),
        ("share", ["global_rank=1 of the loader on worker 1 (localhost:", "global_rank=0."]),
        ("shares", ["of the loader on worker 0 (localhost:", "and global_rank=0."]),
        ("whole", ["rows of its own for each worker", "180 rows, ", "on worker 0 (localhost:"]),
        ("begun", ["the same epoch of the loader, ", "Received: 1 on worker 0", "0 on worker 1"]),
        ("drawn seed", ["the same seed of the loader. Received: 5 on worker 0", "6 on worker 1"]),
        ("seed of a mapped one", ["the same seed of the loader. Received: 3 on", "4 on worker 1"]),
        ("data of a repeated one", ["the same data of the loader. Received: 180 rows, "]),
        ("all rows of a mapped one", ["rows of its own for each worker", "180 rows, "]),
        ("first batches, of own choice", ["nothing"]),
        ("share in fit", ["global_rank=1 of the loader on worker 1", "global_rank=0."]),
        ("seed in a second fit", ["the same seed of the loader. Received: 3 on", "4 on worker 1"]),
        ("other data in fit", ["the same kind of data. Received: other data than a loader on"]),
        ("epochs", ["the same number of epochs. Received: 1 on worker 0", "2 on worker 1"]),
        ("split", ["Expected split=True for several workers"]),
        ("loss", ["the mean over rows", 'Received: BinaryCrossentropy(reduction="sum")']),
        ("losses", ["the same loss. Received: binary_crossentropy on worker 0", "mse on worker 1"]),
        ("loss_weights", ["the same loss_weights. Received: 1.0 on worker 0", "2.0 on worker 1"]),
        ("metrics", ["the same metrics. Received: mae on worker 0", "mse on worker 1"]),
        ("largest", ["whose state is a sum", "Received: 'largest' of Largest, whose state"]),
        ("class_weight", ["the same class_weight. Received: 1=1.0 on worker 0", "1=2.0 on worker"]),
        ("writes", ["the first"]),
        ("workers", ["Expected workers as join_workers() returns it. Received: "]),
        ("no rows", ["in epoch 1 4 rows on worker 0 (localhost:", "0 on worker 1", "global_rank"]),
    ],
)
def test_workers_that_differ_are_an_error_on_all(found, what, messages):
    for worker in found:
        for message in messages:
            assert message in worker["refused"][what]


def test_workers_with_and_without_a_gpu_are_an_error_on_all(tmp_path):
    for error in found_by(start(2, tmp_path, program.on_cpu_and_gpu), tmp_path):
        assert "of one kind for all workers. Received: a CPU on worker 0 (localhost:" in error
        assert "a GPU (NVIDIA H100, 81.6 GB) on worker 1 (localhost:" in error
        assert "CUDA_VISIBLE_DEVICES=-1" in error


def test_workers_that_share_a_gpu_are_an_error_on_all(tmp_path):
    for error in found_by(start(2, tmp_path, program.on_one_gpu), tmp_path):
        assert "Received: a GPU (NVIDIA H100, 81.6 GB) for both worker 0 (localhost:" in error
        assert " and worker 1 (localhost:" in error
        assert "CUDA_VISIBLE_DEVICES=<number of its GPU>" in error


def test_unlike_gpus_are_a_warning_of_the_first_worker(found):
    first, *others = (worker["unlike"] for worker in found)
    for other in others:
        assert other == {"name": [], "memory": [], "driver": []}
    (name,), (memory,) = first["name"], first["memory"]
    assert "a GPU (A, 80 GB) on worker 0 (localhost:" in name
    assert f"a GPU (B, 80 GB) on worker {len(others)} (localhost:" in name
    assert f"a GPU (A, 40 GB) on worker {len(others)} (localhost:" in memory
    assert first["driver"] == []


@pytest.mark.long
def test_batches_of_unequal_rows_are_an_error_on_all(tmp_path):
    for error in found_by(start(2, tmp_path, program.unequal_rows), tmp_path):
        assert "as many rows on all workers. Received: 4 rows on worker 0 (localhost" in error
        assert "5 on worker 1" in error


@pytest.mark.long
def test_a_loader_that_one_worker_reads_between_epochs_is_an_error_on_all(rows, tmp_path):
    for error in found_by(start(2, tmp_path, program.read_between_epochs, rows), tmp_path):
        assert (
            "the same epoch with the same seed. Received: epoch 2 with seed 3 on worker 0" in error
        )
        assert "epoch 1 with seed 3 on worker 1" in error


@pytest.mark.long
def test_a_learning_rate_that_one_worker_changes_is_an_error_on_all(rows, tmp_path):
    for error in found_by(start(2, tmp_path, program.slower_on_one, rows), tmp_path):
        assert (
            "the same learning rate on all workers, without which their weights differ. Received: "
            "in epoch 2 0.5 on worker 0 (localhost:"
        ) in error
        assert "0.01 on worker 1" in error


def test_an_overflow_of_one_worker_skips_the_step_on_all(tmp_path):
    first, second = found_by(start(2, tmp_path, program.reduced_precision), tmp_path)
    assert first == second  # bit for bit
    assert first["float16"]["changed"] == [False, True, True]
    before, *after = first["float16"]["scales"]
    assert {*after} == {before}
    assert np.isfinite([v for w in first["bfloat16"]["weights"] for v in np.ravel(w)]).all()


def test_a_worker_that_dies_ends_all_and_fewer_resume(rows, tmp_path):
    run = tmp_path / "run"
    workers = start(3, tmp_path, program.until_one_dies, rows, run, chief=True)
    workers[2].join(200)
    assert workers[2].exitcode == -signal.SIGKILL
    for error in found_by(workers[:2], tmp_path, timeout=30):
        assert "Expected all 3 workers to train until the end. Received: worker 2 (local" in error
    first, second = found_by(start(2, tmp_path, program.resumed, rows, run), tmp_path)
    # Keras names one layer of a set, another one in another process.
    for answer in (first, second):
        assert "Expected the model of the checkpoint" in answer.pop("other model")
    assert first == second
    assert first["error"] == "nothing"
    keras.utils.set_random_seed(0)
    model = program.make("lists")
    compile_model(model, "adam")
    three, two = ([*joined(rows, "lists", size)] for size in (3, 2))
    for epoch in (three[0], two[1]):
        model.fit(epoch, verbose=0, shuffle=False)
    for own, expected in zip(first["weights"], model.get_weights(), strict=True):
        np.testing.assert_allclose(own, expected, rtol=0, atol=1e-6)
    assert "the same first epoch, from the checkpoint. Received: 2 on wor" in first["elsewhere"]
    assert json.loads((run / "checkpoint.json").read_text())["epoch"] == 2


@pytest.mark.long
@pytest.mark.parametrize("frozen", [0, 1])
def test_a_worker_out_of_reach_is_named_by_the_other(rows, tmp_path, frozen):
    """The service that asks who lives runs in the first one, so that the second one hears nothing of it."""
    workers = start(2, tmp_path, program.until_one_freezes, rows, frozen)
    workers[1 - frozen].join(200)
    workers[frozen].kill()
    error = json.loads((tmp_path / str(1 - frozen)).read_text())["found"]
    name = f"worker {frozen} (localhost:"
    assert f"Expected all 2 workers to train until the end. Received: {name}" in error


@pytest.mark.long
def test_a_machine_that_is_paused_ends_no_run(rows, tmp_path):
    """TensorFlow's own limit is ten seconds."""
    assert found_by(start(2, tmp_path, program.paused_together, rows, 1_500, 20), tmp_path) == [
        "nothing",
        "nothing",
    ]


@pytest.mark.long
def test_workers_whose_machine_was_paused_for_too_long_say_so(rows, tmp_path):
    for error in found_by(start(2, tmp_path, program.paused_together, rows, 600, 35), tmp_path):
        assert re.match(
            r"Expected this worker, worker [01] \(localhost:\d+\), to be heard by the others at least "
            "every 20 seconds. Received: a silence longer than that",
            error,
        )


@pytest.mark.long
def test_a_worker_that_is_started_again_alone_ends_in_time(tmp_path):
    """Its place is that of the one that died, as long as the others run."""
    first, second = start(2, tmp_path, program.started_again)
    second.join(200)
    assert second.exitcode == -signal.SIGKILL
    (error,) = found_by([first], tmp_path)
    assert "started with this one and within 5 seconds. Received: " in error
    assert "end all of them, and start them together" in error


@pytest.mark.long
def test_an_epoch_that_workers_resume_has_the_metrics_of_all_its_rows(rows, tmp_path):
    found = found_by(start(2, tmp_path, program.stopped_within_an_epoch, rows, tmp_path), tmp_path)
    for answer in found:
        assert "the same checkpoint, by the checksum of its weights. Received: " in answer.pop(
            "elsewhere"
        )
    for whole, resumed in (answer.values() for answer in found):
        assert resumed["history"].keys() == {"auc", "loss"}
        for name, values in resumed["history"].items():
            np.testing.assert_allclose(values, whole["history"][name][1:], rtol=1e-6, err_msg=name)
        for own, expected in zip(resumed["weights"], whole["weights"], strict=True):
            np.testing.assert_allclose(own, expected, rtol=0, atol=1e-6)


def test_workers_validate_with_a_metric_of_a_number_for_each_class(tmp_path):
    first, second = found_by(start(2, tmp_path, program.several_classes), tmp_path)
    assert first.pop("samples") == second.pop("samples") == 2 * 30  # its own rows of each
    names = ["loss", *(f"f1_score[{number}]" for number in range(3))]
    assert first.keys() == {*names, *(f"val_{name}" for name in names)}
    assert first == second  # the first one's numbers on all


def test_a_worker_that_is_done_waits_for_the_others(tmp_path):
    """Parts that it has sent may be on their way when it has nothing more to do."""
    assert found_by(start(2, tmp_path, program.slow_first), tmp_path) == [["0", "1"]] * 2


@pytest.mark.long
def test_a_worker_that_hangs_ends_the_others(rows, tmp_path):
    workers = start(2, tmp_path, program.until_one_hangs, rows, tmp_path / "0")
    workers[0].join(200)
    error = json.loads((tmp_path / "0").read_text())["found"]
    assert error.startswith("Expected an answer of all 2 workers within 20 seconds")
    workers[1].join(60)
    assert workers[1].exitcode is not None


def test_an_error_names_the_workers_at_fault_with_a_chief():
    workers = Workers(3, 0, ("a:1", "b:1", "c:1"), chiefs=1)
    message = (
        "Collective ops is aborted by: from /job:worker/replica:0/task:1 and /job:chief/task:0"
    )
    assert lost_workers(workers, message) == "worker 2 (c:1)"


def test_an_address_of_two_workers_is_refused(monkeypatch):
    config = '{"cluster": {"chief": ["a:1"], "worker": ["b:1", "a:1"]}, "task": {"type": "chief", "index": 0}}'
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(TrainingError, match=r"address of its own.*more than once: a:1\. "):
        join_workers(timeout=3)


@pytest.mark.parametrize(
    ("masked", "ignored", "received"),
    [
        (True, None, "a mask on an output"),
        (False, 0, r"SparseCategoricalCrossentropy\(ignore_class=0\)"),
    ],
)
def test_a_loss_that_leaves_entries_out_is_refused(masked, ignored, received):
    """Each worker has another number of them, so that the mean of its means is not that of all rows."""
    ids = keras.Input((3,), name="ids", dtype="int64")
    vectors = keras.layers.Embedding(6, 4, mask_zero=masked)(ids)
    model = keras.Model(ids, keras.layers.Dense(5, "softmax")(vectors))
    loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=ignored)
    workers = Workers(2, 0, ("a:1", "b:1"))
    with pytest.raises(TrainingError, match=f"mean over all entries.* Received: {received}"):
        compile_model(model, "sgd", loss, workers=workers)


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


@pytest.fixture
def free():
    """Addresses of ports that nobody uses."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
        for one in sockets:
            one.bind(("", 0))
        return [f"localhost:{one.getsockname()[1]}" for one in sockets]


def test_a_worker_that_never_starts_is_named(free):
    text = (
        "Expected all 3 workers to start within 2 seconds, the timeout of join_workers. Received: "
        f"no connection to worker 2 ({free[2]})."
    )
    with ThreadPoolExecutor() as pool:
        errors = [pool.submit(meet, free, rank, 2.0).exception() for rank in (0,)]
        assert f"worker 1 ({free[1]}), worker 2 ({free[2]})" in str(errors[0])
        waiting = [pool.submit(meet, free, rank, 2.0) for rank in (0, 1)]
        for one in waiting:
            assert text in str(one.exception())


@pytest.mark.parametrize(
    ("host", "family"),
    [
        ("localhost", socket.AF_INET),
        pytest.param(
            "[::1]",
            socket.AF_INET6,
            marks=pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6"),
        ),
    ],
)
def test_workers_that_start_one_after_another_meet(free, host, family):
    free = [address.replace("localhost", host) for address in free]
    all_met = threading.Barrier(3, timeout=60)

    def begin(rank):
        meet(free, rank, 60.0)
        port = int(free[rank].rpartition(":")[2])
        with socket.create_server(("", port), family=family):  # as TensorFlow's
            all_met.wait()

    with ThreadPoolExecutor() as pool:
        first = [pool.submit(begin, rank) for rank in (0, 2)]
        assert not any(one.done() for one in first)
        for one in [*first, pool.submit(begin, 1)]:
            one.result()


@pytest.mark.parametrize("address", ["", "localhost", "localhost:port", "localhost:99999999"])
def test_an_address_without_a_port_is_an_error(address, free):
    with pytest.raises(TrainingError, match=f"Expected a free port.* for {address}"):
        meet([address, free[0]], 0, 1.0)


def test_a_port_that_is_taken_is_an_error(free):
    error = pytest.raises(TrainingError, match=r"Expected a free port at .* Received: .* in use")
    with socket.create_server(("", int(free[0].rpartition(":")[2]))), error:
        meet(free, 0, 1.0)


def test_one_worker_alone_needs_no_others(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert (join_workers().size, join_workers().rank) == (1, 0)


@pytest.mark.parametrize("timeout", [0, float("nan"), float("inf"), True, "600"])
def test_a_timeout_that_no_clock_counts_is_refused(timeout, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(
        TrainingError, match=r"timeout as seconds above 0 and up to 1e\+09\. Received: "
    ):
        join_workers(timeout)
    assert join_workers(np.int64(600)).size == 1
