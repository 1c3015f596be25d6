"""A cluster learns in parts of the keys what one machine learns, also when workers are killed."""

import asyncio
import os
import pickle
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack

import dask
import numpy as np
import polars as pl
import pytest
from distributed import Client, LocalCluster
from distributed.core import Status
from killed_workers import kill_in, kill_receiver
from polars.testing import assert_frame_equal

from workflow import ColumnSchema, Schema, Workflow, WorkflowError, ops
from workflow.fit import cluster, learn_on_cluster
from workflow.fit.fit_graph import fit_graph, learn_of_no_rows
from workflow.fit.hash_parts import hash_parts
from workflow.fit.learn_on_cluster import Held

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("cluster")]

STEPS = "workflow.fit.learn_on_cluster"


@pytest.fixture(scope="module")
def clicks(tmp_path_factory):
    """Files of clicks by several hundred users; sums of the prices are exact in any order."""
    folder = tmp_path_factory.mktemp("clicks")
    random = np.random.default_rng(5)
    for number in range(10):
        user = random.zipf(1.2, 400) % 700 - 5
        frame = pl.DataFrame(
            {
                "user": [None if n == 3 else int(n) for n in user],
                "city": [None if n % 11 == 0 else f"é{n % 130}" for n in user],
                "tags": [[f"t{n % 90}", None][: n % 3] for n in user],
                "flag": [None if n % 7 == 0 else bool(n % 2) for n in user],
                "price": random.integers(0, 50, 400).astype(float),
            }
        )
        frame.write_parquet(folder / f"{number:02}.parquet")
    return folder


def make():
    few = {"freq_threshold": 3, "max_size": {"city": 40}}
    stats = ["count", "sum", "min", "max"]
    described = [["user", "flag"], "city"] >> ops.JoinGroupby(["price"], stats=stats)
    columns = (
        (["user", "city", "tags"] >> ops.Categorify(**few))
        + ([["user", "city"]] >> ops.Categorify(encode_type="combo", num_buckets=3, split_out=3))
        + described
        + ([["city", "flag"], "user"] >> ops.TargetEncoding("price"))
        + (["flag"] >> ops.DataStats() >> ops.Rename(postfix="_seen"))
        + (["price"] >> ops.FillMedian() >> ops.Rename(postfix="_filled"))
    )
    return Workflow(columns)


@pytest.fixture(scope="module")
def want(clicks, tmp_path_factory):
    """The files of the workflow that one machine has fitted."""
    return saved(make().fit(clicks), tmp_path_factory.mktemp("want") / "saved")


def saved(workflow, folder):
    workflow.save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def parts(client, monkeypatch):
    """Many parts of few rows, and what the client gets of them."""
    received, gather = [], client.gather

    def recorded(futures, **settings):
        results = gather(futures, **settings)
        received.extend(each.tables for each in results if isinstance(each, Held))
        return results

    monkeypatch.setattr(learn_on_cluster, "ROWS_OF_A_PART", 60)
    monkeypatch.setattr(client, "gather", recorded)
    return received


@pytest.mark.parametrize("protocol", [4, 5])
def test_tables_keep_their_types_on_their_way(protocol):
    table = pl.DataFrame(
        {
            "key": pl.Series(["a", None], dtype=pl.Enum(["a", "b"])),
            "sum": pl.Series([1, 2**100], dtype=pl.Int128),
            "day": pl.Series([1, None], dtype=pl.Datetime("us", "Asia/Tokyo")),
            "values": [[1.5, None], []],
        }
    )
    sent = pickle.dumps(Held({(0, "a"): table, (1, "b"): table[:0]}), protocol)
    held = pickle.loads(sent)  # noqa: S301 - made here
    assert_frame_equal(held.tables[0, "a"], table)
    assert_frame_equal(held.tables[1, "b"], table[:0])


def test_a_sum_of_hundreds_of_columns_reaches_the_workers(client, tmp_path):
    names = [f"c{number}" for number in range(1_000)]
    pl.DataFrame({name: [1.0, 3.0] for name in names}).write_parquet(tmp_path / "wide.parquet")
    total = ops.LambdaOp(lambda _, df: sum(df[n] for n in names[1:]), dependency=names[1:])
    workflow = Workflow(["c0"] >> total >> ops.NormalizeMinMax())
    made = workflow.fit(tmp_path, client=client).transform(tmp_path).collect()
    assert made["c0"].to_list() == [0.0, 1.0]


