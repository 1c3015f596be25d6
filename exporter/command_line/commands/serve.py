"""A server that runs until Ctrl-C or SIGTERM."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from exporter.command_line.connect import ADMIN_KEY


def serve(
    repository: Annotated[Path, typer.Argument(help="The model repository.")] = Path("models"),
    model: Annotated[
        list[str] | None, typer.Option(help="A model to load; by default every ensemble.")
    ] = None,
    grpc_port: Annotated[int, typer.Option(help="The port of gRPC.")] = 8001,
    http_port: Annotated[int, typer.Option(help="The port of HTTP.")] = 8000,
    metrics_port: Annotated[int, typer.Option(help="The port of the metrics.")] = 8002,
    http: Annotated[bool, typer.Option(help="Listen for HTTP beside gRPC.")] = True,
    log_file: Annotated[Path | None, typer.Option(help="Where the server's log goes.")] = None,
    response_cache_bytes: Annotated[
        int,
        typer.Option(min=0, help="Bytes of memory for answers of models exported with a cache."),
    ] = 0,
    heal: Annotated[
        bool, typer.Option(help="Replace models and servers that no longer answer.")
    ] = True,
    tritonserver: Annotated[
        Path | None, typer.Option(help="The server's program; by default the installed one.")
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option(
            help="The interpreter of Python models; by default $TRITONSERVER_PYTHON, then this one."
        ),
    ] = None,
    startup_timeout: Annotated[float, typer.Option(help="Seconds until it must answer.")] = 120.0,
) -> None:
    """Serve a model repository on this machine, until Ctrl-C or SIGTERM.

    `ensemble publish` needs the admin key, which the environment variable `TRITON_ADMIN_KEY` sets.

    Example: `ensemble serve models --model movielens`
    """
    from serving import ServerError, TritonServer  # noqa: PLC0415 - so that help is shown at once

    server = TritonServer(
        repository,
        model,
        tritonserver=tritonserver,
        python=python,
        grpc_port=grpc_port,
        http_port=http_port,
        http=http,
        metrics_port=metrics_port,
        log_file=log_file,
        startup_timeout=startup_timeout,
        response_cache_bytes=response_cache_bytes,
        heal=heal,
        admin_key=os.environ.get(ADMIN_KEY),
    )
    with _terminated_as_interrupted(), server:
        try:
            typer.echo(f"gRPC  {server.grpc_url}")
            if http:
                typer.echo(f"HTTP  {server.http_url}")
            typer.echo(f"watch {server.metrics_url}")
            typer.echo(f"log   {server.log_path}")
            typer.echo(f"ready: {', '.join(server.models)}. Ctrl-C stops the server.")
            while heal or server.is_running():
                time.sleep(0.2)
        except KeyboardInterrupt:
            return
    raise ServerError(f"The server ended on its own. Its log is {server.log_path}.")


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Make SIGTERM end the command as Ctrl-C does, when the server has stopped.

    Otherwise the command would leave the server to its supervisor, and a service manager would start
    the next one while the ports are taken; as a container's first process it would not end at all. A
    second one, as `timeout` sends to the command and to its group, does not interrupt the stop.
    """

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.default_int_handler(number, frame)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
