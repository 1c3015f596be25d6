"""Proof that the steps of an ensemble fit together, before the first byte is written."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.errors import ExportError
from exporter.plan.model_spec import EnsembleStep, ModelSpec, ModelTensor
from workflow.schema.names import listed
from workflow.wire.format import WireColumn
from workflow.wire.request_rules import NNZS, VALUES


def expect_told_apart(columns: Sequence[WireColumn]) -> None:
    """Check that columns have names that servers load, none of which can be taken for a half of a list.

    Servers know the halves of a list by the names `x__values` and `x__nnzs` alone.

    Raises:
        ExportError: names the column that is to be renamed.
    """
    if any(not column.name for column in columns):
        raise ExportError(
            "Expected a name for each column that a client sends, without which no server loads a model. "
            "Received: '', as readers name a column of a CSV file whose header is empty. Rename it in "
            "the data, before `fit` and in requests."
        )
    if nul := [column.name for column in columns if "\0" in column.name]:
        raise ExportError(
            "Expected names without a NUL for the columns that a client sends, since no server loads a model "
            f"with one. Received: {listed(map(repr, nul))}. Rename it in the data, before `fit` and in requests."
        )
    owners = {tensor: column.name for column in columns for tensor in column.tensors}
    for column in columns:
        if column.layout == "flat":  # its tensors are the halves of a list
            continue
        name = column.name
        candidates = [name.removesuffix(VALUES) + NNZS] if name.endswith(VALUES) else []
        if name.endswith(NNZS):
            candidates = [name.removesuffix(NNZS) + half for half in ("", VALUES)]
        other = next((owners[tensor] for tensor in candidates if tensor in owners), None)
        if other is not None:
            raise ExportError(
                f"Expected names that tell single values from the halves of a list, which servers know "
                f"by the names {VALUES} and {NNZS}. Received: the columns {other!r} and {name!r}. "
                f"Rename {name!r} in the data, before `fit` and in requests."
            )


def prove_alone(model: ModelSpec) -> None:
    """Check that the tensors of a model have unique names.

    Raises:
        ExportError: two inputs, two outputs, or an input and an output with one name.
    """
    _expect_distinct(model)
    inputs = {tensor.name for tensor in model.inputs}
    for tensor in model.outputs:
        if tensor.name in inputs:
            raise ExportError(
                f"Tensor {tensor.name!r} is made twice: by the input of {model.name} and by its "
                "network. Give one of them another name."
            )


def prove(ensemble: ModelSpec, models: Sequence[ModelSpec]) -> None:
    """Check that every tensor of an ensemble is made once and taken with the same type.

    Args:
        ensemble: the ensemble, with its steps in order.
        models: the models that its steps name.

    Raises:
        ExportError: a tensor without a maker, or with two; a dtype or shape that differs between
            the two ends; an input or output of a step that is not connected; a step of another
            version. The text names both sides.
    """
    by_name = {model.name: model for model in models}
    for model in (ensemble, *models):
        _expect_distinct(model)
    makers = {tensor.name: (f"the input of {ensemble.name}", tensor) for tensor in ensemble.inputs}
    input_wires: set[str] = set()
    for step in ensemble.steps:
        model = _model_of(step, by_name)
        inputs = _ends(step, model, "input", step.inputs, model.inputs)
        for wire, tensor in inputs.items():
            _meet(wire, tensor, f"input {tensor.name!r} of {model.name}", makers)
        input_wires |= set(inputs)
        for wire, tensor in _ends(step, model, "output", step.outputs, model.outputs).items():
            if wire in makers:
                raise ExportError(
                    f"Tensor {wire!r} is made twice: by {makers[wire][0]} and by {model.name}. "
                    "Give one of them another name."
                )
            makers[wire] = (f"the output {tensor.name!r} of {model.name}", tensor)
    for tensor in ensemble.outputs:
        _meet(tensor.name, tensor, f"the output of {ensemble.name}", makers)
    idle = makers.keys() - input_wires - {tensor.name for tensor in ensemble.outputs}
    if idle:
        raise ExportError(
            f"Nothing takes {', '.join(sorted(f'{makers[wire][0]} ({wire})' for wire in idle))}."
        )


def _expect_distinct(model: ModelSpec) -> None:
    for side in (model.inputs, model.outputs):
        if len({tensor.name for tensor in side}) != len(side):
            raise ExportError(
                f"Two tensors of {model.name} have the same name: {', '.join(t.name for t in side)}."
            )


def _model_of(step: EnsembleStep, models: dict[str, ModelSpec]) -> ModelSpec:
    model = models.get(step.model)
    if model is None:
        raise ExportError(f"The ensemble has a step {step.model!r}, but there is no such model.")
    if model.version != step.version:
        raise ExportError(
            f"The ensemble wants {step.model} {step.version}, and version {model.version} is exported."
        )
    return model


def _ends(
    step: EnsembleStep, model: ModelSpec, side: str, mapping: object, tensors: Sequence[ModelTensor]
) -> dict[str, ModelTensor]:
    """The model's tensors by the ensemble's names; all of them mapped, and no others."""
    names = dict(step.inputs if side == "input" else step.outputs)
    by_name = {tensor.name: tensor for tensor in tensors}
    if names.keys() != by_name.keys():
        raise ExportError(
            f"The ensemble maps the {side}s {listed(sorted(names)) or 'none'} of {model.name}, "
            f"which has {listed(sorted(by_name)) or 'none'}."
        )
    if len(set(names.values())) != len(names):
        raise ExportError(f"Two {side}s of {model.name} have one name in the ensemble: {mapping}.")
    return {wire: by_name[name] for name, wire in names.items()}


def _meet(
    wire: str, tensor: ModelTensor, where: str, makers: dict[str, tuple[str, ModelTensor]]
) -> None:
    if wire not in makers:
        raise ExportError(f"Nothing makes {wire!r}, which is {where}.")
    maker, source = makers[wire]
    if (source.dtype, source.dims) != (tensor.dtype, tensor.dims):
        raise ExportError(
            f"Tensor {wire!r} is made as {source.dtype}{list(source.dims)} by {maker} "
            f"and taken as {tensor.dtype}{list(tensor.dims)} by {where}."
        )
