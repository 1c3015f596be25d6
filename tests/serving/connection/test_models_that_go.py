"""A model that is loaded again, or a server that stops: requests wait for it, within their time."""

import asyncio
import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from forwarder import Forwarder, port_of
from polars.testing import assert_frame_equal
from served_rows import EXPECTED, FRAME
from server_processes import identity_of, processes
from tritonclient import grpc as tritonclient

from serving import (
    AsyncEnsembleClient,
    DeadlineExceededError,
    EnsembleClient,
    ServerUnavailableError,
    TritonServer,
    UnknownModelError,
)
from serving.connection import shared_memory
from serving.embedded.flags import server_flags


class Ensemble:
    """Unloads and loads the ensemble alone, which has no process and is loaded at once."""

    def __init__(self, server):
        self._server = server

    def unload(self):
        with tritonclient.InferenceServerClient(self._server.grpc_url) as client:
            client.unload_model("movies", self._server.admin_headers)

    def load(self):
        with tritonclient.InferenceServerClient(self._server.grpc_url) as client:
            client.load_model("movies", self._server.admin_headers)


@pytest.fixture
def ensemble(server):
    ensemble = Ensemble(server)
    yield ensemble
    ensemble.load()


async def ask_async(address, ready, **options):
    async with AsyncEnsembleClient(address, "movies", **options) as client:
        await asyncio.to_thread(ready)
        return await client.predict(FRAME)


def predictions(address, ready, is_async, **options):
    """Connect, call `ready`, and predict."""
    if is_async:
        return asyncio.run(ask_async(address, ready, **options))
    with EnsembleClient(address, "movies", **options) as client:
        ready()
        return client.predict(FRAME)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def is_async(request):
    return request.param


def test_a_model_that_is_loaded_again_is_waited_for(url, ensemble, is_async, wait_for):
    scheme = "http://" if url.startswith("http") else ""
    with Forwarder(port_of(url)) as network, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(predictions, scheme + network.address, ensemble.unload, is_async)
        # Sent a second time, it has been refused once.
        wait_for(lambda: network.sent.count(b"genres__values") >= 2 or asked.done())
        ensemble.load()
        assert_frame_equal(asked.result(), EXPECTED)


def test_a_model_that_does_not_come_back_is_unavailable(url, ensemble, is_async):
    text = "unknown model.* had this model before: it stops, or loads the model again"
    with pytest.raises(ServerUnavailableError, match=text):
        predictions(url, ensemble.unload, is_async, retries=1)
    with pytest.raises(UnknownModelError, match="Check the name and the version"):
        predictions(url, lambda: None, is_async)


def test_a_server_that_stops_is_unavailable(repository, wait_for, monkeypatch):
    def hasty(flags):
        return server_flags(replace(flags, exit_timeout=2))

    # The server waits that long for clients of HTTP that stay connected, as these do.
    monkeypatch.setattr("serving.embedded.process.server_flags", hasty)
    stopped, kinds, connected = threading.Event(), set(), []

    def ask(url):
        with EnsembleClient(url, "movies", retries=0) as client:
            connected.append(url)
            while not stopped.is_set():
                try:
                    client.predict(FRAME)
                    kinds.add("answered")
                except Exception as error:  # noqa: BLE001 - any kind is to be seen
                    kinds.add(type(error))

    with TritonServer(repository) as server, ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(ask, url) for url in (server.grpc_url, server.http_url) * 3]
        try:
            wait_for(lambda: len(connected) == 6 and "answered" in kinds)
            server.stop()
        finally:
            stopped.set()
    assert [one.result() for one in asked] == [None] * 6
    assert kinds == {"answered", ServerUnavailableError}


def states(pid):
    """The states of a process' threads, such as {"R", "S"}."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return {thread.read_text().rpartition(") ")[2][0] for thread in threads}


@pytest.fixture
def stopped(server, wait_for):
    """The server's own process, stopped for a while: each of its threads, before the block begins."""

    @contextmanager
    def stop():
        found = processes(identity_of(server))
        (pid,) = (p for p, name in found.items() if name == "tritonserver")
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_for(lambda: states(pid) == {"T"})
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    return stop


def test_ended_connections_are_not_used_again(server, stopped, wait_for):
    """More of them than a request has retries, as after a restart or a proxy's time-out."""
    with (
        Forwarder(port_of(server.http_url)) as network,
        EnsembleClient(f"http://{network.address}", "movies") as client,
        ThreadPoolExecutor(8) as pool,
    ):
        with stopped():
            asked = [pool.submit(client.predict, FRAME) for _ in range(8)]
            wait_for(lambda: network.connections == 8)
        for one in asked:
            assert_frame_equal(one.result(), EXPECTED)
        network.disconnect()
        assert_frame_equal(client.predict(FRAME), EXPECTED)
        assert network.connections == 9


@pytest.mark.timeout(60)  # A deadline that is not kept shows as this.
def test_no_call_outlives_its_deadline(url, server, stopped, is_async, monkeypatch):
    """Neither an inference nor what belongs to it in shared memory."""
    monkeypatch.setattr(shared_memory, "CLOSE_TIMEOUT", 600.0)
    options = {"shared_memory": True, "headers": server.admin_headers}

    async def ask():
        async with AsyncEnsembleClient(url, "movies", **options) as client:
            await client.predict(FRAME)
            with stopped(), pytest.raises(DeadlineExceededError):
                await client.predict(FRAME, timeout=0.3)
            return await client.predict(FRAME)

    if is_async:
        assert_frame_equal(asyncio.run(ask()), EXPECTED)
    else:
        with EnsembleClient(url, "movies", **options) as client:
            client.predict(FRAME)
            for _ in range(2):  # With a region that the server knows, and with a new one.
                with stopped(), pytest.raises(DeadlineExceededError):
                    client.predict(FRAME, timeout=0.3)
            assert_frame_equal(client.predict(FRAME), EXPECTED)
    with tritonclient.InferenceServerClient(server.grpc_url) as plain:
        known = plain.get_system_shared_memory_status(headers=server.admin_headers).regions
    assert not known


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"HTTP/1.0 200 OK\r\n\r\n", b" "),
    ],
    ids=["whole", "chunks", "until the end"],
)
def test_an_answer_in_drops_ends_at_the_deadline(head, drop):
    """Each byte comes in time, and the whole does not."""
    enough = threading.Event()

    def drip(listener):
        with suppress(OSError), listener.accept()[0] as client:
            client.recv(1 << 16)
            client.sendall(head)
            while not enough.wait(0.05):
                client.sendall(drop)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        pool.submit(drip, listener)
        try:
            with pytest.raises(DeadlineExceededError):
                EnsembleClient(f"http://127.0.0.1:{listener.getsockname()[1]}", "m", timeout=0.5)
        finally:
            enough.set()
