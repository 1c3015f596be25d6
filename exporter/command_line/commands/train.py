"""Training of a network on a workflow's output."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from exporter.command_line.guard import CommandError
from exporter.command_line.network import (
    KINDS,
    WIDEST,
    NetworkOptions,
    class_weights,
    make_optimizer,
)
from exporter.command_line.places import expect_place
from exporter.command_line.quiet import import_tensorflow


def train(
    data: Annotated[list[str], typer.Argument(help="The transformed parquet files or folders.")],
    workflow: Annotated[Path, typer.Option(help="The saved workflow.")] = Path("workflow"),
    output: Annotated[Path, typer.Option(help="Where the network is saved.")] = Path("model.keras"),
    label: Annotated[
        list[str] | None,
        typer.Option(help="A label's column; by default those tagged as target."),
    ] = None,
    validation: Annotated[
        list[str] | None, typer.Option(help="Parquet to validate with after each epoch.")
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(KINDS)}; or your own: file.py:name or module:name of a function that "
            "takes the workflow and returns a Keras model (`make_model` without a name), which "
            "runs your Python code."
        ),
    ] = KINDS[0],
    hidden: Annotated[
        str | None, typer.Option(help="Widths of the dense layers, such as 256,128.")
    ] = None,
    embedding_dim: Annotated[
        int | None, typer.Option(min=1, help=f"The widest embedding; {WIDEST} by default.")
    ] = None,
    dropout: Annotated[
        float | None, typer.Option(min=0.0, max=0.99, help="Share of dense outputs to drop.")
    ] = None,
    query: Annotated[
        list[str] | None, typer.Option(help="A column of two_tower's first tower; again for more.")
    ] = None,
    optimizer: Annotated[str, typer.Option(help="adam, adagrad or sgd.")] = "adam",
    learning_rate: Annotated[
        float | None, typer.Option(help="By default that of Keras' optimizer.")
    ] = None,
    loss: Annotated[str, typer.Option(help="The name of a Keras loss.")] = "binary_crossentropy",
    metric: Annotated[
        list[str] | None, typer.Option(help="The name of a Keras metric; auc by default.")
    ] = None,
    class_weight: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL=WEIGHT", help="The weight of a label's rows, such as 1=20."),
    ] = None,
    precision: Annotated[
        str, typer.Option(help="Of the dense layers: float32, bfloat16 or float16.")
    ] = "float32",
    epochs: Annotated[int, typer.Option(min=1)] = 1,
    batch_size: Annotated[int, typer.Option(min=1)] = 16_384,
    steps_per_execution: Annotated[
        int | None,
        typer.Option(
            min=1, help="Steps for each call from Python; by default 32 on a GPU, else 1."
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="End after that many epochs without a better validation loss; keep the best.",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="A folder to save to after each epoch; a run resumes from its content."),
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(help="A folder for curves that TensorBoard draws.")
    ] = None,
    validate_ids: Annotated[
        bool, typer.Option("--validate-ids", help="Check ids in every step, to find a mistake.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the weights and the order of rows.")] = 0,
) -> None:
    """Train a network on transformed data, and save it.

    Example: `ensemble train train --validation valid --model dcn --epochs 9 --patience 2
    --checkpoint run`
    """
    if output.suffix != ".keras":
        raise CommandError(f"Expected an output that ends with .keras. Received: {output}.")
    expect_place(output)
    if patience and not validation:
        raise CommandError(
            f"Expected --validation, whose loss --patience compares. Received: --patience {patience}."
        )
    weights = class_weights(class_weight)
    import_tensorflow()
    import keras  # noqa: PLC0415 - so that help is shown at once

    from loader import KerasSequenceLoader  # noqa: PLC0415
    from training import train as fit_model  # noqa: PLC0415
    from workflow import Workflow  # noqa: PLC0415
    from workflow.files.durable import replacing  # noqa: PLC0415

    fitted = Workflow.load(workflow)
    chosen = make_optimizer(optimizer, learning_rate)
    keras.utils.set_random_seed(seed)
    labels = label or [c.name for c in fitted.output_schema.columns if "target" in c.tags]
    if not labels:
        raise CommandError(
            f"Expected --label, since {workflow} tags no column as target. Received: none. "
            f"Its columns are {', '.join(fitted.output_schema)}."
        )
    network = NetworkOptions(model, hidden, embedding_dim, dropout, query).make(fitted, labels)

    def load(paths: list[str], *, shuffle: bool) -> Any:
        return KerasSequenceLoader(
            paths,
            batch_size=batch_size,
            label_names=labels,
            shuffle=shuffle,
            seed=seed,
            schema=fitted.output_schema,
        )

    report = fit_model(
        network,
        load(data, shuffle=True),
        load(validation, shuffle=False) if validation else None,
        epochs=epochs,
        optimizer=chosen,
        loss=loss,
        metrics=metric,
        class_weight=weights,
        precision=precision,
        steps_per_execution=steps_per_execution,
        patience=patience,
        checkpoint=checkpoint,
        tensorboard=tensorboard,
        validate_ids=validate_ids,
        verbose=True,
    )
    with replacing(output, output.suffix) as draft:
        network.save(draft)
    typer.echo(f"{report}\n{output}: the network")
