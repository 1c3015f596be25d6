"""The proof that the steps of an ensemble fit together, made before the first byte is written."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.errors import ExportError
from exporter.plan.model_spec import EnsembleStep, ModelSpec, ModelTensor


def prove_alone(model: ModelSpec) -> None:
    """Check that the tensors of a model have names of their own.

    Raises:
        ExportError: two inputs or two outputs of one name, or an input and an output.
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
    """Check that every tensor of an ensemble is made once and taken as what it is made.

    Args:
        ensemble: the ensemble, with its steps in order.
        models: the models that its steps name.

    Raises:
        ExportError: a tensor that nobody makes, or two do; a dtype or shape that differs between
            the two ends; an input or output of a step left open; a step of another version. The
            text names both sides.
    """
    by_name = {model.name: model for model in models}
    for model in (ensemble, *models):
        _expect_distinct(model)
    made = {tensor.name: (f"the input of {ensemble.name}", tensor) for tensor in ensemble.inputs}
    taken: set[str] = set()
    for step in ensemble.steps:
        model = _model_of(step, by_name)
        inputs = _ends(step, model, "input", step.inputs, model.inputs)
        for wire, tensor in inputs.items():
            _meet(wire, tensor, f"input {tensor.name!r} of {model.name}", made)
        taken |= set(inputs)
        for wire, tensor in _ends(step, model, "output", step.outputs, model.outputs).items():
            if wire in made:
                raise ExportError(
                    f"Tensor {wire!r} is made twice: by {made[wire][0]} and by {model.name}. "
                    "Give one of them another name."
                )
            made[wire] = (f"the output {tensor.name!r} of {model.name}", tensor)
    for tensor in ensemble.outputs:
        _meet(tensor.name, tensor, f"the output of {ensemble.name}", made)
    idle = made.keys() - taken - {tensor.name for tensor in ensemble.outputs}
    if idle:
        raise ExportError(
            f"Nobody takes {', '.join(sorted(f'{made[wire][0]} ({wire})' for wire in idle))}."
        )


def _expect_distinct(model: ModelSpec) -> None:
    for side in (model.inputs, model.outputs):
        if len({tensor.name for tensor in side}) != len(side):
            raise ExportError(
                f"Two tensors of {model.name} have one name: {', '.join(t.name for t in side)}."
            )


def _model_of(step: EnsembleStep, models: dict[str, ModelSpec]) -> ModelSpec:
    model = models.get(step.model)
    if model is None:
        raise ExportError(f"The ensemble has a step {step.model!r}, and there is no such model.")
    if model.version != step.version:
        raise ExportError(
            f"The ensemble wants {step.model} {step.version}, and version {model.version} is exported."
        )
    return model


def _ends(
    step: EnsembleStep, model: ModelSpec, side: str, mapping: object, tensors: Sequence[ModelTensor]
) -> dict[str, ModelTensor]:
    """The model's tensors by the ensemble's names, every one mapped and no other."""
    names = dict(step.inputs if side == "input" else step.outputs)
    known = {tensor.name: tensor for tensor in tensors}
    if names.keys() != known.keys():
        raise ExportError(
            f"The ensemble maps the {side}s {', '.join(sorted(names)) or 'none'} of {model.name}, "
            f"which has {', '.join(sorted(known)) or 'none'}."
        )
    if len(set(names.values())) != len(names):
        raise ExportError(f"Two {side}s of {model.name} have one name in the ensemble: {mapping}.")
    return {wire: known[name] for name, wire in names.items()}


def _meet(
    wire: str, tensor: ModelTensor, where: str, made: dict[str, tuple[str, ModelTensor]]
) -> None:
    if wire not in made:
        raise ExportError(f"Nobody makes {wire!r}, which is {where}.")
    maker, source = made[wire]
    if (source.dtype, source.dims) != (tensor.dtype, tensor.dims):
        raise ExportError(
            f"Tensor {wire!r} is made as {source.dtype}{list(source.dims)} by {maker} "
            f"and taken as {tensor.dtype}{list(tensor.dims)} by {where}."
        )
