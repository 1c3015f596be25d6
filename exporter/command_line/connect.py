"""A client for a served model, of a running server or of one that is started for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exporter.command_line.guard import CommandError
from exporter.command_line.words import pairs

if TYPE_CHECKING:
    from serving import EnsembleClient

# A command line is visible to every user of a machine.
ADMIN_KEY = "TRITON_ADMIN_KEY"
_CERTIFICATES = ("root_certificates", "private_key", "certificate_chain")


@dataclass(frozen=True)
class RunningServer:
    """Options for a client of a running server, as `EnsembleClient` has them."""

    url: Annotated[
        str | None,
        typer.Option(
            help="A running server: host:port for gRPC, http://host:port for HTTP, grpcs:// or "
            "https:// for the same over TLS."
        ),
    ] = None
    model_version: Annotated[
        str, typer.Option(help="The model's version; by default the newest one.")
    ] = ""
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Sent with every request, such as a token for a proxy; may be repeated. NAME=@FILE "
            "reads a secret value from a file.",
        ),
    ] = None
    root_certificates: Annotated[
        Path | None,
        typer.Option(help="The trusted authorities, in PEM; by default those of the system."),
    ] = None
    private_key: Annotated[
        Path | None, typer.Option(help="The client's key, in PEM, for a server that asks for one.")
    ] = None
    certificate_chain: Annotated[
        Path | None, typer.Option(help="The client's certificate, in PEM.")
    ] = None
    timeout: Annotated[float, typer.Option(help="Seconds of a request with its retries.")] = 60.0
    retries: Annotated[
        int,
        typer.Option(min=0, max=4, help="How often a request that is not accepted is repeated."),
    ] = 4

    def client(
        self, name: str, url: str, headers: Mapping[str, str] | None = None
    ) -> EnsembleClient:
        """A client of a model.

        Args:
            name: the model.
            url: the server's address.
            headers: further ones.

        Raises:
            CommandError: --header in another form, or a file that cannot be read.
            ClientError: the model does not answer.
        """
        from serving import EnsembleClient, Tls  # noqa: PLC0415 - so that help is shown at once

        certificates = {name: getattr(self, name) for name in _CERTIFICATES}
        return EnsembleClient(
            url,
            name,
            model_version=self.model_version,
            timeout=self.timeout,
            headers={**(headers or {}), **_headers(self.header)},
            tls=Tls(**certificates) if any(certificates.values()) else None,
            retries=self.retries,
            **self._further(),
        )

    def expect_url(self, *names: str) -> None:
        """Check that options that are for a running server are given with its address.

        Args:
            *names: the options; by default all.

        Raises:
            CommandError: one of them is given without --url.
        """
        options = [field for field in fields(self) if not names or field.name in names]
        settings = [f.name for f in options if getattr(self, f.name) not in (f.default, [])]
        if self.url is None and settings:
            words = ", ".join(f"--{name.replace('_', '-')}" for name in settings)
            raise CommandError(
                f"Expected --url of a running server with {words}. Received: no --url."
            )

    def _further(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class AnyServer(RunningServer):
    """Options for a client of a running server, or of one that is started for it."""

    shared_memory: Annotated[
        bool,
        typer.Option(
            "--shared-memory",
            help="Send tensors in memory that the server shares, on its own machine; the environment "
            f"variable {ADMIN_KEY} has its admin key.",
        ),
    ] = False
    repository: Annotated[
        Path | None, typer.Option(help="Or a model repository, to start a server for.")
    ] = None

    def _further(self) -> dict[str, Any]:
        return {"shared_memory": self.shared_memory}


@contextmanager
def connected(name: str, connection: AnyServer) -> Iterator[EnsembleClient]:
    """A client of the model, closed at the end, together with a server that was started for it.

    Raises:
        CommandError: neither or both of --url and --repository are given, or options for a running
            server with --repository.
        ServerError: the server cannot be started.
        ClientError: the model does not answer.
    """
    from serving import TritonServer  # noqa: PLC0415 - so that help is shown at once
    from serving.embedded.flags import admin_headers  # noqa: PLC0415

    url, repository = connection.url, connection.repository
    if (url is None) == (repository is None):
        raise CommandError(
            "Expected --url of a running server, or --repository to start one. "
            f"Received: {'neither' if url is None else 'both'}."
        )
    key = os.environ.get(ADMIN_KEY)
    if url is not None:
        headers = admin_headers(key) if connection.shared_memory and key else {}
        with connection.client(name, url, headers) as client:
            yield client
        return
    connection.expect_url("header", *_CERTIFICATES)
    with TritonServer(Path(str(repository)), [name]) as server:
        headers = server.admin_headers if connection.shared_memory else {}
        with connection.client(name, server.grpc_url, headers) as client:
            yield client


def _headers(words: list[str] | None) -> dict[str, str]:
    """Headers from arguments; the values of some are in files."""
    headers = pairs(words, "--header") or {}
    for name, value in headers.items():
        if value.startswith("@"):
            try:
                headers[name] = Path(value[1:]).read_text(encoding="utf-8").strip()
            except (OSError, ValueError) as error:
                raise CommandError(
                    f"Expected a text file with the value of the header {name}. Received: {error}."
                ) from error
    return headers
