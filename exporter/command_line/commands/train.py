"""Training of a network on a workflow's output."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exporter.command_line.guard import CommandError
from exporter.command_line.lines import folded
from exporter.command_line.network import (
    KINDS,
    WIDEST,
    NetworkOptions,
    class_weights,
    loss_weights,
    make_loss,
    make_metrics,
    make_optimizer,
)
from exporter.command_line.places import expect_place, expect_savable, save_network
from exporter.command_line.quiet import import_tensorflow
from exporter.command_line.words import Json, StorageOption, answer, pairs
from workflow.schema.names import listed

if TYPE_CHECKING:
    from workflow import Workflow
    from workflow.schema.schema import ColumnSchema, Schema


def train(
    data: Annotated[list[str], typer.Argument(help="The transformed parquet files or folders.")],
    workflow: Annotated[Path, typer.Option(help="The saved workflow.")] = Path("workflow"),
    output: Annotated[
        Path,
        typer.Option(
            help="Where the network is saved: a file .keras, or a new folder for a SavedModel, which "
            "commands read without the code of your layers."
        ),
    ] = Path("model.keras"),
    label: Annotated[
        list[str] | None,
        typer.Option(help="A label's column; by default those tagged as target."),
    ] = None,
    sample_weight: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="A column of weights of the rows, in training and validation; then no feature.",
        ),
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
    model_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Another argument of the --model, such as cross_layers=3 of dcn; may be repeated.",
        ),
    ] = None,
    query: Annotated[
        list[str] | None, typer.Option(help="A column of two_tower's first tower; again for more.")
    ] = None,
    softmax: Annotated[
        str | None,
        typer.Option(
            metavar="ITEM",
            help="two_tower's column of items: train with a softmax over the items of a batch, "
            "on rows that were chosen alone.",
        ),
    ] = None,
    catalogue: Annotated[
        list[str] | None,
        typer.Option(help="Transformed items: --softmax draws from these, not from the batch."),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Of the softmax; smaller is sharper, 0.05 by default.")
    ] = None,
    sequence: Annotated[
        str | None, typer.Option(help="bst's list of items, of a fixed length.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="bst's item that may follow.")] = None,
    optimizer: Annotated[str, typer.Option(help="adam, adagrad or sgd.")] = "adam",
    learning_rate: Annotated[
        float | None, typer.Option(help="By default that of Keras' optimizer.")
    ] = None,
    loss: Annotated[
        list[str] | None,
        typer.Option(
            help="The name of a Keras loss, or OUTPUT=NAME for each output; binary_crossentropy by "
            "default."
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="The name of a Keras metric, or OUTPUT=NAME; auc of probabilities by default."
        ),
    ] = None,
    weighted_metric: Annotated[
        list[str] | None,
        typer.Option(
            help="Likewise, with rows counted by their --sample-weight or --class-weight."
        ),
    ] = None,
    loss_weight: Annotated[
        list[str] | None,
        typer.Option(metavar="OUTPUT=WEIGHT", help="The weight of an output's loss in the sum."),
    ] = None,
    class_weight: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=WEIGHT",
            help="The weight of a label's rows, such as 1=20, or OUTPUT:LABEL=WEIGHT.",
        ),
    ] = None,
    precision: Annotated[
        str, typer.Option(help="Of the dense layers: float32, bfloat16 or float16.")
    ] = "float32",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data.")] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows of a step.")] = 16_384,
    shuffle: Annotated[bool, typer.Option(help="Shuffle the rows in each epoch.")] = True,
    buffer_size: Annotated[
        float,
        typer.Option(help="Memory for decoded rows: a share below 1, bytes from 1 on."),
    ] = 0.1,
    parts_per_chunk: Annotated[
        int, typer.Option(min=1, help="The fewest row groups from which a batch draws rows.")
    ] = 1,
    drop_last: Annotated[
        bool, typer.Option("--drop-last", help="Leave out a last batch that is not full.")
    ] = False,
    on_bad_files: Annotated[
        str, typer.Option(help="raise, or skip to pass over data that cannot be read.")
    ] = "raise",
    decode_timeout: Annotated[
        float, typer.Option(help="Seconds that a GPU may be busy with one read.")
    ] = 10.0,
    device: Annotated[
        str | None, typer.Option(help="Where rows are decoded: cpu, gpu:0; by default a GPU.")
    ] = None,
    split: Annotated[
        bool | None, typer.Option(help="Train tables and dense layers apart; by default if it can.")
    ] = None,
    stop_on_nan: Annotated[
        bool, typer.Option(help="End a run whose loss or weights are no longer numbers.")
    ] = True,
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
    warm_start: Annotated[
        Path | None,
        typer.Option(
            metavar="NETWORK",
            help="A .keras file of an earlier fit, with whose weights the network begins.",
        ),
    ] = None,
    warm_start_workflow: Annotated[
        Path | None, typer.Option(help="The saved workflow that --warm-start was trained with.")
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
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Of the weights and the order of rows.")
    ] = 0,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Train a network on transformed data, and save it.

    Example: `ensemble train train --validation valid --model dcn --epochs 9 --patience 2
    --checkpoint run`

    Processes with TF_CONFIG train together, each on its share of the rows and on its GPU, in batches
    of --batch-size rows each. The first one saves, to --output and --checkpoint.
    """
    _expect_output(output)
    if patience and not validation:
        raise CommandError(
            f"Expected --validation, whose loss --patience compares. Received: --patience {patience}."
        )
    _expect_both(warm_start, warm_start_workflow)
    weights, sums = class_weights(class_weight), loss_weights(loss_weight)
    metrics = make_metrics(metric, "--metric")
    weighted_metrics = make_metrics(weighted_metric, "--weighted-metric")
    import_tensorflow()
    import keras  # noqa: PLC0415 - so that help is shown at once

    from loader import KerasSequenceLoader  # noqa: PLC0415
    from training import join_workers, whole_tables  # noqa: PLC0415
    from training import train as fit_model  # noqa: PLC0415
    from workflow import Workflow  # noqa: PLC0415

    fitted = Workflow.load(workflow)
    workers = join_workers()
    is_first = workers.rank == 0
    chosen = make_optimizer(optimizer, learning_rate)
    keras.utils.set_random_seed(seed)
    tagged = [c.name for c in fitted.output_schema.columns if "target" in c.tags]
    labels = label or [name for name in tagged if name != sample_weight]
    if not labels:
        raise CommandError(
            f"Expected --label, since {workflow} tags no {'other ' if tagged else ''}column as target. "
            f"Received: none. Its columns are {listed(fitted.output_schema)}."
        )
    described = NetworkOptions(
        *(model, hidden, embedding_dim, dropout, query, softmax),
        *(catalogue, temperature, sequence, target, model_option),
    )
    own_loss = make_loss(loss, softmax)
    network = described.make(fitted, [*labels, sample_weight] if sample_weight else labels)
    expect_savable(network, output)
    start = _begin_with(warm_start, warm_start_workflow, network, fitted)
    if start is not None and is_first and not as_json:
        typer.echo(folded(str(start)))
    padded = _lists_of_one_tensor(network, fitted.output_schema)
    further: dict[str, Any] = {"on_bad_files": on_bad_files, "sparse_names": padded}
    connection = pairs(storage_option, "--storage-option")
    for path in [*data, *(validation or ())]:
        _expect_made_by(workflow, fitted.output_schema, path, connection)

    def load(paths: list[str], **more: Any) -> Any:
        return KerasSequenceLoader(
            paths,
            batch_size=batch_size,
            label_names=labels,
            sample_weight=sample_weight,
            seed=seed,
            schema=fitted.output_schema,
            buffer_size=buffer_size,
            parts_per_chunk=parts_per_chunk,
            decode_timeout=decode_timeout,
            device=device,
            storage_options=connection,
            sparse_as_dense=True,
            **further,
            **more,
        )

    share = {"global_size": workers.size, "global_rank": workers.rank}
    report = fit_model(
        network,
        load(data, shuffle=shuffle, drop_last=drop_last, **share),
        load(validation, shuffle=False) if validation else None,
        epochs=epochs,
        optimizer=chosen,
        loss=own_loss,
        split=split,
        stop_on_nan=stop_on_nan,
        metrics=metrics,
        weighted_metrics=weighted_metrics,
        loss_weights=sums,
        class_weight=weights,
        precision=precision,
        steps_per_execution=steps_per_execution,
        patience=patience,
        checkpoint=checkpoint,
        tensorboard=tensorboard if is_first else None,
        validate_ids=validate_ids,
        verbose=is_first and not as_json,
        workers=workers,
    )
    with whole_tables(network):
        if is_first:
            save_network(network, output)
    answer(
        as_json,
        f"{report}\n{output}: the network" if is_first else str(report),
        network=output if is_first else None,
        samples=report.samples,
        seconds=report.seconds,
        history=report.history,
        loss_curve=report.loss_curve,
        **({} if start is None else {"warm_start": vars(start)}),
    )


