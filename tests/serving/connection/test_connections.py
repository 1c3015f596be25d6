"""The ways to a real server, asyncio and HTTP among them; and what goes wrong on them."""

import asyncio
import copy
import gc
import multiprocessing
import os
import pickle
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import numpy as np
import polars as pl
import pytest
from forwarder import Forwarder, port_of
from polars.testing import assert_frame_equal
from served_rows import EXPECTED, FRAME

from serving import (
    AsyncEnsembleClient,
    ClientError,
    ColumnError,
    DeadlineExceededError,
    EnsembleClient,
    InvalidRequestError,
    ServerUnavailableError,
    UnknownModelError,
)


def test_every_way_gives_the_same_answer(url):
    with EnsembleClient(url, "movies") as client:
        assert_frame_equal(client.predict(FRAME), EXPECTED)
        assert client.contract.label_columns == ("rating",)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_an_answer_may_be_compressed_if_a_header_asks_for_it(url, encoding):
    many, headers = pl.concat([FRAME] * 500), {"accept-encoding": encoding}

    async def ask():
        async with AsyncEnsembleClient(url, "movies", headers=headers) as client:
            return await client.predict(many)

    with EnsembleClient(url, "movies", headers=headers) as client:
        assert_frame_equal(client.predict(many), pl.concat([EXPECTED] * 500))
        with pytest.raises(InvalidRequestError, match="userId"):  # An error is compressed as well.
            client.raw({"userId": np.zeros((1, 1), np.float64)})
    assert_frame_equal(asyncio.run(ask()), pl.concat([EXPECTED] * 500))


@pytest.mark.parametrize("name", ["accept-encoding", "Accept-Encoding"])
def test_a_header_takes_the_place_of_the_default(name):
    """A server reads the first of two headers of one name."""

    async def enter(url):
        async with AsyncEnsembleClient(url, "none", headers={name: "gzip"}, retries=0):
            pass

    for ask in (
        lambda url: EnsembleClient(url, "none", headers={name: "gzip"}, retries=0),
        lambda url: asyncio.run(enter(url)),
    ):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            heard = []

            def hear(listener=listener, heard=heard):
                with listener.accept()[0] as connection:
                    heard.append(connection.recv(1 << 16))
                    connection.sendall(b"HTTP/1.1 404 none\r\ncontent-length: 0\r\n\r\n")

            thread = Thread(target=hear)
            thread.start()
            with pytest.raises(UnknownModelError):
                ask(f"http://127.0.0.1:{listener.getsockname()[1]}")
            thread.join()
        lines = heard[0].lower().split(b"\r\n")
        assert [line for line in lines if line.startswith(b"accept-encoding")] == [
            b"accept-encoding: gzip"
        ]


def test_requests_under_way_at_once_in_asyncio(url):
    async def ask():
        async with AsyncEnsembleClient(url, "movies") as client:
            parts = [FRAME[row : row + 1] for row in range(3)] * 8
            return await asyncio.gather(*(client.predict(part) for part in parts))

    answers = asyncio.run(ask())
    assert_frame_equal(pl.concat(answers), pl.concat([EXPECTED] * 8))


def test_threads_share_a_client(url):
    with EnsembleClient(url, "movies") as client, ThreadPoolExecutor(8) as pool:
        parts = [FRAME[row : row + 1] for row in range(3)] * 16
        assert_frame_equal(pl.concat(pool.map(client.predict, parts)), pl.concat([EXPECTED] * 16))


def test_http_uses_its_connection_again(server):
    with (
        Forwarder(port_of(server.http_url)) as network,
        EnsembleClient(f"http://{network.address}", "movies") as client,
    ):
        for _ in range(5):
            client.predict(FRAME)
        assert network.connections == 1


@pytest.mark.parametrize(
    "bad",
    [
        "ftp://localhost:1",
        "localhost",
        "localhost:port",
        "grpc://a:1/b",
        "http://127..0.0.1:1",
        "http://localhost:1/größe",
    ],
)
def test_an_address_that_names_no_server(bad):
    with pytest.raises(ClientError, match="Expected the address of a server, for example"):
        EnsembleClient(bad, "movies")


@pytest.mark.parametrize(
    "bad", ["http://ann:s3cret@127.0.0.1:1", "ann@127.0.0.1:1", "https://127.0.0.1:1/p?key=s3cret"]
)
def test_an_address_with_a_login_is_refused_and_not_shown(bad):
    with pytest.raises(ClientError, match="give a login as headers") as refused:
        EnsembleClient(bad, "movies")
    assert "s3cret" not in str(refused.value)


