"""Fitting a workflow that a user's file defines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from exporter.command_line.user_code import load_object


def fit(
    definition: Annotated[
        str,
        typer.Argument(
            metavar="WORKFLOW",
            help="file.py, file.py:name or module:name; the name is `workflow` by default. "
            "This runs your own Python code.",
        ),
    ],
    data: Annotated[
        list[str],
        typer.Argument(help="Files or patterns of parquet, CSV or TSV, or folders of parquet."),
    ],
    output: Annotated[Path, typer.Option(help="Where the fitted workflow is saved.")] = Path(
        "workflow"
    ),
    transform_to: Annotated[
        Path | None, typer.Option(help="Also write the transformed data there, for `train`.")
    ] = None,
    engine: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
) -> None:
    """Fit a workflow to data, and save it.

    Example: `ensemble fit features.py "ratings/*.parquet" --transform-to train`
    """
    from workflow import Workflow  # noqa: PLC0415 - so that help is shown at once
    from workflow.data.sources import as_path  # noqa: PLC0415
    from workflow.errors import WorkflowError  # noqa: PLC0415

    as_path(output)  # before the work, not after it
    workflow = load_object(definition, "workflow")
    if not isinstance(workflow, Workflow):
        raise WorkflowError(
            f"Expected a Workflow in {definition}. Received: {type(workflow).__name__}."
        )
    if transform_to is None:
        workflow.fit(data, engine=engine)
    else:
        workflow.fit_transform_to_parquet(data, transform_to, engine=engine)
    workflow.save(output)
    columns = ", ".join(workflow.output_schema)
    typer.echo(f"{output}: a workflow that makes {columns}")
    if transform_to is not None:
        typer.echo(f"{transform_to}: the transformed data")
