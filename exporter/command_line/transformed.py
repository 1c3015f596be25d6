"""The options of transformed data, which `fit` and `transform` write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from exporter.command_line.cluster import Scheduler, cluster_client
from exporter.command_line.words import RowsPerFile, StorageOption, pairs


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
        with cluster_client(self.scheduler) as client:
            yield {"engine": self.engine, "client": client, "storage_options": options}
