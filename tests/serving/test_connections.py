"""The ways to a real server: asyncio, HTTP, TLS, shared memory; and what goes wrong on them."""

import asyncio
import gc
import os
import shutil
import socket
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest
from forwarder import Forwarder
from polars.testing import assert_frame_equal
from served_rows import EXPECTED, FRAME
from tritonclient import grpc as tritonclient

from serving import (
    AsyncEnsembleClient,
    ClientError,
    ColumnError,
    DeadlineExceededError,
    EnsembleClient,
    InvalidRequestError,
    ServerUnavailableError,
    Tls,
    UnknownModelError,
)
from serving.connection.shared_memory import PREFIX
from serving.supervisor import SHARED_MEMORY


def port_of(url):
    return int(url.rsplit(":", 1)[1])


@pytest.fixture(scope="module", params=["grpc", "http"])
def url(request, server):
    return server.grpc_url if request.param == "grpc" else server.http_url


@pytest.fixture
def secured(tmp_path):
    """A certificate for 127.0.0.1, which vouches for itself, and a context that asks for it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-keyout", key, "-out"),
            *(certificate, "-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate)
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context, Tls(certificate, key, certificate)


def test_every_way_gives_the_same_answer(url):
    with EnsembleClient(url, "movies") as client:
        assert_frame_equal(client.predict(FRAME), EXPECTED)
        assert client.contract.label_columns == ("rating",)


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


@pytest.mark.parametrize("scheme", ["grpcs", "https"])
def test_tls_with_a_certificate_on_either_side(server, secured, scheme):
    context, tls = secured
    port = port_of(server.grpc_url if scheme == "grpcs" else server.http_url)
    with Forwarder(port, tls=context) as network:
        address = f"{scheme}://{network.address}"
        with EnsembleClient(address, "movies", tls=tls) as client:
            assert_frame_equal(client.predict(FRAME), EXPECTED)
        with pytest.raises(ServerUnavailableError):  # It does not trust the server.
            EnsembleClient(address, "movies", retries=0, timeout=10)


def test_a_certificate_that_is_none_is_named(server, tmp_path):
    for scheme in ("grpcs", "https"):
        with pytest.raises(ClientError, match=r"Expected a certificate in PEM\. Received: .*none"):
            EnsembleClient(f"{scheme}://127.0.0.1:1", "m", tls=Tls(tmp_path / "none"))
    with pytest.raises(ClientError, match="begins with grpcs:// or https://"):
        EnsembleClient(server.grpc_url, "movies", tls=Tls())


@pytest.mark.parametrize(
    "bad", ["ftp://localhost:1", "localhost", "localhost:port", "grpc://a:1/b"]
)
def test_an_address_that_names_no_server(bad):
    with pytest.raises(ClientError, match="Expected the address of a server, for example"):
        EnsembleClient(bad, "movies")


def test_headers_are_asked_for_under_asyncio(url):
    async def ask():
        async with AsyncEnsembleClient(url, "movies", shared_memory=True) as client:
            await client.predict(FRAME)

    with pytest.raises(ClientError, match=r"restricted.*Pass what the server asks for") as error:
        asyncio.run(ask())
    assert error.value.code == "UNAUTHENTICATED"
    assert not regions()


def test_headers_travel_and_are_asked_for(url):
    with EnsembleClient(url, "movies", shared_memory=True, headers={"a": "b"}) as client:
        with pytest.raises(
            ClientError, match=r"restricted.*Pass what the server asks for"
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


def regions():
    return [*SHARED_MEMORY.glob(f"{PREFIX}{os.getpid()}_*")]


def test_a_connection_that_breaks_is_made_again(url):
    scheme = "http://" if url.startswith("http") else ""
    with Forwarder(port_of(url), failures=2) as network:
        with EnsembleClient(scheme + network.address, "movies") as client:
            assert_frame_equal(client.predict(FRAME), EXPECTED)
        assert network.connections >= 3
    with Forwarder(port_of(url), failures=1) as network, pytest.raises(ServerUnavailableError):
        EnsembleClient(scheme + network.address, "movies", retries=0)


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
        assert client.for_model("network").contract.inputs[0].name == "user"
    with pytest.raises(ClientError, match="Expected an open connection"):
        client.predict(FRAME)
    with pytest.raises(ClientError, match=r"Expected retries from 0 to 4\. Received: 9"):
        EnsembleClient(url, "movies", retries=9)


def test_a_deadline_for_one_request(server):
    with EnsembleClient(server.grpc_url, "movies") as client:
        with pytest.raises(DeadlineExceededError):
            client.predict(FRAME, timeout=1e-6)
        assert_frame_equal(client.predict(FRAME), EXPECTED)


def test_asyncio_has_the_same_errors(url):
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
                await client.predict(FRAME, timeout=1e-6)
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


@pytest.mark.parametrize("scheme", ["grpcs", "https"])
def test_tls_and_headers_under_asyncio(server, secured, scheme):
    context, tls = secured
    port = port_of(server.grpc_url if scheme == "grpcs" else server.http_url)

    async def ask(address, **options):
        async with AsyncEnsembleClient(address, "movies", **options) as client:
            return await client.predict(FRAME)

    with Forwarder(port, tls=context) as network:
        address = f"{scheme}://{network.address}"
        answer = asyncio.run(ask(address, tls=tls, headers={"x-caller": "tests"}))
        assert_frame_equal(answer, EXPECTED)
        if scheme == "https":  # gRPC's headers are packed.
            assert b"x-caller: tests" in network.sent.lower()
        with pytest.raises(ServerUnavailableError):  # It does not trust the server.
            asyncio.run(ask(address, retries=0, timeout=10))
