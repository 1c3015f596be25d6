"""Training a network on what a workflow made."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from exporter.command_line.quiet import import_tensorflow
from exporter.command_line.user_code import load_object


def train(
    data: Annotated[list[str], typer.Argument(help="The transformed parquet files or folders.")],
    workflow: Annotated[Path, typer.Option(help="The saved workflow.")] = Path("workflow"),
    output: Annotated[Path, typer.Option(help="Where the network is saved.")] = Path("model.keras"),
    model: Annotated[
        str | None,
        typer.Option(
            help="file.py:name or module:name of a function that takes the workflow and returns "
            "a Keras model; `make_model` by default. This runs your own Python code. "
            "Without it a multi-layer perceptron of the workflow's columns is trained."
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="A label's column; by default those tagged as target."),
    ] = None,
    validation: Annotated[
        list[str] | None, typer.Option(help="Parquet to validate with after each epoch.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1)] = 1,
    batch_size: Annotated[int, typer.Option(min=1)] = 16_384,
    learning_rate: Annotated[float, typer.Option(min=0.0)] = 0.001,
    embedding_dim: Annotated[int, typer.Option(min=1, help="The widest embedding.")] = 64,
    seed: Annotated[int, typer.Option(help="Of the weights and the order of rows.")] = 0,
) -> None:
    """Train a network on transformed data, and save it.

    Example: `ensemble train train --label rating --epochs 3`
    """
    import_tensorflow()
    import keras  # noqa: PLC0415 - so that help is shown at once

    from loader import KerasSequenceLoader  # noqa: PLC0415
    from training import train as fit_model  # noqa: PLC0415
    from training.errors import TrainingError  # noqa: PLC0415
    from workflow import Workflow  # noqa: PLC0415

    if output.suffix != ".keras":
        raise TrainingError(f"Expected an output that ends with .keras. Received: {output}.")
    fitted = Workflow.load(workflow)
    keras.utils.set_random_seed(seed)
    labels = label or [c.name for c in fitted.output_schema.columns if "target" in c.tags]
    make = partial(_mlp, labels=labels, widest=embedding_dim)
    network = (load_object(model, "make_model") if model else make)(fitted)

    def load(paths: list[str], *, shuffle: bool) -> Any:
        return KerasSequenceLoader(
            paths, batch_size=batch_size, label_names=labels, shuffle=shuffle, seed=seed
        )

    report = fit_model(
        network,
        load(data, shuffle=True),
        load(validation, shuffle=False) if validation else None,
        epochs=epochs,
        optimizer=keras.optimizers.Adam(learning_rate),
    )
    network.save(output)
    typer.echo(f"{report}\n{output}: the network")


def _mlp(workflow: Any, labels: list[str], widest: int) -> Any:
    """The network for the workflow's columns, labels left out."""
    from training import models  # noqa: PLC0415 - so that help is shown at once
    from workflow import Schema  # noqa: PLC0415

    columns = [c for c in workflow.output_schema.columns if c.name not in labels]
    return models.mlp(Schema(columns), max_embedding_dim=widest)