def _lists_of_one_tensor(network: Any, schema: Schema) -> list[str]:
    """The list columns that a network takes as one tensor of a fixed width, not as a pair."""
    taken = {tensor.name for tensor in getattr(network, "inputs", None) or ()}
    return [column.name for column in schema.columns if column.is_list and column.name in taken]


def _expect_output(output: Path) -> None:
    """Check that a network can be written there."""
    if output.suffix not in ("", ".keras"):
        raise CommandError(
            "Expected an output that ends with .keras, or a folder for a SavedModel. "
            f"Received: {output}."
        )
    expect_place(output)


def _expect_both(network: Path | None, workflow: Path | None) -> None:
    """Check the options of a warm start, of which none or both are given."""
    if (network is None) != (workflow is None):
        option = "--warm-start" if network else "--warm-start-workflow"
        raise CommandError(
            "Expected --warm-start with --warm-start-workflow, an earlier network and the workflow that "
            f"it was trained with. Received: {option} alone."
        )
    if network is not None and network.suffix != ".keras":
        raise CommandError(f"Expected --warm-start as a .keras file. Received: {network}.")


def _begin_with(path: Path | None, workflow: Path | None, network: Any, fitted: Workflow) -> Any:
    """Begin with the weights of an earlier network, if one is given."""
    if path is None or workflow is None:
        return None
    from training import warm_start  # noqa: PLC0415 - so that help is shown at once
    from training.network.load import load_network  # noqa: PLC0415
    from workflow import Workflow  # noqa: PLC0415

    earlier = Workflow.load(workflow)
    return warm_start(network, fitted, earlier=load_network(path), earlier_workflow=earlier)