def test_a_connection_that_breaks_is_made_again(url):
    scheme = "http://" if url.startswith("http") else ""
    with Forwarder(port_of(url), failures=2) as network:
        with EnsembleClient(scheme + network.address, "movies") as client:
            assert_frame_equal(client.predict(FRAME), EXPECTED)
        assert network.connections >= 3
    with Forwarder(port_of(url), failures=1) as network, pytest.raises(ServerUnavailableError):
        EnsembleClient(scheme + network.address, "movies", retries=0)


def test_two_tasks_that_enter_a_client_at_once_leave_one_connection(url):
    async def enter():
        client = AsyncEnsembleClient(url, "movies")
        entered = await asyncio.gather(
            client.__aenter__(), client.__aenter__(), return_exceptions=True
        )
        await client.close()
        return client, entered

    client, entered = asyncio.run(enter())
    (refused,) = [answer for answer in entered if answer is not client]
    assert "has a connection already" in refused.message
    gc.collect()  # A session or a channel that was left open would warn here.


@pytest.mark.timeout(20)  # A deadline that is not kept shows as this.
@pytest.mark.parametrize("scheme", ["", "http://"])
def test_a_server_that_is_down_or_hangs(scheme):
    with pytest.raises(
        ServerUnavailableError, match=r"Check that the server runs at .*127\.0\.0\.1"
    ):
        EnsembleClient(f"{scheme}127.0.0.1:1", "movies", retries=0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"{scheme}127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(DeadlineExceededError, match="Raise `timeout`"):
            EnsembleClient(address, "movies", timeout=0.2)


def test_each_mistake_has_its_type(url):
    with EnsembleClient(url, "movies") as client:
        with pytest.raises(ColumnError, match="Missing: age"):
            client.predict(FRAME.drop("age"))
        with pytest.raises(InvalidRequestError, match="missing required input"):
            client.raw({"userId": np.zeros((1, 1), np.int64)})
        with pytest.raises(UnknownModelError, match="Check the name and the version"):
            client.for_model("none")
        with pytest.raises(UnknownModelError, match="Check the name and the version"):
            client.for_model("network", 9)
        assert client.for_model("network").contract.inputs[0].name == "user"
    with pytest.raises(ClientError, match="Expected an open connection"):
        client.predict(FRAME)
    with pytest.raises(ClientError, match=r"Expected retries from 0 to 4\. Received: 9"):
        EnsembleClient(url, "movies", retries=9)


def test_an_error_has_no_cause_that_cannot_be_pickled(url):
    """Dask pickles the error of a task with its causes, and loses its class where one cannot be."""
    with EnsembleClient(url, "movies") as client, pytest.raises(InvalidRequestError) as refused:
        client.raw({"userId": np.zeros((1, 1), np.int64)})

    async def ask():
        async with AsyncEnsembleClient(url, "none"):
            pass

    with pytest.raises(UnknownModelError) as unknown:
        asyncio.run(ask())
    for error in (refused.value, unknown.value):
        assert error.__cause__ is error.__context__ is None
        assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301 - its own


def test_threads_that_wait_are_told_that_another_has_closed_the_client(server):
    rows = pl.concat([FRAME] * 20_000)
    client = EnsembleClient(server.grpc_url, "movies")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.predict, rows)
        time.sleep(0.05)
        client.close()
        error = answer.exception()
    assert error is None or "Expected an open connection" in error.message, error


def hurried(client):
    for _ in range(1000):  # gRPC rounds to a millisecond, in which a server may answer
        client.predict(FRAME, timeout=1e-6)


def test_a_deadline_for_one_request(server):
    with EnsembleClient(server.grpc_url, "movies") as client:
        with pytest.raises(DeadlineExceededError):
            hurried(client)
        assert_frame_equal(client.predict(FRAME), EXPECTED)


def test_asyncio_has_the_same_errors(url):
    async def hurried(client):
        for _ in range(1000):  # gRPC rounds to a millisecond, in which a server may answer
            await client.predict(FRAME, timeout=1e-6)

    async def ask():
        client = AsyncEnsembleClient(url, "movies")
        with pytest.raises(ClientError, match="Write `async with`"):
            await client.predict(FRAME)
        async with client:
            with pytest.raises(ColumnError, match="Missing: age"):
                await client.predict(FRAME.drop("age"))
            with pytest.raises(InvalidRequestError, match="missing required input"):
                await client.raw({"userId": np.zeros((1, 1), np.int64)})
            with pytest.raises(DeadlineExceededError):
                await hurried(client)
            with pytest.raises(ClientError, match="has a connection already"):
                await client.__aenter__()
            assert_frame_equal(await client.predict(FRAME), EXPECTED)
        with pytest.raises(ClientError, match="Write `async with`"):
            await client.predict(FRAME)
        with pytest.raises(UnknownModelError):
            async with AsyncEnsembleClient(url, "none"):
                pass

    asyncio.run(ask())
    gc.collect()  # A channel that was left open would warn here.


