"""Requests in memory that is shared with a real server: nothing of it stays behind."""

import asyncio
import gc
import itertools
import json
import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from served_rows import EXPECTED, FRAME
from server_processes import identity_of, processes
from tritonclient import grpc as tritonclient
from tritonclient.utils import InferenceServerException

from serving import (
    AsyncEnsembleClient,
    ClientError,
    DeadlineExceededError,
    EnsembleClient,
    InvalidRequestError,
)
from serving.connection.shared_memory import PREFIX
from serving.embedded.supervisor import SHARED_MEMORY


def regions():
    return [*SHARED_MEMORY.glob(f"{PREFIX}{os.getpid()}_*")]


def test_headers_are_asked_for_under_asyncio(url):
    async def ask():
        async with AsyncEnsembleClient(url, "movies", shared_memory=True) as client:
            await client.predict(FRAME)

    with pytest.raises(
        ClientError, match=r"restricted.*Pass the credentials that the server requires"
    ) as error:
        asyncio.run(ask())
    assert error.value.code == "UNAUTHENTICATED"
    assert not regions()


NO_ROOM = """
import sys, time
import numpy as np
from serving.connection.shared_memory import Regions
from serving.errors import ClientError
rows = {"x": np.ones(600_000, np.float32)}
try:
    with Regions(None).holding(rows, time.monotonic() + 60):  # The server is not asked yet.
        pass
except ClientError as error:
    print(error)
"""


def test_too_little_room_is_an_error_and_not_the_end_of_the_process():
    """A container has 64 MB by default; a file system makes files without room, in which no byte fits."""
    mounted = ["unshare", "--mount", "sh", "-c"]
    small = f"mount -t tmpfs -o size=1m tmpfs {SHARED_MEMORY}"
    if subprocess.run([*mounted, small], check=False, capture_output=True).returncode:
        pytest.skip("a file system can be mounted by root alone")
    after = f'{small} && "$0" -c "$1" && ls {SHARED_MEMORY}'
    command = [*mounted, after, sys.executable, NO_ROOM]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert re.fullmatch(
        r"RESOURCE_EXHAUSTED: Expected 2,400,000 bytes of shared memory.*No space left.*Predict fewer "
        r"rows at a time, or give /dev/shm more room.*\n",
        done.stdout,
    )


def test_headers_travel_and_are_asked_for(url):
    with EnsembleClient(url, "movies", shared_memory=True, headers={"a": "b"}) as client:
        with pytest.raises(
            ClientError, match=r"restricted.*Pass the credentials that the server requires"
        ) as error:
            client.predict(FRAME)
        assert error.value.code == "UNAUTHENTICATED"
    assert not regions()


@pytest.fixture
def known(server):
    """The regions that the server knows."""

    def ask():
        with tritonclient.InferenceServerClient(server.grpc_url) as plain:
            return plain.get_system_shared_memory_status(headers=server.admin_headers).regions

    return ask


def test_shared_memory_is_freed(server, url, known):
    with EnsembleClient(url, "movies", shared_memory=True, headers=server.admin_headers) as client:
        assert_frame_equal(client.predict(FRAME), EXPECTED)
        many = pl.concat([FRAME] * 5_000)
        assert client.predict(many)["genre_codes"].to_list()[-3:] == [[3, 4], [], [2]]
        with pytest.raises(InvalidRequestError):
            client.raw({"userId": np.zeros((1, 1), np.int64)})
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(client.predict, [FRAME] * 16))
        assert regions()
        assert len(known()) == len(regions())
    assert not regions()
    assert not known()


def test_shared_memory_under_asyncio_is_freed(server, url, known):
    async def ask():
        async with AsyncEnsembleClient(
            url, "movies", shared_memory=True, headers=server.admin_headers
        ) as client:
            answers = await asyncio.gather(*(client.predict(FRAME) for _ in range(16)))
            assert_frame_equal(pl.concat(answers), pl.concat([EXPECTED] * 16))
            many = pl.concat([FRAME] * 5_000)
            assert (await client.predict(many))["genre_codes"].to_list()[-3:] == [[3, 4], [], [2]]
            with pytest.raises(InvalidRequestError):
                await client.raw({"userId": np.zeros((1, 1), np.int64)})
            late = asyncio.create_task(client.predict(many))
            await asyncio.sleep(0)
            late.cancel()
            with pytest.raises(asyncio.CancelledError):
                await late
            assert len(await asyncio.to_thread(known)) == len(regions()) > 0

    asyncio.run(ask())
    assert not regions()
    assert not known()


@pytest.fixture
def forget(server):
    """Has the server forget all regions, as after a restart."""

    def run():
        with tritonclient.InferenceServerClient(server.grpc_url) as plain:
            deadline = time.monotonic() + 30
            while True:
                with suppress(InferenceServerException):  # One lets go shortly after its answer.
                    plain.unregister_system_shared_memory(headers=server.admin_headers)
                    return
                assert time.monotonic() < deadline
                time.sleep(0.01)

    return run


