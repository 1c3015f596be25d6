"""The proof of an export: golden rows, answered from the files that it wrote.

Requests are made as clients make them: each row alone, all in one request, and, if the server joins
requests, joined. The answers are compared with those of the workflow and the network here.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from exporter.errors import ExportError
from exporter.plan.golden_rows import GoldenRows, Tensors
from exporter.plan.plan import Plan
from exporter.prove.offline import Offline, OfflineAnswers
from exporter.prove.written import WrittenModels, contract_of
from serving.embedded.golden import GoldenAnswer, distances
from serving.errors import ClientError
from serving.exchange import to_requests, to_table
from serving.prove.comparison import columns_with, compare_feature, undefined
from training.errors import TrainingError
from workflow.errors import in_a_line

_ALONE, _TOGETHER, _JOINED = "asked alone", "asked in one request", "joined by the server"


class UnprovenError(ExportError):
    """The written files answer differently; another runtime may not."""


@dataclass(frozen=True)
class Proof:
    """The rows and models that an export was proven with.

    Attributes:
        rows: the names of the golden rows.
        asked: the kinds of requests.
        refused: the names of rows that the workflow or the network refuses, so that there is
            nothing to compare.
        difference: the greatest allowed difference of a float output that occurred, relative to the
            answer, or to 1 if that is larger.
        golden: the rows as requests of the published model, with the answers of this process.
        in_server: whether a server answered them too.
        no_server: why none can be started here, if the export asked for one where there is one.
        nan: the features that are NaN in golden rows and reach a network in TensorFlow.
        made_nan: the names of the rows of which the network makes NaN, though their features are usual numbers.
    """

    rows: tuple[str, ...]
    asked: tuple[str, ...]
    refused: tuple[str, ...]
    difference: float
    golden: tuple[GoldenAnswer, ...] = ()
    in_server: bool = False
    no_server: str = ""
    nan: tuple[str, ...] = ()
    made_nan: tuple[str, ...] = ()


def prove_written(plan: Plan, answers: OfflineAnswers, folders: Mapping[str, Path]) -> Proof:
    """Compare the answers of written models with the answers in this process.

    Args:
        plan: the plan that was written.
        answers: the workflow and the network in this process.
        folders: the version folder of each model, by its name.

    Raises:
        UnprovenError: an answer differs or is missing; names the row, the output and both answers.
        ExportError: the golden rows cannot be answered here, or the warm-up by the written models.
        TrainingError: a library that runs a written model is missing.
    """
    offline = answers.of(plan.golden)
    try:
        models = WrittenModels(plan, folders)
    except (ExportError, TrainingError, NotImplementedError):
        raise
    except Exception as error:  # libraries raise any type for invalid files
        raise UnprovenError(f"Expected models that load. Received: {in_a_line(error)}") from error
    asked = [*_asked(plan, models, offline.golden)]
    met = [_compare(plan, answers, offline, how, model_answers) for how, model_answers in asked]
    served = _joined(offline, dict(asked)[_ALONE])
    _expect_rows_alone(plan, answers, offline, served)
    _expect_warm_up(models)
    made_nan = [offline.golden.names[row] for row in np.flatnonzero(offline.made_nan)]
    if usual := [name for name in made_nan if name not in offline.golden.bold]:
        warnings.warn(
            f"The network makes NaN of the golden row {offline.golden.row(usual[0])} ({usual[0]}), though its "
            "features have none, such as the mean of no values by GlobalAveragePooling1D with a mask. The "
            "server's answer to such rows depends on the runtime and the processor: NaN, or a number. Let "
            "the network make a number of them.",
            stacklevel=5,  # where the export was called
        )
    return Proof(
        offline.golden.names,
        tuple(how for how, _ in asked),
        offline.refused,
        max(met),
        tuple(_golden(answers, offline, served)),
        nan=tuple(columns_with(offline.features.filter(offline.nan), np.isnan)),
        made_nan=tuple(made_nan),
    )


def _expect_warm_up(models: WrittenModels) -> None:
    """Check that models answer their warm-up, without which a server does not load them."""
    try:
        models.warm_up()
    except Exception as error:  # libraries raise any type for inputs that they refuse
        raise ExportError(
            "Expected a network that answers the rows with which the server warms it up, by default features "
            "of zeros, since a server that has no answer does not load the model. "
            f"Received: {in_a_line(error)} Give rows that it answers, ServingOptions(golden_rows=...), or leave "
            "the warm-up out, warm_up=False."
        ) from error


def _expect_rows_alone(
    plan: Plan, answers: OfflineAnswers, offline: Offline, served: Tensors
) -> None:
    """Check that a row's answer does not depend on the other rows of its request.

    Served answers to each row alone equal those of this process.

    Raises:
        ExportError: it does, and the server joins requests.
    """
    for row, name in enumerate(offline.golden.names):
        if offline.nan[row] or not _depends_on_others(answers, offline, served, row):
            continue
        shown = f"golden row {offline.golden.row(name)} ({name})"
        if joined := plan.published.max_batch_size:
            raise ExportError(
                "Expected a network that answers each row of a request by itself, since with "
                f"max_batch_size={joined} the server joins requests of different clients. Received: one "
                f"answer to the {shown} alone, and another one beside other rows. Export the network in "
                "evaluation mode, as PyTorch's model.eval(), quantize it by onnxruntime's quantize_static "
                "in place of quantize_dynamic, or set max_batch_size=0."
            )
        warnings.warn(
            f"The network answers the {shown} differently alone and beside other rows, so that an answer "
            "depends on the rows that a client sends together. If that is not meant, export the network "
            "in evaluation mode, as PyTorch's model.eval().",
            stacklevel=6,  # where the export was called
        )
        return


def _depends_on_others(
    answers: OfflineAnswers, offline: Offline, served: Tensors, row: int
) -> bool:
    """Whether a row has another answer beside the other golden rows than it has alone."""
    floats = [name for name, array in served.items() if array.dtype.kind == "f"]
    if _differs(offline, served, row, floats):
        return True
    rest = [name for name in served if name not in floats]
    if not _differs(offline, served, row, rest):
        return False
    # Rounding, which depends on the number of rows, may decide between integers. So as many rows.
    copies = answers.predict(offline.features[[row] * len(offline.golden.names)])
    return _differs(offline, {name: copies[name] for name in rest}, row, rest)


def _differs(offline: Offline, served: Tensors, row: int, names: Iterable[str]) -> bool:
    """Whether served answers to a row alone are not those to all rows together."""
    return any(
        bool(
            (
                distances(offline.predictions[n][[row]], served[n][[row]]) > offline.allowed[n][row]
            ).any()
        )
        for n in names
    )


def _golden(answers: OfflineAnswers, offline: Offline, served: Tensors) -> Iterator[GoldenAnswer]:
    """Each golden row as a request, with the answer of this process to it alone."""
    rows = zip(offline.golden.names, offline.golden.requests, strict=True)
    for row, (name, request) in enumerate(rows):
        expected, allowed = (
            {output: array[[row]] for output, array in arrays.items()}
            for arrays in (offline.predictions, offline.allowed)
        )
        # A network may use other rows of its batch.
        if _differs(offline, served, row, expected):
            expected = answers.predict(offline.features[row])
        if offline.nan[row]:  # another processor may make another number of it
            allowed = {output: np.full_like(limits, np.inf) for output, limits in allowed.items()}
        yield GoldenAnswer(name, request, expected, allowed)


def _asked(
    plan: Plan, models: WrittenModels, golden: GoldenRows
) -> Iterator[tuple[str, list[list[Tensors]]]]:
    """Each kind of request, and the answers of each model to it."""
    alone: list[list[Tensors]] = []
    for name, request in zip(golden.names, golden.requests, strict=True):
        made = _answered(models, [request], f"row {golden.row(name)} ({name}), {_ALONE}")
        alone = [
            [*before, *new] for before, new in zip(alone or [[] for _ in made], made, strict=True)
        ]
    yield _ALONE, alone
    requests = to_requests(models.contract, golden.frame)
    shown = f"rows ({', '.join(golden.names)})"
    yield _TOGETHER, _answered(models, requests, f"{shown}, {_TOGETHER}")
    if plan.published.max_batch_size:
        yield _JOINED, _answered(models, golden.requests, f"{shown}, {_JOINED}")


def _answered(
    models: WrittenModels, requests: Sequence[Tensors], shown: str
) -> list[list[Tensors]]:
    try:
        return models.answer(requests)
    except Exception as error:  # libraries may raise any type
        raise UnprovenError(
            f"Expected an answer to the golden {shown}. Received: {in_a_line(error)}"
        ) from error


def _compare(
    plan: Plan,
    answers: OfflineAnswers,
    offline: Offline,
    how: str,
    model_answers: Sequence[Sequence[Tensors]],
) -> float:
    """The greatest allowed difference that occurred."""
    if plan.steps:
        _compare_features(plan, offline, how, model_answers[0])
    served = _joined(offline, model_answers)
    return max(_compare_output(answers, offline, how, name, served[name]) for name in served)


def _joined(offline: Offline, made: Sequence[Sequence[Tensors]]) -> Tensors:
    """The outputs of all requests, one after another."""
    return {name: np.concatenate([each[name] for each in made[-1]]) for name in offline.predictions}


def _compare_features(plan: Plan, offline: Offline, how: str, answers: Sequence[Tensors]) -> None:
    contract = contract_of(plan.steps[0])
    try:
        served = to_table(contract, offline.features, answers)
        for column in contract.outputs:
            here, there = offline.features[column.name], served[column.name]
            parity = compare_feature(column, here, there)
            if (row := parity.first_mismatch) is not None:
                raise _difference(
                    offline, how, f"feature {column.name!r}", row, here[row], there[row]
                )
    except ClientError as error:
        raise UnprovenError(f"{error.message} ({how})") from error


def _compare_output(
    answers: OfflineAnswers, offline: Offline, how: str, name: str, served: Any
) -> float:
    expected, allowed = offline.predictions[name], offline.allowed[name]
    if served.shape != expected.shape:
        raise UnprovenError(
            f"Expected the output {name!r} of the shape {expected.shape}. Received: {served.shape}, {how}."
        )
    gaps = distances(expected, served)
    # Rows with any answer, and with them the rows of their batch, if the network uses it.
    free = offline.nan | np.isinf(allowed).any(axis=1)
    for row in np.flatnonzero((gaps > allowed).any(axis=1)).tolist():
        alone = answers.predict(offline.features[row])[name][0]
        # A network may use other rows of its batch; then the answer to the row alone is expected.
        reference = alone if how == _ALONE else expected[row]
        uses_batch = how != _ALONE and (distances(alone, reference) > allowed[row]).any()
        wrong = distances(reference, served[row]) > allowed[row]
        if offline.nan[row] or (uses_batch and free.any()):
            wrong &= ~undefined(reference, served[row])
        if wrong.any():
            raise _difference(offline, how, f"output {name!r}", row, reference, served[row])
    with np.errstate(invalid="ignore"):
        met = gaps[np.isfinite(allowed) & np.isfinite(gaps)]
    return float(met.max(initial=0.0))


def _difference(
    offline: Offline, how: str, what: str, row: int, expected: Any, served: Any
) -> UnprovenError:
    golden = offline.golden
    return UnprovenError(
        f"Expected the {what} to be {_shown(expected)}, as the workflow and the network answer here, "
        f"for the golden row {golden.row(golden.names[row])} ({golden.names[row]}). "
        f"Received: {_shown(served)} from the written files, {how}."
    )


def _shown(value: Any) -> str:
    if isinstance(value, pl.Series):
        value = value.to_list()
    if isinstance(value, np.ndarray):
        value = value.tolist()[0] if value.size == 1 else value.tolist()
    return f"{value!r:.200}"
