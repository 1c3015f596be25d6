"""The options of transformed data, which `fit` and `transform` write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from exporter.command_line.guard import CommandError
from exporter.command_line.words import RowsPerFile, StorageOption, pairs

Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run on a Dask cluster, such as tcp://HOST:8786, whose workers read the same paths of parquet.",
    ),
]
# Seconds until a scheduler must answer.
CONNECT = 10


@dataclass(frozen=True)
class Transformed:
    """Options of the written rows, and of how they are computed."""

    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Write the rows in a random order, over all files.")
    ] = False
    seed: Annotated[int, typer.Option(min=0, help="Of the random order.")] = 0
    rows_per_file: RowsPerFile = 1_000_000
    compression: Annotated[str, typer.Option(help="snappy, zstd, lz4 or uncompressed.")] = "snappy"
    engine: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto"
    scheduler: Scheduler = None
    storage_option: StorageOption = None

    @property
    def files(self) -> dict[str, Any]:
        """The arguments of `Workflow.transform_to_parquet` for its files."""
        names = ("shuffle", "seed", "rows_per_file", "compression")
        return {name: getattr(self, name) for name in names}

    @contextmanager
    def computed(self) -> Iterator[dict[str, Any]]:
        """The arguments of `Workflow.fit` for where it runs; a client is closed at the end.

        Raises:
            CommandError: --storage-option in another form, or no scheduler answers.
        """
        options = pairs(self.storage_option, "--storage-option")
        with _cluster_client(self.scheduler) as client:
            yield {"engine": self.engine, "client": client, "storage_options": options}


@contextmanager
def _cluster_client(scheduler: str | None) -> Iterator[Any]:
    """A `dask.distributed.Client`, closed at the end; None without an address.

    Args:
        scheduler: the address of the cluster's scheduler.
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
