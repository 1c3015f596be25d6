"""The description of a model's HTTP face for generators of clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from exporter.command_line.connect import RunningServer
from exporter.command_line.guard import CommandError
from exporter.command_line.places import expect_place, write_text


def openapi(
    name: Annotated[str, typer.Argument(help="The ensemble's name.")],
    connection: RunningServer,
    repository: Annotated[
        Path | None, typer.Option(help="Or a model repository; by default models.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            help="The HTTP address to write into the document; by default --url if that is of HTTP, "
            "else http://127.0.0.1:8000."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="A file for the document; by default it is printed.")
    ] = None,
) -> None:
    """Write the OpenAPI 3.1 document of a model's HTTP face, as JSON.

    Generators such as openapi-generator make a client from it.

    Example: `ensemble openapi movielens --repository models --output movielens.json`
    """
    # So that help is shown at once.
    from exporter.report.ensemble_drawing import EnsembleDrawing  # noqa: PLC0415
    from serving.contract import read_contract  # noqa: PLC0415
    from serving.openapi import openapi_document  # noqa: PLC0415

    expect_place(output)
    if repository is not None and connection.url is not None:
        raise CommandError("Expected --repository or --url. Received: both.")
    connection.expect_url()
    if connection.url is not None:
        with connection.client(name, connection.url) as client:
            contract = client.contract
    else:
        contract = read_contract(EnsembleDrawing.read(repository or Path("models"), name).config)
    if server is None and (connection.url or "").startswith("http"):
        server = connection.url
    arguments = {} if server is None else {"server": server}
    document = openapi_document(name, contract, **arguments)
    text = json.dumps(document, indent=2, ensure_ascii=output is None)
    if output is None:
        typer.echo(text)
        return
    write_text(output, f"{text}\n")
    typer.echo(f"{output}: the OpenAPI document of {name}")
