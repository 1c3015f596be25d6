"""A client for a served model, of a running server or of one that is started for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exporter.command_line.guard import CommandError

if TYPE_CHECKING:
    from serving import EnsembleClient

Url = Annotated[
    str | None,
    typer.Option(help="A running server: host:port for gRPC, http://host:port for HTTP."),
]
Repository = Annotated[
    Path | None, typer.Option(help="Or a model repository, to start a server for.")
]


@contextmanager
def connected(name: str, url: str | None, repository: Path | None) -> Iterator[EnsembleClient]:
    """A client of the model, closed at the end, together with a server that was started for it.

    Raises:
        CommandError: neither or both of --url and --repository are given.
        ServerError: the server cannot be started.
        ClientError: the model does not answer.
    """
    from serving import EnsembleClient, TritonServer  # noqa: PLC0415 - so that help is shown at once

    if (url is None) == (repository is None):
        raise CommandError(
            "Expected --url of a running server, or --repository to start one. "
            f"Received: {'neither' if url is None else 'both'}."
        )
    if repository is None:
        with EnsembleClient(str(url), name) as client:
            yield client
        return
    with (
        TritonServer(repository, [name]) as server,
        EnsembleClient(server.grpc_url, name) as client,
    ):
        yield client
