"""Transformation of further data with a fitted workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def transform(
    data: Annotated[list[str], typer.Argument(help="Raw files, as for `fit`.")],
    output: Annotated[Path, typer.Option(help="A folder for the transformed data.")],
    workflow: Annotated[Path, typer.Option(help="The saved workflow.")] = Path("workflow"),
    engine: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
) -> None:
    """Transform data that `fit` has not seen, as for `train`.

    Example: `ensemble transform "raw/valid/*.parquet" --output valid`
    """
    from workflow import Workflow  # noqa: PLC0415 - so that help is shown at once

    Workflow.load(workflow).transform_to_parquet(data, output, engine=engine)
    typer.echo(f"{output}: the transformed data")