def test_another_fit_sends_nothing_of_the_one_before():
    """Its vocabularies would go to each worker, in the node that remembers its workflow."""
    sizes = []
    workflow = Workflow(["user"] >> ops.Categorify())

    def learn(learning):
        sizes.append(len(pickle.dumps(learning)))
        return learn_of_no_rows(learning)

    for _ in range(2):
        fit_graph(workflow.nodes, Schema([ColumnSchema("user", "int64")]), learn)
        workflow.fit({"user": range(5_000)})
    assert sizes[0] == sizes[1]


def test_tables_merged_in_parts_are_those_of_one_machine(client, clicks, want, parts, tmp_path):
    assert saved(make().fit(clicks, client=client), tmp_path / "saved") == want
    assert len(parts) > 20
    keys = Counter(
        (place, key)
        for part in parts
        for place, table in part.items()
        if "key0" in table.columns
        for key in table.select(pl.col("^key.*$")).rows()
    )
    # Each key is in one part: no worker has more of a table than its parts.
    assert len(keys) > 1000
    assert set(keys.values()) == {1}


def test_ids_that_are_floats_beside_missing_ones_are_learnt_as_on_one_machine(client, tmp_path):
    (tmp_path / "data").mkdir()
    for number, ids in enumerate([[7.0, float("nan"), 9.0], [None, 7.0, 2.0]]):
        frame = pl.DataFrame({"id": ids, "ids": [ids, [], [9.0]], "price": [1.0, 2.0, 4.0]})
        frame.write_parquet(tmp_path / "data" / f"{number}.parquet")
    workflow = Workflow(
        (["id", "ids"] >> ops.Categorify()) + (["id"] >> ops.TargetEncoding("price", kfold=1))
    ).fit(tmp_path / "data", client=client)
    files = workflow.transform_to_parquet(tmp_path / "data", tmp_path / "out", client=client)
    made = pl.concat(map(pl.read_parquet, files))
    # By frequency, ties by value: of `id` 7, 2, 9, and of `ids` 9, 7, 2.
    assert made["id"].to_list() == [3, 1, 5, 1, 3, 4]
    assert made["ids"].to_list() == [[4, 1, 3], [], [3], [1, 4, 5], [], [3]]
    mean = 14 / 6
    wanted = [(sum(own) + 20 * mean) / (len(own) + 20) for own in ([1, 2], [2, 1], [4], [4])]
    first = [wanted[0], wanted[1], wanted[2], wanted[1], wanted[0], wanted[3]]
    np.testing.assert_allclose(made["TE_id_price"].to_numpy(), first, rtol=1e-6)
    assert workflow.training_data.columns["price"].maximum == 4
    pl.DataFrame({"id": [0.5]}).write_parquet(tmp_path / "half.parquet")
    with pytest.raises(
        WorkflowError, match=r"needs integers, .*'id', float64\?, with 0\.5 in row 0"
    ):
        Workflow(["id"] >> ops.Categorify()).fit(tmp_path / "half.parquet", client=client)


def test_several_workers_merge_tables_that_are_not_cut(
    client, clicks, parts, monkeypatch, tmp_path
):
    described = ["user"] >> ops.JoinGroupby(["price"], stats=["count", "sum"])
    workflow = Workflow(
        (["user", "city", "tags"] >> ops.Categorify()) + described + (["price"] >> ops.FillMedian())
    )
    want = saved(workflow.fit(clicks), tmp_path / "want")
    monkeypatch.setattr(learn_on_cluster, "ROWS_OF_A_PART", 2_000)
    assert saved(workflow.fit(clicks, client=client), tmp_path / "saved") == want
    places = Counter(place for part in parts for place in part)
    assert set(places.values()) == {1}
    first, second = parts
    assert sum("key0" in t.columns for t in first.values()) == 2
    assert sum("key0" in t.columns for t in second.values()) == 2


def test_a_client_that_cannot_connect_to_workers_asks_the_scheduler(
    client, clicks, want, tmp_path, monkeypatch
):
    assert cluster.reaches_workers(client)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        closed = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
    threads = client.nthreads()
    monkeypatch.setattr(client, "nthreads", lambda: threads | {closed: 1})
    assert not cluster.reaches_workers(client)
    assert saved(make().fit(clicks, client=client), tmp_path / "saved") == want


