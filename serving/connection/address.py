"""Addresses of servers, and the certificates of secured connections."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from serving.errors import ClientError
from workflow.schema.own_names import OwnNames

SCHEMES = ("grpc", "grpcs", "http", "https")
_LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Tls(metaclass=OwnNames):
    """The certificates of a secured connection, files in PEM.

    Attributes:
        root_certificates: the trusted authorities; None for those of the system.
        private_key: the key of `certificate_chain`, not encrypted; None if that file has it too.
        certificate_chain: the client's certificate, if the server requires one.

    Example:
        >>> Tls(root_certificates="ca.pem").private_key is None
        True
    """

    root_certificates: str | Path | None = None
    private_key: str | Path | None = None
    certificate_chain: str | Path | None = None

    def contents(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Contents of the three files.

        Raises:
            ClientError: a file that cannot be read.
        """
        files = (self.root_certificates, self.private_key, self.certificate_chain)
        try:
            root, key, chain = (None if file is None else Path(file).read_bytes() for file in files)
        except OSError as error:
            raise ClientError(
                "INVALID_INPUT", f"Expected a certificate in PEM. Received: {error}."
            ) from error
        return root, key, chain


def tls_context(tls: Tls) -> ssl.SSLContext:
    """The SSL context of a secured connection.

    gRPC takes certificates unread, and then reports that no server answers, so its connections make
    a context too.

    Raises:
        ClientError: a certificate that cannot be read, or a key without or with another one.
    """
    tls.contents()  # Its error names the file.
    if tls.private_key is not None and tls.certificate_chain is None:
        raise ClientError(
            "INVALID_INPUT", f"Expected certificate_chain, beside private_key. Received: {tls}."
        )
    try:
        context = ssl.create_default_context(cafile=tls.root_certificates)
        if tls.certificate_chain is not None:
            # With a password no encrypted key asks for one on the terminal.
            context.load_cert_chain(tls.certificate_chain, tls.private_key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise ClientError(
            "INVALID_INPUT",
            f"Expected certificates in PEM, and a key of theirs that is not encrypted. "
            f"Received: {tls}: {error}.",
        ) from error
    return context


@dataclass(frozen=True)
class Address:
    """A server's address.

    Attributes:
        url: the address as given.
        scheme: "grpc", "grpcs", "http" or "https".
        host: the name or IP address.
        port: the port.
        path: prefix of Triton's own paths, for a server behind a proxy.
        tls: the certificates, if the scheme is a secured one.
    """

    url: str
    scheme: str
    host: str
    port: int
    path: str = ""
    tls: Tls | None = None

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine, so that no proxy is used."""
        return self.host in _LOCAL

    @property
    def target(self) -> str:
        """Host and port in one text."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(url: str, tls: Tls | None = None) -> Address:
    """Read an address.

    Args:
        url: "host:port" or "grpc://host:port" for gRPC, "http://host:port" for HTTP, and
            "grpcs://" or "https://" for the same over TLS.
        tls: the certificates; only with TLS.

    Raises:
        ClientError: an invalid address, one with a login or a query, or certificates without TLS.

    Example:
        >>> parse_address("127.0.0.1:8001").scheme
        'grpc'
    """
    parts, port = _split(url)
    if parts.username is not None or parts.query or parts.fragment:
        # Not shown, since it has a password or a token.
        raise ClientError(
            "INVALID_INPUT",
            "Expected an address without a user, a query or a fragment, which are not sent: give a login "
            f"as headers, such as authorization. Received: one for {parts.hostname}:{port}.",
        )
    is_secured = parts.scheme.endswith("s")
    if tls is not None and not is_secured:
        raise ClientError(
            "INVALID_INPUT",
            f"Expected an address that begins with grpcs:// or https://, since certificates are "
            f"given. Received: {url!r}.",
        )
    return Address(
        url,
        parts.scheme,
        str(parts.hostname),
        port,
        parts.path.rstrip("/"),
        (tls or Tls()) if is_secured else None,
    )


def _split(url: str) -> tuple[SplitResult, int]:
    try:
        if not isinstance(url, str):
            raise ValueError  # noqa: TRY004, TRY301 - reported below, as any other
        parts = urlsplit(url if "://" in url else f"grpc://{url}")
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        # As it is sent; otherwise a request would raise a UnicodeError.
        _ = f"{parts.hostname}".encode("idna"), parts.path.encode("ascii")
    except ValueError:  # For example a port that is not a number, or a host with two dots in a row.
        parts, port = urlsplit(""), None
    is_bare = parts.scheme.startswith("http") or not parts.path.strip("/")
    if parts.scheme in SCHEMES and parts.hostname and port is not None and is_bare:
        return parts, port
    raise ClientError(
        "INVALID_INPUT",
        "Expected the address of a server, for example 127.0.0.1:8001 for gRPC or "
        f"http://127.0.0.1:8000 for HTTP; with TLS grpcs:// or https://. Received: {url!r}.",
    )
