"""The proof that a server's answers equal those of the offline pipeline, row by row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs

from serving.client import EnsembleClient, current_contract
from serving.errors import ClientError
from serving.exchange import VersionsError
from serving.prove.comparison import (
    as_text,
    columns_with,
    compare_feature,
    compare_prediction,
    rows_with,
)
from serving.prove.report import OutputParity, ParityReport, worst_of_all
from workflow import Workflow, WorkflowError
from workflow.data.sources import Source
from workflow.expressions.polars.series import to_column
from workflow.progress.stage import counted, expect_total, restart, showing
from workflow.schema.column import Array, Column
from workflow.schema.dtypes import dtype_of
from workflow.schema.names import did_you_mean, listed, rename_advice
from workflow.schema.schema import Schema
from workflow.wire.format import WireColumn, encode
from workflow.wire.request_rules import NNZS, VALUES

# An exact search for all rows of a check would take minutes.
_MOST_ROWS = 1000
_TIME = cs.temporal()
# As `Contract.network_columns`.
Served = Mapping[str, str | tuple[str, ...]]


def check_parity(
    client: EnsembleClient,
    workflow: Workflow,
    model: Any,
    rows: Any,
    *,
    tolerance: float | None = None,
    batch_size: int = 1024,
    progress: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> ParityReport:
    """Send rows to the server, and compare its answers with `workflow.transform` and `model`.

    The preprocessing step also gets separate requests, so that every feature is compared, not only
    the network's predictions.

    Args:
        client: connected to the ensemble.
        workflow: the workflow that was exported.
        model: the network that was exported: a Keras model, the path of a `.keras` file or of the
            folder of a SavedModel, or an ONNX model as a `ModelProto` or the path of its file; or
            `exporter.NearestItems`, of whose lists only items of equal scores may be exchanged.
        rows: raw rows: a Polars or pandas frame, paths of parquet, CSV or TSV, or a dict; labels may
            be missing.
        tolerance: predictions are equal if |served - offline| <= tolerance * max(1, |offline|): an
            absolute difference up to 1, and a relative one above. None: what the export allowed the
            network, 1e-5, or 2e-2 if it computes in 16 bits. Integers and strings must be
            identical; float features are compared in the same way with 1e-6. NaN equals NaN.
        batch_size: the rows of one request.
        progress: show the progress on standard error, as `Workflow.fit` does.
        storage_options: how to connect to the object stores of paths with a scheme, as in `fit`.

    Raises:
        ClientError: there are no rows, they cannot be read or lack a column, `model` is invalid or cannot be read,
            `tolerance` or `batch_size` is invalid, or the server refused a request.
        ServerUnavailableError: no connection, or another version of the model was published meanwhile.

    Example:
        >>> print(check_parity(client, workflow, model, rows))  # doctest: +SKIP
        Parity passed: movielens, 10,000 rows, tolerance 1e-05
    """
    _expect_settings(tolerance, batch_size)
    if not isinstance(workflow, Workflow):
        raise ClientError(
            "PARITY",
            "Expected the workflow that was exported; Workflow.load reads a saved one. "
            f"Received: {workflow!r:.100}.",
        )
    # Importing them imports TensorFlow, where it is installed.
    from training.errors import TrainingError  # noqa: PLC0415
    from training.network.load import load_network  # noqa: PLC0415

    try:
        network = load_network(model)
        contract = current_contract(client)
        with showing("parity", progress=progress):
            frame = raw_rows(rows, contract.input_schema, storage_options)
            allowed = contract.tolerance if tolerance is None else tolerance
            return _compare(client, workflow, network, frame, allowed, batch_size)
    except TrainingError as error:
        raise ClientError("PARITY", str(error)) from error


def _compare(
    client: EnsembleClient,
    workflow: Workflow,
    model: Any,
    frame: pl.DataFrame,
    tolerance: float,
    batch_size: int,
) -> ParityReport:
    """The report of a network that runs in this process."""
    contract = client.contract
    names_served = contract.network_columns
    features = features_of(model, workflow, names_served)
    _expect_columns(model, names_served)
    offline = _transform(workflow, frame, features)
    expect_total(frame.height)
    batches = list(_slices(frame.height, min(batch_size, contract.max_batch_size or batch_size)))
    outputs = _compare_features(client, frame, offline, batches) if contract.preprocessing else []
    restart("the served predictions")
    answered = [client.predict(frame[part].to_dict()) for part in counted(batches)]
    if client.contract != contract:
        raise VersionsError.of([contract.version, client.contract.version])
    names = [column.name for column in contract.outputs]
    asked = [*names, *getattr(model, "further", ())]
    restart("the network in this process")
    expected = [
        call_network(model, {n: to_column(offline[n][part]) for n in features}, asked, names_served)
        for part in counted(batches)
    ]
    recall = None
    if hasattr(model, "as_served"):
        recall = _recall(model, expected, answered)
        pairs = zip(expected, answered, strict=True)
        expected = [model.as_served(*pair, tolerance) for pair in pairs]
    # An ONNX network is the same graph in both places; Keras' models have no such attribute.
    nan, counts = None, {}
    if getattr(model, "in_tensorflow", True):
        nan = rows_with(offline, _not_finite)
        counts = columns_with(offline.filter(nan), _not_finite)
    for name in names:
        here, there = (
            np.concatenate([batch[name] for batch in side]) for side in (expected, answered)
        )
        outputs.append(compare_prediction(name, here, there, tolerance, nan))
    worst = sorted({case.row for _, case in worst_of_all(outputs)})
    # Times as text, since Python has none beyond the year 9999.
    shown = frame[worst].cast({_TIME: pl.String, cs.list(_TIME): pl.List(pl.String)})
    raw = {
        row: {name: as_text(shown[name][place]) for name in frame.columns}
        for place, row in enumerate(worst)
    }
    return ParityReport(
        client.model_name,
        contract.generation,
        frame.height,
        tolerance,
        tuple(outputs),
        raw,
        recall,
        counts,
    )


def _not_finite(values: Array) -> Array:
    return ~np.isfinite(values)


def _recall(
    model: Any, expected: Sequence[Mapping[str, Array]], answered: Sequence[Mapping[str, Array]]
) -> tuple[float, int] | None:
    """The recall of an index in the first batches, and their rows."""
    shares: list[float] = []
    rows: list[int] = []
    for here, there in zip(expected, answered, strict=True):
        if sum(rows) >= _MOST_ROWS or (share := model.recall(here, there)) is None:
            break
        shares.append(share)
        rows.append(len(there["item"]))
    return (float(np.average(shares, weights=rows)), sum(rows)) if rows else None


def _expect_settings(tolerance: float | None, batch_size: int) -> None:
    """Refuse a tolerance within which everything is equal, and requests without rows."""
    if tolerance is not None and not 0 <= tolerance < math.inf:
        raise ClientError(
            "PARITY", f"Expected a finite tolerance, 0 or more. Received: {tolerance!r}."
        )
    if batch_size < 1:
        raise ClientError(
            "PARITY", f"Expected a batch_size of 1 or more. Received: {batch_size!r}."
        )


def features_of(model: Any, workflow: Workflow, served: Served) -> list[str]:
    """The workflow's columns that a network takes.

    Raises:
        ClientError: it has no named inputs, or takes other columns.
    """
    if not getattr(model, "inputs", None):
        raise ClientError(
            "PARITY",
            "Expected the network that was exported, with named inputs. Received: "
            f"{model!r:.100}, which has none. A model of your own class is exported as keras.Model(inputs, "
            "model(inputs)): compare that one.",
        )
    made = workflow.output_schema
    names = [column for tensor in model.inputs for column in _columns_of(tensor.name, served)]
    features = [
        *dict.fromkeys(n if n in made else n.removesuffix(VALUES).removesuffix(NNZS) for n in names)
    ]
    if unknown := [name for name in features if name not in made]:
        raise ClientError(
            "PARITY",
            "Expected the network and the workflow that were exported together. Received: a network "
            f"with the inputs {listed(unknown)}, which the workflow does not make. It makes "
            f"{listed(made)}.{did_you_mean(unknown, made)}",
        )
    return features


def _expect_columns(model: Any, served: Served) -> None:
    """Refuse an ONNX network whose matrix has another width or order than the served one.

    Raises:
        ClientError: names both.
    """
    from training.errors import TrainingError  # noqa: PLC0415 - see `check_parity`

    if not hasattr(model, "feature_names"):
        return
    try:
        model.renamed(served)
    except TrainingError as error:
        raise ClientError("PARITY", f"Expected the network that was exported. {error}") from error


def _columns_of(name: str, served: Served) -> tuple[str, ...]:
    """The columns that feed an input."""
    column = served.get(name, name)
    return (column,) if isinstance(column, str) else column


def _compare_features(
    client: EnsembleClient, frame: pl.DataFrame, offline: pl.DataFrame, batches: list[slice]
) -> list[OutputParity]:
    """The columns of the preprocessing step, from separate requests."""
    contract = client.contract
    # A server may have loaded versions of the step that are newer than the ensemble's.
    step = client.for_model(contract.preprocessing, contract.preprocessing_version)
    restart("the served features")
    served = pl.concat([step.predict(frame[part]) for part in counted(batches)])
    columns = step.contract.outputs
    return [compare_feature(c, offline[c.name], served[c.name]) for c in columns]


def raw_rows(
    rows: Any, columns: Schema, storage_options: Mapping[str, Any] | None = None
) -> pl.DataFrame:
    """The columns of rows of any kind; those of text are read in the types of the columns.

    Raises:
        ClientError: they cannot be read, a column is missing, or there are no rows.
    """
    try:
        return _raw_rows(Source.of(rows, storage_options=storage_options, known=columns), columns)
    except WorkflowError as error:
        raise ClientError("PARITY", str(error)) from error


def _raw_rows(source: Source, columns: Schema) -> pl.DataFrame:
    names, have = columns.names, frozenset(source.names)
    if missing := [name for name in names if name not in have]:
        raise ClientError(
            "PARITY",
            f"Expected the columns {listed(names)}. Received: rows without {listed(missing)}."
            + rename_advice(missing, have),
        )
    with source.errors("The rows cannot be read"):
        frame = source.select(names).sound().frame.collect()
    if not frame.height:
        raise ClientError("PARITY", "Expected rows to compare. Received: none.")
    return frame


def _slices(rows: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def _transform(workflow: Workflow, frame: pl.DataFrame, features: list[str]) -> pl.DataFrame:
    """The offline features. A label's column, which only training data has, is null here.

    Raises:
        ClientError: the workflow refuses a column of the rows.
    """
    have = frozenset(frame.columns)
    missing = [name for name in workflow.input_schema.names if name not in have]
    full = frame.with_columns(pl.lit(None).alias(name) for name in missing)
    try:
        return workflow.transform(full).select(features).collect()
    except WorkflowError as error:
        raise ClientError("PARITY", str(error)) from error


def call_network(
    model: Any, columns: Mapping[str, Column], names: list[str], served: Served
) -> dict[str, Array]:
    """The network's answer, by the names on the server."""
    tensors: dict[str, Array] = {}
    widths = {c: t.shape[1] for t in model.inputs for c in _columns_of(t.name, served)}
    for name, column in columns.items():
        if column.lengths is not None and name in widths:
            dtype = dtype_of(column.array.dtype.name).name
            tensors |= encode(WireColumn(name, dtype, "fixed", width=widths[name]), column)
        elif column.lengths is None:
            tensors[name] = column.array.reshape(-1, 1)
        else:
            tensors[name + VALUES] = column.array.reshape(-1, 1)
            tensors[name + NNZS] = column.lengths.reshape(-1, 1)
    tensors |= {
        target: np.concatenate([tensors[column] for column in _columns_of(target, served)], axis=1)
        for target in served
    }
    # A sequential model that was never called has no `input`; it takes one tensor.
    structure = getattr(model, "input", model.inputs[0])
    answer = model.predict_on_batch(_fill(structure, tensors))
    if not isinstance(answer, Mapping):
        answers = answer if isinstance(answer, list | tuple) else [answer]
        if len(answers) == len(names):
            return {name: np.asarray(array) for name, array in zip(names, answers, strict=True)}
        answer = dict.fromkeys(f"output {number}" for number in range(1, len(answers) + 1))
    if not set(names) <= set(answer):
        raise ClientError(
            "PARITY",
            f"Expected the network that was exported, with the outputs {', '.join(names)}. "
            f"Received: one with {', '.join(answer)}.",
        )
    return {name: np.asarray(answer[name]) for name in names}


def _fill(structure: Any, tensors: Mapping[str, Array]) -> Any:
    """The model's input structure with arrays in place of its inputs."""
    if isinstance(structure, Mapping):
        return {key: _fill(value, tensors) for key, value in structure.items()}
    if isinstance(structure, list | tuple):
        return type(structure)(_fill(value, tensors) for value in structure)
    return tensors[structure.name]
