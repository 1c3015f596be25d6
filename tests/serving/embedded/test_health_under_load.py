"""Health of a server with more requests than it can take: alive, unless nobody is answered."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from echo_model import served_echo, write_cached_echo, write_echo
from server_processes import identity_of, processes
from tritonclient.grpc import InferenceServerClient, InferInput

from serving import ClientError, EnsembleClient, ServerUnavailableError, TritonServer
from serving.embedded.administration import Administration
from serving.watch.metrics import scrape
from triton_models.healthcheck import HttpServer, ProbeError, expect_answer

# A call takes 0.1 s or more, and one request may wait for it.
QUEUE = (
    "dynamic_batching { preferred_batch_size: [4] max_queue_delay_microseconds: 100000 "
    "default_queue_policy { max_queue_size: 1 } }"
)


class Refused:
    """A connection that keeps the refusals of its inferences."""

    def __init__(self, connection):
        self._connection = connection
        self.config, self.answered = connection.config, connection.answered
        self.errors = []

    def infer(self, *request):
        try:
            return self._connection.infer(*request)
        except ProbeError as error:
            self.errors.append(str(error))
            raise


@contextmanager
def crowd(server, model, clients=8):
    """Clients that ask without a pause."""
    enough = threading.Event()

    def ask(client):
        while not enough.is_set():
            with suppress(ClientError):
                client.predict({"x": [0.5]}, timeout=1)

    with (
        EnsembleClient(server.grpc_url, model, retries=0) as client,
        ThreadPoolExecutor(clients) as pool,
    ):
        asked = [pool.submit(ask, client) for _ in range(clients)]
        try:
            yield
        finally:
            enough.set()
    assert [one.result() for one in asked] == [None] * clients


def is_dead(connection, model):
    try:
        expect_answer(connection, model, timeout=1)
    except ProbeError:
        return True
    return False


def stub_of(server, model):
    """The process of a model's instance."""
    found = processes(identity_of(server))
    (pid,) = (p for p in found if f"{model}_0_0" in Path(f"/proc/{p}/cmdline").read_text())
    return pid


@pytest.fixture(
    params=[
        lambda server: HttpServer(server.http_url),
        lambda server: Administration(server.grpc_url, ""),
    ],
    ids=["http", "grpc"],
)
def protocol(request):
    """Makes a connection to a server."""
    return request.param


@pytest.fixture
def connection(protocol, server):
    return Refused(protocol(server))


def test_a_full_queue_is_alive_while_others_are_answered(server, repository, connection):
    with served_echo(server, repository, "crowded", QUEUE), crowd(server, "crowded"):
        for _ in range(200):
            expect_answer(connection, "crowded", timeout=20)
            if len(connection.errors) >= 3:
                break
    assert len(connection.errors) >= 3
    assert all("Exceeds maximum queue size" in error for error in connection.errors)


def test_a_refused_row_is_sent_again_where_nobody_else_is_answered(
    server, repository, connection, wait_for
):
    waits_long = QUEUE.replace("100000", "2000000")
    with (
        served_echo(server, repository, "alone", waits_long),
        InferenceServerClient(server.grpc_url) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        row = InferInput("x", [1, 1], "FP32").set_data_from_numpy(np.zeros((1, 1), np.float32))
        other = client.async_infer("alone", [row], callback=lambda **_: None)
        pending = "nv_inference_pending_request_count"
        wait_for(lambda: scrape([server.metrics_url]).value(pending, model="alone"))
        check = pool.submit(expect_answer, connection, "alone", 20)
        wait_for(lambda: connection.errors)
        other.cancel()
        assert check.result() is None
        # The server counts an answer after it has sent it.
        wait_for(lambda: connection.answered("alone", 20) == 1)


@pytest.mark.parametrize(
    "sent", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)]
)
def test_an_answer_from_the_cache_does_not_hide_a_dead_step(tmp_path, protocol, sent):
    write_echo(tmp_path / "echo", "dynamic_batching {}")
    write_cached_echo(tmp_path / "cached", "echo")
    with TritonServer(tmp_path, response_cache_bytes=2**20) as server:
        connection = protocol(server)
        for _ in range(2):
            expect_answer(connection, "cached", timeout=20)
        os.kill(stub_of(server, "echo"), sent)
        assert is_dead(connection, "cached")


def test_a_full_queue_before_a_stopped_model_is_dead(server, repository, connection, wait_for):
    with served_echo(server, repository, "stopped", QUEUE):
        expect_answer(connection, "stopped", timeout=20)
        stub = stub_of(server, "stopped")
        os.kill(stub, signal.SIGSTOP)
        try:
            with crowd(server, "stopped"):
                wait_for(lambda: is_dead(connection, "stopped"))
        finally:
            # The server ends if its process is continued.
            os.kill(stub, signal.SIGKILL)


@pytest.mark.parametrize("fault", [signal.SIGSTOP, signal.SIGKILL], ids=["stalled", "ended"])
@pytest.mark.parametrize("protocol", ["grpc_url", "http_url"])
def test_a_client_is_told_of_a_lost_process(server, repository, protocol, fault):
    """A process that does not run for a second is given up by Triton, although it is not dead."""
    with served_echo(server, repository, "lost"):
        stub = stub_of(server, "lost")
        with EnsembleClient(getattr(server, protocol), "lost", retries=0) as client:
            os.kill(stub, fault)
            try:
                with pytest.raises(
                    ServerUnavailableError, match=r"not healthy\. The server at .* log"
                ):
                    client.predict({"x": [0.5]})
            finally:
                os.kill(stub, signal.SIGKILL)
