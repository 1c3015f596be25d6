"""Connections to a real server over TLS, with certificates on either side."""

import asyncio
import shutil
import ssl
import subprocess

import pytest
from forwarder import Forwarder, port_of
from polars.testing import assert_frame_equal
from served_rows import EXPECTED, FRAME

from serving import (
    AsyncEnsembleClient,
    ClientError,
    EnsembleClient,
    ServerUnavailableError,
    Tls,
)


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
