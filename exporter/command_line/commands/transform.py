"""Transformation of further data with a fitted workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from exporter.command_line.cluster import Scheduler, cluster_client
from exporter.command_line.words import (
    Compression,
    Data,
    Json,
    NullValue,
    RowsPerFile,
    Seed,
    Shuffle,
    StorageOption,
    answer,
    pairs,
    with_nulls,
)


def transform(
    data: Data,
    output: Annotated[
        str,
        typer.Option(help="A folder for the transformed data, such as train or s3://shop/train."),
    ],
    workflow: Annotated[Path, typer.Option(help="The saved workflow.")] = Path("workflow"),
    shuffle: Shuffle = False,
    seed: Seed = 0,
    rows_per_file: RowsPerFile = 1_000_000,
    compression: Compression = "snappy",
    engine: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    scheduler: Scheduler = None,
    storage_option: StorageOption = None,
    null_value: NullValue = None,
    as_json: Json = False,
) -> None:
    """Transform data that `fit` has not seen, as for `train`.

    Example: `ensemble transform "raw/valid/*.parquet" --output valid`
    """
    from workflow import Workflow  # noqa: PLC0415 - so that help is shown at once

    fitted, rows = Workflow.load(workflow), with_nulls(data, null_value)
    with cluster_client(scheduler) as client:
        files = fitted.transform_to_parquet(
            rows,
            output,
            shuffle=shuffle,
            seed=seed,
            rows_per_file=rows_per_file,
            compression=compression,
            engine=engine,
            client=client,
            storage_options=pairs(storage_option, "--storage-option"),
        )
    answer(as_json, f"{output}: the transformed data", folder=output, files=files)
