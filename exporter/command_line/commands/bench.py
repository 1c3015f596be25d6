"""Measurement of a served model's response times."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exporter.command_line.connect import AnyServer, connected
from exporter.command_line.first_rows import first_rows
from exporter.command_line.guard import CommandError
from exporter.command_line.places import expect_place
from exporter.command_line.words import (
    Data,
    Json,
    NullValue,
    StorageOption,
    answer,
    pairs,
    with_nulls,
)

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

    from exporter.report.latency import Latency
    from serving import EnsembleClient


def bench(
    name: Annotated[str, typer.Argument(help="The ensemble's name.")],
    data: Data,
    connection: AnyServer,
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
    storage_option: StorageOption = None,
    null_value: NullValue = None,
    as_json: Json = False,
) -> None:
    """Measure the response times of a served model.

    A time is that from a frame of rows to a frame of answers, with all requests that the client sends
    for it, and their repetitions if the server refuses one. The same rows are sent again and again.

    Example: `ensemble bench movielens "raw/valid/*.parquet" --url 127.0.0.1:8001`
    """
    # So that help is shown at once.
    from rich.console import Console  # noqa: PLC0415

    from exporter.report.latency import FROM_CACHE, SIZES  # noqa: PLC0415
    from serving.watch.view import WIDTH  # noqa: PLC0415

    expect_place(write_input)
    rows, options = with_nulls(data, null_value), pairs(storage_option, "--storage-option")
    with connected(name, connection) as client:
        frame = first_rows(rows, client.contract.input_schema, max(SIZES), options).collect()
        if not frame.height:
            raise CommandError("Expected rows to send. Received: none.")
        if write_input is not None:
            _write_input(client, frame, write_input, validation_data, as_json)
            return
        measured = _measure(client, frame, seconds, clients)
        title = f"{client.model_name} at {client.url}"
    lines = [_line(latency) for latency in measured]
    cached = any(latency.response_cache for latency in measured)
    if as_json:
        answer(as_json, "", model=name, lines=lines, response_cache=cached)
    else:
        console = Console()
        console.width = max(console.width, WIDTH)  # or numbers would be cut
        console.print(_table(title, lines, FROM_CACHE if cached else None))


def _write_input(
    client: EnsembleClient, frame: pl.DataFrame, path: Path, validation_data: bool, as_json: bool
) -> None:
    from serving import write_perf_analyzer_input  # noqa: PLC0415 - so that help is shown at once

    count = write_perf_analyzer_input(client, frame, path, validation_data=validation_data)
    text = f"{path}: {count:,} requests of one row"
    answer(as_json, text, model=client.model_name, input=path, requests=count)


def _measure(
    client: EnsembleClient, frame: pl.DataFrame, seconds: float, clients: int
) -> list[Latency]:
    from exporter.report.latency import SIZES, measure_latency  # noqa: PLC0415 - as above

    cases = [(1, size) for size in SIZES] + [(clients, 1)]
    return [measure_latency(client, frame, threads, size, seconds) for threads, size in cases]


def _line(latency: Latency) -> dict[str, float]:
    """The numbers of a line by their titles."""
    from exporter.report.latency import PERCENTILES  # noqa: PLC0415 - as above

    rate = latency.requests_per_second
    times = zip(PERCENTILES, latency.milliseconds, strict=True)
    line = {"clients": latency.clients, "rows": latency.rows, **{f"p{p} ms": ms for p, ms in times}}
    return {**line, "requests/s": rate, "rows/s": rate * latency.rows}


def _table(title: str, lines: list[dict[str, float]], note: str | None) -> Table:
    from rich.table import Table  # noqa: PLC0415 - so that help is shown at once

    table = Table(title=title, title_justify="left", caption=note, caption_justify="left")
    for name in lines[0]:
        table.add_column(name, justify="right")
    for line in lines:
        cells = (f"{n:.2f}" if name.endswith(" ms") else f"{n:,.0f}" for name, n in line.items())
        table.add_row(*cells)
    return table
