"""`ensemble export`: a saved workflow and a network as a model repository."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from exporter.command_line.first_rows import first_rows
from exporter.command_line.guard import CommandError
from exporter.command_line.items import Index, Items, K, Search, with_items
from exporter.command_line.places import Html, NoHtml, page_place, write_text
from exporter.command_line.quiet import import_tensorflow
from exporter.command_line.words import (
    Json,
    NullValue,
    StorageOption,
    answer,
    pairs,
    values,
    with_nulls,
)
from exporter.plan.runtime import AUTO, RUNTIMES
from workflow.data.object_stores import is_url


def export(
    name: Annotated[str, typer.Argument(help="The ensemble's name.")],
    workflow: Annotated[Path, typer.Option(help="The saved workflow.")] = Path("workflow"),
    model: Annotated[
        Path,
        typer.Option(help="The network: a .keras or .onnx file, or the folder of a SavedModel."),
    ] = Path("model.keras"),
    repository: Annotated[
        str,
        typer.Option(help="The model repository, made if missing, or a folder of an object store."),
    ] = "models",
    storage_option: StorageOption = None,
    items: Items = None,
    k: K = None,
    index: Index = None,
    search: Search = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="A column that requests lack; by default those tagged as target."),
    ] = None,
    sparse_max: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=WIDTH", help="The width of a list that the network takes as one input."
        ),
    ] = None,
    version: Annotated[
        int | None,
        typer.Option(
            min=1, help="By default the next one, unless the files are those that are published."
        ),
    ] = None,
    runtime: Annotated[
        str, typer.Option(help=f"One of {', '.join(RUNTIMES)}; by default the network's first.")
    ] = AUTO,
    max_batch_size: Annotated[
        int, typer.Option(min=0, help="Join requests up to this many rows; 0 keeps each alone.")
    ] = 0,
    golden_rows: Annotated[
        list[str] | None,
        typer.Option(help="Raw data: its first rows warm the server up before it is ready."),
    ] = None,
    null_value: NullValue = None,
    prove: Annotated[
        str,
        typer.Option(
            help='Where golden rows are answered before anything is published: "process", "server", '
            'or "auto", a server if one can be started here.'
        ),
    ] = "auto",
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Another of the ServingOptions, such as network_instances=2 or "
            "response_cache=True; can be repeated.",
        ),
    ] = None,
    html: Html = None,
    no_html: NoHtml = False,
    as_json: Json = False,
) -> None:
    """Write a workflow and a network as a Triton model repository.

    It prints the plan, with the dtype and shape of every tensor, and writes it as a page.

    Example: `ensemble export movielens --label rating --runtime fused_onnx --max-batch-size 1024`
    """
    page = page_place(html, no_html, name, "export")
    stored = is_url(repository)
    for name_of, words in (("--null-value", null_value), ("--storage-option", storage_option)):
        if words and not golden_rows and not (stored and words is storage_option):
            raise CommandError(f"Expected {name_of} with --golden-rows FILE. Received: it alone.")
    golden: Any = with_nulls(golden_rows, null_value) if golden_rows else None
    connection = pairs(storage_option, "--storage-option")
    import_tensorflow()
    # So that help is shown at once.
    from exporter import ServingOptions, export_ensemble  # noqa: PLC0415
    from exporter.plan.golden_rows import MOST_GIVEN  # noqa: PLC0415
    from workflow import Workflow  # noqa: PLC0415

    named: dict[str, Any] = {
        "runtime": runtime,
        "max_batch_size": max_batch_size,
        "golden_rows": golden,
        "prove": prove,
    }
    # These have options of their own.
    kinds = {f.name: str(f.type) for f in fields(ServingOptions) if f.name not in named}
    further = values(option, kinds, "--option")
    fitted = Workflow.load(workflow)
    if connection and (not stored or any(map(is_url, golden_rows or ()))):
        golden = first_rows(golden, fitted.input_schema, MOST_GIVEN, connection)
        named["golden_rows"] = golden.collect()
    report = export_ensemble(
        with_items(model, items, k, index, search),
        fitted,
        name,
        repository,
        label,
        sparse_max=_widths(sparse_max),
        version=version,
        serving=ServingOptions(**named, **further),
        storage_options=connection if stored else None,
    )
    if page is not None:
        write_text(page, report.to_html())
    answer(
        as_json,
        str(report),
        model=report.plan.published.name,
        version=report.plan.published.version,
        generation=report.generation,
        published=report.published,
        changes=report.changes,
        runtime=report.plan.pipeline.options.runtime,
        models=[model.name for model in report.plan.models],
        page=page,
    )
    if page is not None and not as_json:
        typer.echo(f"\n{page}: the report as a page")


def _widths(words: Sequence[str] | None) -> dict[str, int] | None:
    form = "COLUMN=WIDTH, such as genres=5"
    named = pairs(words, "--sparse-max", form) or {}
    for column, width in named.items():
        if not width.isdecimal():
            raise CommandError(f"Expected --sparse-max as {form}. Received: {column}={width}.")
    return {column: int(width) for column, width in named.items()} or None
