"""Predictions for files, written as parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from exporter.command_line.connect import AnyServer, connected
from exporter.command_line.lines import folded
from exporter.command_line.words import (
    Data,
    Json,
    NullValue,
    RowsPerFile,
    StorageOption,
    answer,
    pairs,
    with_nulls,
)


def predict(
    name: Annotated[str, typer.Argument(help="The model's name.")],
    data: Data,
    output: Annotated[Path, typer.Option(help="A folder for the predictions.")],
    connection: AnyServer,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="A column of the data to write beside them; may be repeated."),
    ] = None,
    rows_per_file: RowsPerFile = 1_000_000,
    storage_option: StorageOption = None,
    null_value: NullValue = None,
    as_json: Json = False,
) -> None:
    """Predict for every row of some files, and write the answers as parquet.

    Rows keep their order. The files appear together, or not at all. Beside them is _schema.json, so
    name the files to read them: polars.read_parquet("scores/*.parquet").

    Example: `ensemble predict movielens "raw/*.parquet" --output scores --keep userId --url
    127.0.0.1:8001`
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - so that help is shown at once

    from serving.scoring import predict_to_parquet  # noqa: PLC0415

    rows_of = with_nulls(data, null_value)
    with connected(name, connection) as client:
        files = predict_to_parquet(
            client,
            rows_of,
            output,
            keep=keep or (),
            rows_per_file=rows_per_file,
            storage_options=pairs(storage_option, "--storage-option"),
        )
    # Absolute, since pyarrow takes a ~ at the beginning for the user's home.
    footers = [pq.read_metadata(file.absolute()) for file in files]
    rows = sum(footer.num_rows for footer in footers)
    columns = footers[0].schema.to_arrow_schema().names
    text = folded(f"{output}/*.parquet: {rows:,} rows of {', '.join(columns)}")
    answer(as_json, text, folder=output, rows=rows, columns=columns, files=files)
