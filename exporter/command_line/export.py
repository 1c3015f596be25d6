"""From a saved workflow and a network to a model repository."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def export(
    name: Annotated[str, typer.Argument(help="The ensemble's name.")],
    workflow: Annotated[Path, typer.Option(help="The saved workflow.")] = Path("workflow"),
    model: Annotated[Path, typer.Option(help="The network, a .keras file.")] = Path("model.keras"),
    repository: Annotated[Path, typer.Option(help="The model repository; made if missing.")] = Path(
        "models"
    ),
    label: Annotated[
        list[str] | None,
        typer.Option(help="A column that a request has not; by default those tagged as target."),
    ] = None,
    version: Annotated[int, typer.Option(min=1)] = 1,
    runtime: Annotated[
        str, typer.Option(help="tensorflow, onnx, fused_onnx or fused_tensorflow.")
    ] = "tensorflow",
    max_batch_size: Annotated[
        int, typer.Option(min=0, help="Join requests up to so many rows; 0 takes each alone.")
    ] = 0,
) -> None:
    """Write a Triton model repository from a workflow and a network, and print the plan.

    Example: `ensemble export movielens --label rating --runtime fused_onnx --max-batch-size 1024`
    """
    # So that help is shown at once.
    from exporter import ServingOptions, export_tensorflow_ensemble  # noqa: PLC0415
    from workflow import Workflow  # noqa: PLC0415

    options = ServingOptions(runtime=runtime, max_batch_size=max_batch_size)
    report = export_tensorflow_ensemble(
        load_network(model),
        Workflow.load(workflow),
        name,
        repository,
        label,
        version=version,
        serving=options,
    )
    typer.echo(str(report))


def load_network(path: Path) -> Any:
    """The Keras model of a file.

    Raises:
        TrainingError: it cannot be read, or is a SavedModel, which has lost its named inputs.
    """
    import keras  # noqa: PLC0415 - so that help is shown at once

    # The layers of ours have to be known before a file that names them is read.
    from training.errors import TrainingError  # noqa: PLC0415

    if path.suffix != ".keras" or not path.is_file():
        received = "a folder" if path.is_dir() else "no such file" if not path.exists() else path
        raise TrainingError(
            f"Expected a Keras model in {path}, written by model.save('model.keras'). Received: "
            f"{received}. A SavedModel does not say which layers it is made of; save the model again."
        )
    try:
        return keras.saving.load_model(path)
    except (ValueError, TypeError, OSError) as error:
        line = str(error).strip().splitlines()[0]
        raise TrainingError(f"Expected a Keras model in {path}. Received: {line}") from error
