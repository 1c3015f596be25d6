"""Connections to a real server over TLS, with certificates on either side."""

import asyncio
import subprocess

import pytest
from forwarder import Forwarder, certify, port_of
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
    key, certificate, context = certify(tmp_path)
    return context, Tls(certificate, key, certificate)


@pytest.mark.parametrize("scheme", ["grpcs", "https"])
def test_tls_with_a_certificate_on_either_side(server, secured, scheme, tmp_path):
    context, tls = secured
    port = port_of(server.grpc_url if scheme == "grpcs" else server.http_url)
    with Forwarder(port, tls=context) as network:
        address = f"{scheme}://{network.address}"
        with EnsembleClient(address, "movies", tls=tls) as client:
            assert_frame_equal(client.predict(FRAME), EXPECTED)
        both = tmp_path / "both.pem"
        both.write_bytes(tls.certificate_chain.read_bytes() + tls.private_key.read_bytes())
        one_file = Tls(tls.root_certificates, certificate_chain=both)
        with EnsembleClient(address, "movies", tls=one_file) as client:
            assert_frame_equal(client.predict(FRAME), EXPECTED)
        with pytest.raises(ServerUnavailableError):  # It does not trust the server.
            EnsembleClient(address, "movies", retries=0, timeout=10)


def test_a_certificate_that_is_none_is_named(server, tmp_path):
    for scheme in ("grpcs", "https"):
        with pytest.raises(ClientError, match=r"Expected a certificate in PEM\. Received: .*none"):
            EnsembleClient(f"{scheme}://127.0.0.1:1", "m", tls=Tls(tmp_path / "none"))
    with pytest.raises(ClientError, match="begins with grpcs:// or https://"):
        EnsembleClient(server.grpc_url, "movies", tls=Tls())


@pytest.mark.timeout(20)  # A question on the terminal shows as this.
@pytest.mark.parametrize("scheme", ["grpcs", "https"])
def test_certificates_that_do_not_fit_are_named_before_a_call(secured, scheme, tmp_path):
    _, tls = secured
    text, locked = tmp_path / "text.pem", tmp_path / "locked.pem"
    text.write_text("no certificate")
    subprocess.run(
        [
            "openssl",
            "pkey",
            "-in",
            tls.private_key,
            "-aes128",
            "-passout",
            "pass:a",
            "-out",
            locked,
        ],
        check=True,
        capture_output=True,
    )
    for wrong, reason in (
        (Tls(text), "Expected certificates in PEM"),
        (Tls(private_key=tls.private_key), "Expected certificate_chain"),
        (Tls(certificate_chain=text, private_key=tls.private_key), "Expected certificates in PEM"),
        (Tls(certificate_chain=tls.certificate_chain, private_key=locked), "is not encrypted"),
    ):
        with pytest.raises(ClientError, match=rf"{reason}.*Received: Tls"):
            EnsembleClient(f"{scheme}://127.0.0.1:1", "movies", tls=wrong, retries=0)


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