def test_rare_values_stay_on_the_workers(client, clicks, parts):
    workflow = Workflow(["user"] >> ops.Categorify(freq_threshold=4, max_size=53))
    workflow.fit(clicks, client=client)
    seen = Counter(n for n in pl.read_parquet(clicks)["user"].to_list() if n is not None)
    often = sorted((n for n in seen if seen[n] >= 4), key=lambda n: (-seen[n], n))
    values = workflow.reverse_mapping("user").filter(kind="value")["value"].to_list()
    assert values == often[:50]
    arrived = [table for part in parts for table in part.values() if "key0" in table.columns]
    assert 50 <= sum(table.height for table in arrived) <= 50 * len(arrived)
    assert min(table["count"].min() for table in arrived if table.height) >= 4


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize(
    "step",
    [
        "learn_parts",
        "merge_tables",
        pytest.param("hash_parts", marks=pytest.mark.long),
        pytest.param("by_operator", marks=pytest.mark.long),
    ],
)
def test_a_worker_killed_in_fit_loses_nothing(client, clicks, want, tmp_path, step):
    kill_in(client, STEPS, step, tmp_path / "killed")
    assert saved(make().fit(clicks, client=client), tmp_path / "saved") == want
    assert (tmp_path / "killed").exists()
    client.wait_for_workers(2, timeout=600)


@pytest.mark.timeout(120)
def test_a_worker_killed_as_it_receives_what_all_get_loses_nothing(client, clicks, want, tmp_path):
    kill_receiver(client, tmp_path / "killed")
    assert saved(make().fit(clicks, client=client), tmp_path / "saved") == want
    assert (tmp_path / "killed").exists()
    client.wait_for_workers(2, timeout=600)


def test_the_loss_of_all_workers_at_once_loses_nothing(client, clicks, want, tmp_path, monkeypatch):
    gather, restarts = client.gather, []

    def restarted(futures, **settings):
        results = gather(futures, **settings)
        if not restarts:  # of the sizes, before the tables are merged
            restarts.append(client.restart(timeout=600))
        return results

    monkeypatch.setattr(client, "gather", restarted)
    assert saved(make().fit(clicks, client=client), tmp_path / "saved") == want
    assert restarts


def test_a_task_that_kills_each_worker_is_our_error(client, clicks, tmp_path):
    def allow(dask_scheduler, count):
        dask_scheduler.allowed_failures = count

    client.run_on_scheduler(allow, count=0)
    kill_in(client, STEPS, "learn_parts", tmp_path / "killed")
    try:
        with pytest.raises(WorkflowError, match=r"survive their tasks\. Received: .*memory"):
            make().fit(clicks, client=client)
    finally:
        client.run_on_scheduler(allow, count=3)
        client.wait_for_workers(2, timeout=600)


def test_a_cluster_without_workers_is_refused(clicks, monkeypatch):
    monkeypatch.setattr(cluster, "WAIT_FOR_WORKERS", 0.1)
    with (
        LocalCluster(n_workers=0, dashboard_address=":0", processes=False) as empty,
        Client(empty) as client,
        pytest.raises(WorkflowError, match=r"with workers\. Received: .*none connected"),
    ):
        make().fit(clicks, client=client)


def test_workers_that_leave_and_a_closed_client_are_refused(clicks, monkeypatch):
    with (
        dask.config.set({"distributed.worker.memory.pause": False}),  # else it resumes workers
        LocalCluster(n_workers=1, dashboard_address=None, processes=False) as paused,
    ):
        with Client(paused, timeout=2) as client:

            def leave(*_):  # after the wait for a worker
                client.run(pause)
                until = time.monotonic() + 60
                while paused.scheduler.running and time.monotonic() < until:
                    time.sleep(0.01)

            monkeypatch.setattr(learn_on_cluster, "expect_own_gpus", leave)
            with pytest.raises(WorkflowError, match=r"take tasks\. Received: .*closing or paused"):
                make().fit(clicks, client=client)
        with pytest.raises(WorkflowError, match=r"connected to a cluster\. Received: a closed one"):
            make().fit(clicks, client=client)


