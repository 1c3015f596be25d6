"""Transformed data as parquet files and the schema that travels with them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Literal, cast

import polars as pl

from .data import SCHEMA_FILE
from .errors import WorkflowError
from .schema import Schema

# Small enough that a shuffle mixes well, large enough that decoding is not all overhead.
ROW_GROUP_ROWS = 250_000


def sink_parquet(
    frame: pl.LazyFrame, schema: Schema, folder: Path, rows_per_file: int, compression: str
) -> list[Path]:
    """Stream a frame into `part-00000.parquet` and so on, and write `schema.json`.

    Raises:
        WorkflowError: the folder holds parquet files already, or a setting makes no sense.
    """
    if rows_per_file < 1:
        raise WorkflowError(f"Expected rows_per_file from 1. Received: {rows_per_file}.")
    if compression not in ("snappy", "zstd", "lz4", "uncompressed"):
        raise WorkflowError(
            f'Expected "snappy", "zstd", "lz4" or "uncompressed". Received: {compression!r}.'
        )
    if folder.exists() and not folder.is_dir():
        raise WorkflowError(f"{folder} is a file. Write to a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.glob("*.parquet")):
        raise WorkflowError(
            f"{folder} holds parquet files already. Remove them, or write to another folder."
        )
    chosen = cast("Literal['snappy', 'zstd', 'lz4', 'uncompressed']", compression)
    # Written aside and moved when complete, so that a failure leaves nothing half done.
    with tempfile.TemporaryDirectory(prefix=".parts-", dir=folder) as scratch:
        target = pl.PartitionBy(
            scratch,
            max_rows_per_file=rows_per_file,
            approximate_bytes_per_file=None,
            file_path_provider=lambda file: f"part-{file.index_in_partition:05}.parquet",
        )
        frame.sink_parquet(
            target, compression=chosen, row_group_size=ROW_GROUP_ROWS, engine="streaming"
        )
        document = {"format": 1, "columns": schema.to_json()}
        (folder / SCHEMA_FILE).write_text(json.dumps(document, indent=1))
        return [part.rename(folder / part.name) for part in sorted(Path(scratch).iterdir())]
