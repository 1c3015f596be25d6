"""Publication into a running server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from exporter.command_line.connect import ADMIN_KEY
from exporter.command_line.guard import CommandError
from exporter.command_line.words import Json, answer


def publish(
    name: Annotated[str, typer.Argument(help="The ensemble's name.")],
    url: Annotated[str, typer.Option(help="The running server: host:port of gRPC.")],
    repository: Annotated[
        Path, typer.Option(help="The model repository, which the server reads too.")
    ] = Path("models"),
    tolerance: Annotated[
        float, typer.Option(min=0, help="The least allowed difference; 1e-2 for a GPU with TF32.")
    ] = 0.0,
    timeout: Annotated[float, typer.Option(help="The most seconds for loading a model.")] = 120.0,
    as_json: Json = False,
) -> None:
    """Let a running server answer with the published version.

    Before clients get its answers, it has to answer its golden rows as its export did. The key that
    the server was started with is in the environment variable `TRITON_ADMIN_KEY`.

    Example: `ensemble publish movielens --url 127.0.0.1:8001 --repository models`
    """
    from serving.embedded.publication import (  # noqa: PLC0415 - so that help is shown at once
        LiveServer,
    )

    if not (key := os.environ.get(ADMIN_KEY)):
        raise CommandError(
            f"Expected the server's admin key in the environment variable {ADMIN_KEY}. "
            "Received: none. Start the server with it, as `ensemble serve` and docker-compose.yml do."
        )
    live = LiveServer(repository, url, key, timeout)
    version = live.publish(name, tolerance=tolerance)
    text = f"{name}: version {version} is served at {url}"
    answer(as_json, text, model=name, version=version, url=url)
