"""Transformation of further data with a fitted workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from exporter.command_line.transformed import Transformed
from exporter.command_line.words import Data, Json, NullValue, answer, with_nulls


def transform(
    data: Data,
    output: Annotated[
        str,
        typer.Option(help="A folder for the transformed data, such as train or s3://shop/train."),
    ],
    workflow: Annotated[Path, typer.Option(help="The saved workflow.")] = Path("workflow"),
    *,
    transformed: Transformed,
    null_value: NullValue = None,
    as_json: Json = False,
) -> None:
    """Transform data that `fit` has not seen, as for `train`.

    Example: `ensemble transform "raw/valid/*.parquet" --output valid`
    """
    from workflow import Workflow  # noqa: PLC0415 - so that help is shown at once

    fitted, rows = Workflow.load(workflow), with_nulls(data, null_value)
    with transformed.computed() as how:
        files = fitted.transform_to_parquet(rows, output, **transformed.files, **how)
    answer(as_json, f"{output}: the transformed data", folder=output, files=files)
