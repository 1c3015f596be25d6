"""A server under load for a time: no request fails, each is answered right, and nothing grows.

`make soak` takes SOAK_SECONDS and prints what it counted; without them it is a few seconds.
"""

import os
import time
from pathlib import Path

import keras
import numpy as np
import pytest
from pipelines import movielens
from server_processes import identity_of
from soak_clients import Clients

from exporter import ServingOptions, export_tensorflow_ensemble
from serving import EnsembleClient, TritonServer, check_parity
from serving.connection.shared_memory import PREFIX
from serving.embedded.supervisor import SHARED_MEMORY

SECONDS = float(os.environ.get("SOAK_SECONDS", "6"))
PUBLICATIONS = 2 if SECONDS < 60 else int(SECONDS // 20)
RUNTIMES = {"ensemble": "tensorflow", "fused": "fused_onnx"}
# What a run may grow by for its length, and for noise: pools of memory and of threads fill up.
MB_PER_HOUR = 10
NOISE = {"MB": 32, "descriptors": 4, "threads": 4, "shared kB": 0}


@pytest.fixture(scope="module")
def generations():
    """Two networks for one workflow, whose answers differ for each row."""
    first, second = movielens(), movielens()
    second.model = keras.models.clone_model(first.model)
    return first, second


def export(repository, pipeline, version):
    for name, runtime in RUNTIMES.items():
        serving = ServingOptions(runtime=runtime, max_batch_size=64)
        export_tensorflow_ensemble(
            pipeline.model, pipeline.workflow, name, repository, ["rating"], None, version,
            serving=serving,
        )  # fmt: skip


def publish(server, pipeline, version):
    export(server.model_repository, pipeline, version)
    for name in RUNTIMES:
        server.publish(name)


def proven_answers(server, pipeline):
    """The answers of both models, which the offline pipeline gives too."""
    answers = {}
    for name in RUNTIMES:
        with EnsembleClient(server.grpc_url, name) as client:
            assert check_parity(client, pipeline.workflow, pipeline.model, pipeline.rows)
            answers[name] = client.predict(pipeline.rows)["rating_score"].to_numpy()
    return answers


def resources(server):
    """Resident memory of a server's processes in MB, file descriptors, threads, shared memory in kB."""
    identity = identity_of(server)
    totals = dict.fromkeys(("MB", "descriptors", "threads"), 0)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if identity not in (folder / "cmdline").read_text():
                continue
            lines = (folder / "status").read_text().splitlines()
            status = dict(line.split(":", 1) for line in lines)
            totals["MB"] += int(status.get("RssAnon", "0 kB").split()[0]) / 1000
            totals["threads"] += int(status["Threads"])
            totals["descriptors"] += len([*(folder / "fd").iterdir()])
        except OSError:  # it has ended meanwhile
            continue
    shared = [*SHARED_MEMORY.glob(f"{identity}*"), *SHARED_MEMORY.glob(f"{PREFIX}*")]
    sizes = [path.stat().st_size for path in shared if path.exists()]
    return {**totals, "shared kB": sum(sizes) / 1000}


def quiet(server):
    """The resources once they have not changed for three seconds: connections end after a while."""
    found, since = resources(server), time.monotonic()
    deadline = since + 60
    while time.monotonic() < min(since + 3, deadline):
        time.sleep(0.2)
        now = resources(server)
        if any(now[name] != found[name] for name in ("descriptors", "threads", "shared kB")):
            found, since = now, time.monotonic()
    return found


def started(clients, server, file):
    """Four threads: gRPC, HTTP, shared memory, and processes that crash."""
    clients.ask(server.grpc_url, "ensemble")
    clients.ask(server.http_url, "fused")
    clients.ask(server.grpc_url, "fused", shared_memory=True, headers=server.admin_headers)
    key = next(iter(server.admin_headers.values()))
    clients.crash(server.grpc_url, "ensemble", file, key)
    return clients


def publish_under_load(server, pipelines):
    """Publish at equal distances of the time; returns how long all took."""
    begin = time.monotonic()
    for number in range(PUBLICATIONS):
        wait_until(begin + (number + 1) * SECONDS / (PUBLICATIONS + 1))
        publish(server, pipelines[number % 2], 4 + number)
    wait_until(begin + SECONDS)
    return time.monotonic() - begin


def wait_until(moment):
    while (left := moment - time.monotonic()) > 0:
        time.sleep(min(left, 1))


@pytest.mark.long
@pytest.mark.xdist_group("end_to_end")
def test_load_publications_and_crashing_clients(generations, tmp_path, request):
    first, second = generations
    rows, file = first.rows, tmp_path / "rows.parquet"
    rows.write_parquet(file)
    export(tmp_path / "models", first, 1)
    with TritonServer(tmp_path / "models") as server:
        expected = [proven_answers(server, first)]
        publish(server, second, 2)
        expected.append(proven_answers(server, second))
        assert not np.allclose(expected[0]["fused"], expected[1]["fused"], atol=1e-3)
        by_model = {name: [answers[name] for answers in expected] for name in RUNTIMES}
        with Clients(by_model, rows) as warm_up:
            started(warm_up, server, file).asked(50)
            publish(server, first, 3)
            warm_up.asked(100)
        before = quiet(server)
        with Clients(by_model, rows) as clients:
            started(clients, server, file)
            seconds = publish_under_load(server, (second, first))
        after = quiet(server)
    failed, wrong = warm_up.failed + clients.failed, warm_up.wrong + clients.wrong
    print(table(clients, seconds, before, after))  # noqa: T201 - what `make soak` is for
    request.node.user_properties.append(("tried", sum(clients.answers.values())))
    assert not failed, failed[:3]
    assert not wrong
    grown = {name: after[name] - before[name] - noise for name, noise in NOISE.items()}
    grown["MB"] -= MB_PER_HOUR * seconds / 3600
    assert {name: growth for name, growth in grown.items() if growth > 0} == {}


def table(clients, seconds, before, after):
    wrong = sum(clients.wrong.values())
    lines = [
        f"{seconds:.0f} s, {PUBLICATIONS} publications",
        f"{len(clients.failed)} requests failed, {wrong} answers were wrong",
        *(f"{name:>12} {count:>9,}" for name, count in clients.answers.items()),
        *(f"{name:>12} {before[name]:>9.0f} -> {after[name]:.0f}" for name in before),
    ]
    return "\n" + "\n".join(lines)
