"""A server that repairs itself: processes of it are killed or stopped, and it answers again."""

import errno
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest
from generations import ROWS, export, generation_of
from polars.testing import assert_frame_equal
from served_rows import EXPECTED, FRAME
from server_processes import identity_of, processes

from exporter import rollback
from serving import ClientError, EnsembleClient, TritonServer
from serving.embedded import server as server_module
from serving.embedded.healing import kill_instances
from serving.embedded.installation import find_tritonserver
from serving.embedded.publication import LiveServer


@pytest.fixture(scope="module")
def healed(repository):
    with TritonServer(repository, heal=True) as server:
        yield server


@pytest.fixture
def process_of(healed):
    """The server's process, or that of a model's instance."""

    def find(name):
        for pid, program in processes(identity_of(healed)).items():
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if program == name or f"{name}_0_0" in words:
                return pid
        raise LookupError(name)

    return find


def answers(client):
    try:
        return client.predict(FRAME, timeout=2)
    except ClientError:
        return None


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("prepare", signal.SIGKILL),
        ("prepare", signal.SIGSTOP),
        ("tritonserver", signal.SIGKILL),
        pytest.param("network", signal.SIGKILL, marks=pytest.mark.long),
        pytest.param("network", signal.SIGSTOP, marks=pytest.mark.long),
        pytest.param("tritonserver", signal.SIGSTOP, marks=pytest.mark.long),
    ],
)
def test_it_answers_again(healed, process_of, wait_for, name, sent):
    addresses = healed.grpc_url, healed.http_url, healed.admin_headers
    starts = healed.log_path.read_text().count("Started GRPCInferenceService")
    with EnsembleClient(healed.grpc_url, "movies", retries=0) as client:
        hit = process_of(name)
        os.kill(hit, sent)
        assert answers(client) is None
        wait_for(lambda: answers(client) is not None, seconds=60)
        assert_frame_equal(client.predict(FRAME), EXPECTED)
    wait_for(healed.is_ready)
    assert (healed.grpc_url, healed.http_url, healed.admin_headers) == addresses
    # A stopped process is not left behind, and another model's is not replaced.
    wait_for(lambda: hit not in processes(identity_of(healed)))
    restarts = healed.log_path.read_text().count("Started GRPCInferenceService") - starts
    assert restarts == (name == "tritonserver")


def test_processes_of_another_server_with_the_model_are_left_alone(repository, wait_for):
    with TritonServer(repository, ["prepare"]) as server:
        with TritonServer(repository, ["prepare"]) as broken:
            running, identity = processes(identity_of(server)), identity_of(broken)
            kill_instances(identity, "prepare")
            wait_for(lambda: "triton_python_backend_stub" not in processes(identity).values())
        assert processes(identity_of(server)) == running
        assert server.is_ready()


def test_a_system_may_remove_old_temporary_files(repository, wait_for):
    with TritonServer(repository, ["network"], heal=True) as server:
        identity, address = identity_of(server), server.grpc_url
        (pid,) = [p for p, n in processes(identity).items() if n == "tritonserver"]
        shutil.rmtree(server.log_path.parent)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not processes(identity))
        wait_for(server.is_ready, seconds=60)
        assert server.grpc_url == address
    shutil.rmtree(server.log_path.parent)


def test_an_error_of_the_system_does_not_end_the_repairs(repository, wait_for, monkeypatch):
    """The thread ended, and the server stayed away without a word."""
    failed = []

    def find(*named):
        if not failed:
            failed.append(named)
            raise OSError(errno.EMFILE, "Too many open files")
        return find_tritonserver(*named)

    with TritonServer(repository, ["network"], heal=True) as server:
        monkeypatch.setattr(server_module, "find_tritonserver", find)
        (pid,) = [p for p, n in processes(identity_of(server)).items() if n == "tritonserver"]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: failed and server.is_ready(), seconds=90)


def hit_models(server, wait_for, sent):
    """Kill or stop the processes of all models, and wait until the server has others."""
    running = processes(identity_of(server))
    hit = {pid for pid, name in running.items() if name == "triton_python_backend_stub"}
    for process in hit:
        os.kill(process, sent)
    # A stopped process is not left behind.
    wait_for(lambda: not hit & processes(identity_of(server)).keys(), seconds=60)
    wait_for(server.is_ready, seconds=60)
    # A start of the server would take what the repository publishes.
    assert server.log_path.read_text().count("Started GRPCInferenceService") == 1


@pytest.mark.parametrize(
    ("runtime", "sent"),
    [
        pytest.param("tensorflow", signal.SIGSTOP, marks=pytest.mark.long),
        ("fused_tensorflow", signal.SIGKILL),
        pytest.param("tensorflow", signal.SIGKILL, marks=pytest.mark.long),
        pytest.param("fused_tensorflow", signal.SIGSTOP, marks=pytest.mark.long),
    ],
)
def test_a_repair_keeps_the_version_that_was_published_into_the_server(
    runtime, sent, tmp_path, wait_for
):
    export(tmp_path / "models", 1, 1, runtime=runtime)
    with (
        TritonServer(tmp_path / "models", heal=True) as server,
        EnsembleClient(server.grpc_url, "live") as client,
    ):
        export(tmp_path / "models", 2, 2, runtime=runtime)
        hit_models(server, wait_for, sent)
        assert generation_of(client.predict(ROWS)["score"].to_numpy()) == 1
        assert server.publish("live") == 2
        assert generation_of(client.predict(ROWS)["score"].to_numpy()) == 2


@pytest.mark.long
def test_a_repair_finds_the_steps_of_a_publication_by_another_process(tmp_path, wait_for):
    """After a rollback they have other names."""
    export(tmp_path / "models", 1, 1)
    with (
        TritonServer(tmp_path / "models", heal=True, admin_key="key") as server,
        EnsembleClient(server.grpc_url, "live") as client,
    ):
        other = LiveServer(tmp_path / "models", server.grpc_url, "key")
        export(tmp_path / "models", 2, 2)
        other.publish("live")
        rollback(tmp_path / "models", "live")
        other.publish("live")
        export(tmp_path / "models", 3, 3)
        hit_models(server, wait_for, signal.SIGKILL)
        assert generation_of(client.predict(ROWS)["score"].to_numpy()) == 1


def test_a_server_that_is_stopped_is_not_started_again(repository, traces):
    before = threading.enumerate()
    server = TritonServer(repository, ["network"], heal=True)
    server.start()
    identity = identity_of(server)
    assert traces(identity)
    server.stop()
    started = [thread.name for thread in threading.enumerate() if thread not in before]
    assert "heal-tritonserver" not in started
    assert traces(identity) == []
