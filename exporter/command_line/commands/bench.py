"""Measurement of a served model's response times."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exporter.command_line.connect import Repository, Url, connected
from exporter.command_line.guard import CommandError
from exporter.command_line.places import expect_place

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

    from serving import EnsembleClient

SIZES = (1, 64, 1024)
PERCENTILES = (50, 90, 99)


def bench(
    name: Annotated[str, typer.Argument(help="The ensemble's name.")],
    data: Annotated[list[str], typer.Argument(help="Raw parquet files, as for `fit`.")],
    url: Url = None,
    repository: Repository = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="For each line of the table.")] = 3.0,
    clients: Annotated[int, typer.Option(min=1, help="Clients at once, one row each.")] = 16,
    write_input: Annotated[
        Path | None,
        typer.Option(help="Do not measure: write requests for the --input-data of perf_analyzer."),
    ] = None,
    validation_data: Annotated[
        bool,
        typer.Option(
            help="With --write-input: also write the answers, which hold at --concurrency-range 1."
        ),
    ] = True,
) -> None:
    """Measure the response times of a served model.

    A time is that from a frame of rows to a frame of answers.

    Example: `ensemble bench movielens "raw/valid/*.parquet" --url 127.0.0.1:8001`
    """
    # So that help is shown at once.
    from rich.console import Console  # noqa: PLC0415

    from workflow.data.sources import as_lazy_frame  # noqa: PLC0415

    expect_place(write_input)
    frame = as_lazy_frame(data).head(max(SIZES)).collect()
    if not frame.height:
        raise CommandError("Expected rows to send. Received: none.")
    with connected(name, url, repository) as client:
        if write_input is not None:
            _write_input(client, frame, write_input, validation_data)
            return
        table = _measure(client, frame, seconds, clients)
    Console().print(table)


def _write_input(
    client: EnsembleClient, frame: pl.DataFrame, path: Path, validation_data: bool
) -> None:
    from serving import write_perf_analyzer_input  # noqa: PLC0415 - so that help is shown at once

    count = write_perf_analyzer_input(client, frame, path, validation_data=validation_data)
    typer.echo(f"{path}: {count:,} requests of one row")


def _measure(client: EnsembleClient, frame: pl.DataFrame, seconds: float, clients: int) -> Table:
    from rich.table import Table  # noqa: PLC0415 - so that help is shown at once

    table = Table(title=f"{client.model_name} at {client.url}", title_justify="left")
    for title in ("clients", "rows", *(f"p{p} ms" for p in PERCENTILES), "requests/s", "rows/s"):
        table.add_column(title, justify="right")
    for threads, size in [(1, size) for size in SIZES] + [(clients, 1)]:
        rows = _of_size(frame, size)
        times, taken = _times(partial(client.predict, rows), threads, seconds)
        table.add_row(*_cells(threads, size, times, taken))
    return table


def _of_size(frame: pl.DataFrame, size: int) -> pl.DataFrame:
    """Exactly `size` rows, repeated if the frame has fewer."""
    import polars as pl  # noqa: PLC0415 - so that help is shown at once

    return pl.concat([frame] * -(-size // frame.height)).head(size)


def _times(call: Callable[[], object], threads: int, seconds: float) -> tuple[list[float], float]:
    """The seconds of each call, and of all calls together."""
    call()

    def ask(_: int) -> list[float]:
        times: list[float] = []
        while time.perf_counter() < end or not times:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return times

    begin = time.perf_counter()
    end = begin + seconds
    with ThreadPoolExecutor(threads) as pool:
        times = [taken for part in pool.map(ask, range(threads)) for taken in part]
    return times, time.perf_counter() - begin


def _cells(threads: int, size: int, times: list[float], taken: float) -> list[str]:
    import numpy as np  # noqa: PLC0415 - so that help is shown at once

    percentiles = [f"{value * 1e3:.2f}" for value in np.percentile(times, PERCENTILES)]
    rate = len(times) / taken
    return [f"{threads}", f"{size:,}", *percentiles, f"{rate:,.0f}", f"{rate * size:,.0f}"]
