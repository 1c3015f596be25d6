"""The proof that a server's answers equal those of the offline pipeline."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from exporter.command_line.connect import AnyServer, connected
from exporter.command_line.first_rows import first_rows
from exporter.command_line.items import Index, Items, K, Search, with_items
from exporter.command_line.places import Html, NoHtml, page_place, write_text
from exporter.command_line.quiet import import_tensorflow
from exporter.command_line.words import (
    Data,
    Json,
    NullValue,
    StorageOption,
    answer,
    pairs,
    with_nulls,
)


def parity(
    name: Annotated[str, typer.Argument(help="The ensemble's name.")],
    data: Data,
    connection: AnyServer,
    workflow: Annotated[Path, typer.Option(help="The saved workflow.")] = Path("workflow"),
    model: Annotated[
        Path,
        typer.Option(help="The network: a .keras or .onnx file, or the folder of a SavedModel."),
    ] = Path("model.keras"),
    items: Items = None,
    k: K = None,
    index: Index = None,
    search: Search = None,
    rows: Annotated[
        int, typer.Option(min=1, help="Compare this many rows, the first ones.")
    ] = 10_000,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Predictions are equal where |served - offline| <= tolerance * max(1, |offline|).",
            show_default="1e-5, or 2e-2 for a network of 16-bit floats",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows of a request.")] = 1024,
    storage_option: StorageOption = None,
    null_value: NullValue = None,
    html: Html = None,
    no_html: NoHtml = False,
    as_json: Json = False,
) -> None:
    """Compare a server's answers with those of the offline pipeline.

    Integers and strings must be identical, floats nearly so, with NaN equal to NaN. The exit code
    is 1 if any value differs. The page also shows the rows with the largest differences and response times.

    Example: `ensemble parity movielens "raw/valid/*.parquet" --url 127.0.0.1:8001`
    """
    page = page_place(html, no_html, name, "parity")
    source, options = with_nulls(data, null_value), pairs(storage_option, "--storage-option")
    import_tensorflow()
    # So that help is shown at once.
    from exporter.report.parity_page import parity_page  # noqa: PLC0415
    from serving import check_parity  # noqa: PLC0415
    from training.network.load import load_network  # noqa: PLC0415
    from workflow import Workflow  # noqa: PLC0415

    fitted, network = (
        Workflow.load(workflow),
        load_network(with_items(model, items, k, index, search)),
    )
    frame = first_rows(source, fitted.input_schema, rows, options)
    # Beside --url the repository gives the page its sizes.
    of_server = replace(connection, repository=None) if connection.url else connection
    with connected(name, of_server) as client:
        report = check_parity(
            client, fitted, network, frame, tolerance=tolerance, batch_size=batch_size
        )
        if page is not None:
            write_text(page, parity_page(client, report, frame, connection.repository))
    answer(as_json, str(report), **asdict(report), passed=report.passed)
    if page is not None and not as_json:
        typer.echo(f"\n{page}: the report as a page")
    if not report.passed:
        raise typer.Exit(1)