def test_threads_do_not_notice_that_a_server_has_forgotten_the_regions(server, url, forget):
    together = threading.Barrier(4)

    def ask(client):
        together.wait()
        return client.predict(FRAME)

    with (
        EnsembleClient(url, "movies", shared_memory=True, headers=server.admin_headers) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        for _ in range(2):
            for answer in pool.map(ask, [client] * 4):
                assert_frame_equal(answer, EXPECTED)
            forget()
        assert_frame_equal(client.predict(FRAME), EXPECTED)
        assert len(regions()) == 1
    assert not regions()


def test_tasks_do_not_notice_that_a_server_has_forgotten_the_regions(server, url, forget):
    async def ask():
        settings = {"shared_memory": True, "headers": server.admin_headers}
        async with AsyncEnsembleClient(url, "movies", **settings) as client:
            for _ in range(2):
                for answer in await asyncio.gather(*[client.predict(FRAME) for _ in range(4)]):
                    assert_frame_equal(answer, EXPECTED)
                await asyncio.to_thread(forget)
            assert_frame_equal(await client.predict(FRAME), EXPECTED)
            assert len(regions()) == 1

    asyncio.run(ask())
    assert not regions()


@pytest.mark.timeout(60)
def test_regions_of_requests_that_were_given_up_are_freed(server, url, known):
    """The server still reads them then, and refuses to give them up."""
    many, late = pl.concat([FRAME] * 5_000), 0
    options = {"shared_memory": True, "headers": server.admin_headers, "retries": 0}
    with EnsembleClient(url, "movies", **options) as client:
        client.predict(many)
        begin = time.monotonic()
        client.predict(many)
        duration = time.monotonic() - begin
        for share in itertools.cycle(np.linspace(0.3, 0.9, 7)):
            try:
                client.predict(many, timeout=share * duration)
            except DeadlineExceededError:
                late += 1
                if late == 10:
                    break
        client.predict(many)
        assert len(known()) < late  # The client goes on, and they do not gather.
    assert not regions()
    assert not known()


def test_a_client_that_is_closed_frees_the_regions_of_requests_under_way(server, url, known):
    many = pl.concat([FRAME] * 5_000)
    client = EnsembleClient(url, "movies", shared_memory=True, headers=server.admin_headers)

    def ask():
        with suppress(ClientError):
            client.predict(many)

    thread = threading.Thread(target=ask)
    thread.start()
    while thread.is_alive() and not regions():
        time.sleep(0.001)
    client.close()
    thread.join()
    assert not regions()
    assert not known()
    with pytest.raises(ClientError, match="Expected an open connection"):
        client.predict(FRAME)
    assert not regions()


def test_a_client_that_is_closed_under_asyncio_frees_them_too(server, url, known):
    async def ask():
        settings = {"shared_memory": True, "headers": server.admin_headers}
        async with AsyncEnsembleClient(url, "movies", **settings) as client:
            tasks = [asyncio.create_task(client.predict(FRAME)) for _ in range(2)]
            await asyncio.sleep(0)
            assert regions()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(answer, (pl.DataFrame, ClientError)) for answer in answers), answers

    asyncio.run(ask())
    assert not regions()
    assert not known()


def memory_in(server):
    """Bytes of memory of clients that the processes of a server hold."""
    maps = [Path(f"/proc/{pid}/smaps").read_text() for pid in processes(identity_of(server))]
    region = re.compile(rf"{PREFIX}.*\n(?:.*\n)*?Rss: *(\d+) kB")
    return sum(int(kilobytes) << 10 for text in maps for kilobytes in region.findall(text))


@pytest.mark.filterwarnings("ignore:[Uu]nclosed:ResourceWarning")
def test_a_client_that_is_dropped_frees_its_memory_in_the_server_too(server, url, forget):
    many = pl.concat([FRAME] * 5_000)
    settings = {"shared_memory": True, "headers": server.admin_headers}

    async def ask_under_asyncio():
        client = await AsyncEnsembleClient(url, "movies", **settings).__aenter__()
        await client.predict(many)

    before = memory_in(server)
    for _ in range(3):
        client = EnsembleClient(url, "movies", **settings)
        client.predict(many)
        assert memory_in(server) > before
        del client
        asyncio.run(ask_under_asyncio())
        gc.collect()
        assert not regions()
        assert memory_in(server) <= before
    forget()


def test_a_process_that_ends_without_closing_its_client_frees_its_memory(server, url, forget):
    program = """
import json, sys
from serving import EnsembleClient

url, headers = sys.argv[1:]
client = EnsembleClient(url, "movies", shared_memory=True, headers=json.loads(headers))
client.predict({"userId": [1], "age": [0.5], "genres": [["a"]]})
"""
    words = [sys.executable, "-c", program, url, json.dumps(server.admin_headers)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    forget()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_has_regions_of_its_own(server, url, known):
    with EnsembleClient(url, "movies", shared_memory=True, headers=server.admin_headers) as client:
        client.predict(FRAME)
        own = regions()

        def ask_and_close():
            assert_frame_equal(client.predict(FRAME), EXPECTED)
            client.close()
            assert regions() == []

        child = multiprocessing.get_context("fork").Process(target=ask_and_close)
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert regions() == own
        assert_frame_equal(client.predict(FRAME), EXPECTED)
        assert regions() == own
    assert not regions()
    assert not known()
