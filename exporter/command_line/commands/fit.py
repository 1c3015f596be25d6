"""Fitting a workflow that a user's file defines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from exporter.command_line.guard import CommandError
from exporter.command_line.lines import folded
from exporter.command_line.transformed import Transformed
from exporter.command_line.user_code import load_object
from exporter.command_line.words import Data, Json, NullValue, answer, with_nulls


def fit(
    definition: Annotated[
        str,
        typer.Argument(
            metavar="WORKFLOW",
            help="file.py, file.py:name or module:name; the name is `workflow` by default. "
            "This runs your own Python code.",
        ),
    ],
    data: Data,
    output: Annotated[Path, typer.Option(help="Where the fitted workflow is saved.")] = Path(
        "workflow"
    ),
    transform_to: Annotated[
        str | None, typer.Option(help="Also write the transformed data there, for `train`.")
    ] = None,
    *,
    transformed: Transformed,
    null_value: NullValue = None,
    as_json: Json = False,
) -> None:
    """Fit a workflow to data, and save it.

    Without --transform-to no rows are written, and the options of their files have no effect.

    Example: `ensemble fit features.py "ratings/*.parquet" --transform-to train --shuffle`
    """
    from workflow import Workflow  # noqa: PLC0415 - so that help is shown at once
    from workflow.data.sources import as_path  # noqa: PLC0415
    from workflow.errors import WorkflowError  # noqa: PLC0415
    from workflow.saved.saved_files import expect_own  # noqa: PLC0415

    place = as_path(output)
    if transformed.shuffle and transform_to is None:
        raise CommandError(
            "Expected --transform-to FOLDER, whose rows --shuffle orders. Received: --shuffle alone."
        )
    rows = with_nulls(data, null_value)
    workflow = load_object(definition, "workflow")
    if not isinstance(workflow, Workflow):
        raise WorkflowError(
            f"Expected a Workflow in {definition}. Received: {type(workflow).__name__}."
        )
    expect_own(place)  # before the work, not after it
    files = []
    with transformed.computed() as how:
        if transform_to is None:
            workflow.fit(rows, **how).save(output)
        else:
            files = workflow.fit_transform_to_parquet(
                rows, transform_to, save_to=output, **transformed.files, **how
            )
    columns = {c.name: str(c.dtype) for c in workflow.output_schema.columns}
    text = folded(f"{output}: a workflow that makes {', '.join(columns)}")
    if transform_to is not None:
        text += f"\n{transform_to}: the transformed data"
    answer(as_json, text, workflow=output, columns=columns, folder=transform_to, files=files)