@pytest.mark.timeout(20)  # A deadline that is not kept shows as this.
@pytest.mark.parametrize("scheme", ["", "http://"])
def test_a_network_that_fails_under_asyncio(server, scheme):
    port = port_of(server.http_url if scheme else server.grpc_url)

    async def ask(address, **options):
        async with AsyncEnsembleClient(scheme + address, "movies", **options) as client:
            return await client.predict(FRAME)

    with Forwarder(port, failures=2) as network:
        assert_frame_equal(asyncio.run(ask(network.address)), EXPECTED)
        assert network.connections >= 3
    # A GET is sent once more by aiohttp itself.
    with Forwarder(port, failures=2) as network, pytest.raises(ServerUnavailableError):
        asyncio.run(ask(network.address, retries=0))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(DeadlineExceededError, match="Raise `timeout`"):
            asyncio.run(ask(address, timeout=0.2))


@pytest.mark.parametrize("retries", [0, 4])
def test_a_client_that_is_closed_says_so_to_tasks_that_wait(url, retries):
    """A `CancelledError` would end them as if their own caller had cancelled them."""

    async def ask():
        async with AsyncEnsembleClient(url, "movies", retries=retries) as client:
            tasks = [asyncio.create_task(client.predict(FRAME)) for _ in range(3)]
            await asyncio.sleep(0)
        return await asyncio.gather(*tasks, return_exceptions=True)

    for error in asyncio.run(ask()):
        assert isinstance(error, ClientError), error
        assert error.code == "CANCELLED"
        assert "Expected an open connection" in error.message


def test_a_task_that_its_caller_cancels_is_cancelled(url):
    async def ask():
        async with AsyncEnsembleClient(url, "movies") as client:
            task = asyncio.create_task(client.predict(FRAME))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(ask())


def test_a_port_of_grpc_is_no_address_of_http(server):
    with pytest.raises(ServerUnavailableError, match=r"is not HTTP.* gRPC") as refusal:
        EnsembleClient(f"http://{server.grpc_url}", "echo")
    assert refusal.value.message.isprintable()


def in_a_fork(act):
    """Run `act` in a forked process while this one runs it too."""
    child = multiprocessing.get_context("fork").Process(target=act)
    child.start()
    try:
        act()
    finally:
        child.join(60)
        child.kill()
    assert child.exitcode == 0


def ask_for_rows_that_differ(client):
    """Requests whose answers tell the process that asked."""
    own = os.getpid()
    for row in range(100):
        asked = pl.DataFrame(
            {"userId": [own * 1000 + row], "age": [float(row)], "genres": [["?"]]},
            schema_overrides={"age": pl.Float32},
        )
        answer = client.predict(asked)
        assert answer["same_user"].to_list() == asked["userId"].to_list()
        assert answer["same_age"].to_list() == asked["age"].to_list()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_gets_its_own_answers(url):
    with EnsembleClient(url, "movies") as client:
        ask_for_rows_that_differ(client)
        in_a_fork(lambda: ask_for_rows_that_differ(client))


def test_a_client_is_not_pickled(url):
    with EnsembleClient(url, "movies") as client:
        for other in (client, AsyncEnsembleClient(url, "movies")):
            for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(ClientError, match="Make one in each process"):
                    attempt(other)


@pytest.mark.timeout(60)  # A wait for another loop's answer shows as this.
def test_a_client_of_another_event_loop(url):
    client = AsyncEnsembleClient(url, "movies")

    async def enter_and_ask():
        await client.__aenter__()
        assert_frame_equal(await client.predict(FRAME), EXPECTED)
        with ThreadPoolExecutor(1) as pool:
            await asyncio.wrap_future(pool.submit(asyncio.run, refused()))
        assert_frame_equal(await client.predict(FRAME), EXPECTED)
        await client.close()

    async def refused():
        with pytest.raises(ClientError, match="Enter a client in each event loop"):
            await client.predict(FRAME)

    asyncio.run(enter_and_ask())
