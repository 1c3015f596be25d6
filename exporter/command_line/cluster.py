"""A client of a Dask cluster, for the commands that run on one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from exporter.command_line.guard import CommandError

Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run on a Dask cluster, such as tcp://HOST:8786, whose workers read the same paths of parquet.",
    ),
]
# Seconds until a scheduler must answer.
CONNECT = 10


@contextmanager
def cluster_client(scheduler: str | None) -> Iterator[Any]:
    """A `dask.distributed.Client`, closed at the end; None without an address.

    Args:
        scheduler: the address of the cluster's scheduler.

    Raises:
        CommandError: no scheduler answers there.
    """
    if scheduler is None:
        yield None
        return
    # So that help is shown at once, and without the extra [dask].
    from distributed import Client  # noqa: PLC0415

    from workflow.errors import in_a_line  # noqa: PLC0415

    try:
        client: Any = Client(scheduler, timeout=CONNECT)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise CommandError(
            f"Expected --scheduler ADDRESS of a running scheduler, as `dask scheduler` prints it. "
            f"Received: {scheduler}: {in_a_line(error)}"
        ) from error
    with client:
        yield client