def test_a_client_whose_calls_have_to_be_awaited_is_refused(clicks):
    async def fit():
        async with Client(
            n_workers=0, processes=False, dashboard_address=None, asynchronous=True
        ) as client:
            make().fit(clicks, client=client)

    with pytest.raises(WorkflowError, match=r"Received: one with asynchronous=True\. Make another"):
        asyncio.run(fit())


def pause(dask_worker):
    dask_worker.status = Status.paused


@pytest.fixture
def own_cluster(tmp_path):
    """A client of a scheduler and a worker that are processes, and the scheduler."""
    file = tmp_path / "scheduler.json"
    with ExitStack() as stack:

        def start(module, *arguments):
            command = [sys.executable, "-m", f"distributed.cli.{module}", "--scheduler-file", file]
            process = stack.enter_context(
                subprocess.Popen([*command, "--no-dashboard", *arguments])
            )
            stack.callback(process.kill)
            return process

        scheduler = start("dask_scheduler", "--host", "127.0.0.1", "--port", "0")
        start("dask_worker", "--no-nanny")
        stack.enter_context(dask.config.set({"distributed.comm.timeouts.connect": "10s"}))
        client = stack.enter_context(Client(scheduler_file=str(file)))
        client.wait_for_workers(1)
        yield client, scheduler


@pytest.mark.long
@pytest.mark.parametrize("step", ["expect_readable", "_merge"])
def test_a_scheduler_that_ends_is_named(own_cluster, clicks, monkeypatch, step):
    client, scheduler = own_cluster
    go_on = getattr(learn_on_cluster, step)

    def without_scheduler(*arguments):
        scheduler.kill()
        scheduler.wait()
        return go_on(*arguments)

    monkeypatch.setattr(learn_on_cluster, step, without_scheduler)
    with pytest.raises(WorkflowError, match="Expected a scheduler that runs until the call"):
        make().fit(clicks, client=client)


def test_workers_that_would_share_a_gpu_are_refused(client, monkeypatch):
    monkeypatch.setattr(cluster, "is_gpu", lambda _: True)
    with pytest.raises(WorkflowError, match=r"Received: tcp://.* and tcp://.*, which both use GPU"):
        cluster.expect_own_gpus("gpu", client)


def test_workers_with_gpus_of_their_own_are_accepted(client, monkeypatch):
    monkeypatch.setattr(cluster, "is_gpu", lambda _: True)
    workers = [*client.nthreads()]

    def give(*visible):
        # A bound method of `os.environ` would take a copy of this process' environment with it.
        for worker, devices in zip(workers, visible, strict=True):
            client.run(
                lambda d: os.environ.update(CUDA_VISIBLE_DEVICES=d), devices, workers=[worker]
            )

    try:
        give("0", "1,0")
        cluster.expect_own_gpus("gpu", client)
        give("1", "1,0")
        with pytest.raises(WorkflowError, match="which both use GPU 1"):
            cluster.expect_own_gpus("gpu", client)
        give("", "0,1")  # without the variable a process uses the first one
        with pytest.raises(WorkflowError, match="which both use GPU 0"):
            cluster.expect_own_gpus("gpu", client)
    finally:
        client.run(lambda: os.environ.pop("CUDA_VISIBLE_DEVICES", None))


def test_equal_keys_of_any_width_and_order_meet_in_one_part():
    numbers = list(range(-400, 400))
    narrow = pl.DataFrame({"key0": pl.Series(numbers, dtype=pl.Int16), "key1": "x"})
    wide = pl.DataFrame({"key0": numbers[::-1], "key1": "x"})
    cut = hash_parts(narrow, ["key0", "key1"], 8)
    assert sorted(key for part in cut for key in part["key0"]) == numbers
    for one, other in zip(cut, hash_parts(wide, ["key0", "key1"], 8), strict=True):
        assert set(one["key0"]) == set(other["key0"])
        # 800 keys in 8 parts: a binomial deviation of 9.
        assert 55 < one.height < 145


@pytest.mark.parametrize("keys", [[2**60 + n for n in range(100)], [False, True]])
def test_a_null_key_beside_others_leaves_those_in_their_parts(keys):
    """The null is in the files of some workers only, whose parts are merged with those of the others."""
    tables = (pl.DataFrame({"key0": column}) for column in (keys, [*keys, None]))
    for part, beside in zip(*(hash_parts(t, ["key0"], 8) for t in tables), strict=True):
        assert set(beside["key0"]) - {None} == set(part["key0"])
