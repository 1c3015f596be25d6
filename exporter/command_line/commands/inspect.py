"""Facts about the columns of raw data, and synthetic data like it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from exporter.command_line.guard import CommandError
from exporter.command_line.places import expect_place, write_text
from exporter.command_line.words import (
    Data,
    Json,
    NullValue,
    StorageOption,
    answer,
    pairs,
    with_nulls,
)


def inspect(
    data: Data,
    columns: Annotated[
        list[str] | None, typer.Option("--column", help="Only this column; may be repeated.")
    ] = None,
    top: Annotated[
        int, typer.Option(min=0, help="How many of the commonest values of a column to keep.")
    ] = 20,
    most_values: Annotated[
        int,
        typer.Option(
            min=1,
            help="Count so many different values of a column one by one; estimate beyond them.",
        ),
    ] = 10_000_000,
    save: Annotated[
        Path | None, typer.Option(help="Also save the facts, for `Inspection.load`.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write them as an HTML page.")] = None,
    generate: Annotated[
        Path | None, typer.Option(help="Also write random rows like them to a parquet file.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=0, help="Rows for --generate; as many as the data by default.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="For --generate.")] = 0,
    row_group_size: Annotated[
        int, typer.Option(min=1, help="For --generate: rows of a row group, which are in memory.")
    ] = 131_072,
    storage_option: StorageOption = None,
    null_value: NullValue = None,
    as_json: Json = False,
) -> None:
    """Show types, distinct values, skew and nulls of raw data, and operators that may suit it.

    Example: `ensemble inspect "ratings/*.parquet" --html ratings.html`
    """
    from workflow import generate_dataset, inspect_dataset  # noqa: PLC0415 - so that help is shown at once
    from workflow.data.sources import expect_kept, files_of  # noqa: PLC0415

    source, options = with_nulls(data, null_value), pairs(storage_option, "--storage-option")
    for path in (save, html, generate):
        expect_place(path)
        if path is not None and path.exists():
            expect_kept(path, files_of(data, options))
    if rows is not None and generate is None:
        raise CommandError(f"Expected --rows with --generate FILE. Received: --rows {rows} alone.")
    inspection = inspect_dataset(
        source, columns or None, top=top, most_values=most_values, storage_options=options
    )
    notes = []
    if save is not None:
        inspection.save(save)
        notes.append(f"{save}: the facts")
    if html is not None:
        write_text(html, inspection.to_page())
        notes.append(f"{html}: the page")
    if generate is not None:
        count = inspection.rows if rows is None else rows
        generate_dataset(inspection, count, generate, seed, row_group_size=row_group_size)
        notes.append(f"{generate}: {count:,} random rows")
    # Files first: who reads the table may stop after its first lines.
    answer(
        as_json,
        "\n".join([str(inspection), *notes]),
        rows=inspection.rows,
        columns=[asdict(column) for column in inspection.columns],
        unreadable=inspection.unreadable,
        saved=save,
        page=html,
        generated=generate,
    )