def _expect_made_by(
    workflow: Path, schema: Schema, path: str, connection: Mapping[str, str] | None
) -> None:
    """Refuse data beside which a schema says that another workflow has made it."""
    from loader.read.source import open_data  # noqa: PLC0415 - so that help is shown at once

    beside = open_data([path], None, connection).schema
    if beside is None:
        return
    for column in schema.columns:
        received = beside.get(column.name, column)
        if received != column:
            raise CommandError(
                f"Expected data that the workflow in {workflow} has made. Received: {path}, whose "
                f"column {column.name!r} differs: {_difference(received, column)}. Transform the data "
                "with this workflow, or pass --workflow with the one that has made it."
            )


def _difference(received: ColumnSchema, expected: ColumnSchema) -> str:
    """The first difference of two columns, in words."""
    from workflow.schema.tags import FIT  # noqa: PLC0415 - so that help is shown at once

    facts = [column.to_json() | column.to_json()["properties"] for column in (received, expected)]
    differ = [name for name in facts[0] | facts[1] if facts[0].get(name) != facts[1].get(name)]
    names = sorted({*differ} - {"properties", FIT})
    if not names:
        return "another fit has made it"
    return (
        f"its {names[0]} is {facts[0].get(names[0])}, that of the workflow {facts[1].get(names[0])}"
    )
