"""The plan of an export: three models that fit together, before anything is written."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from exporter.errors import ExportError
from exporter.features import Features
from exporter.model_spec import ModelSpec, Step, Tensor
from exporter.options import ServingOptions
from exporter.runtimes import tensorflow
from exporter.wiring import prove
from training.signature import ModelSignature, TensorSpec
from workflow.wire import WireColumn, dump_columns

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Plan:
    """What an export writes.

    Attributes:
        features: the preprocessing.
        signature: the network.
        preprocess: the model `<name>_nvt`.
        network: the model `<name>_tf`.
        ensemble: the model `<name>`.
    """

    features: Features
    signature: ModelSignature
    preprocess: ModelSpec
    network: ModelSpec
    ensemble: ModelSpec

    @property
    def models(self) -> tuple[ModelSpec, ...]:
        """The models in the order of publication, the ensemble last."""
        return self.preprocess, self.network, self.ensemble

    def of_generation(self, generation: str) -> Plan:
        """The plan with the generation in every model's parameters."""
        preprocess, network, ensemble = (
            replace(model, parameters={**model.parameters, "generation": generation})
            for model in self.models
        )
        return replace(self, preprocess=preprocess, network=network, ensemble=ensemble)


def make_plan(
    features: Features, signature: ModelSignature, name: str, version: int, options: ServingOptions
) -> Plan:
    """The three models of an ensemble, proven to fit.

    Raises:
        ExportError: a name or version that Triton would refuse, or steps that do not fit.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ExportError(
            f"Expected a name of letters, digits, _ - and ., since it is a folder of the server's. Received: {name!r}."
        )
    if type(version) is not int or version < 1:
        raise ExportError(f"Expected the version as a whole number from 1. Received: {version!r}.")
    network = tensorflow.model_spec(
        f"{name}_tf", version, _specs(signature.inputs), _specs(signature.outputs), options
    )
    preprocess = _preprocess(f"{name}_nvt", version, features, options)
    plan = Plan(
        features, signature, preprocess, network, _ensemble(name, preprocess, network, features)
    )
    prove(plan.ensemble, (preprocess, network))
    return plan


def _specs(specs: Sequence[TensorSpec]) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(s.name, s.dtype, tuple(-1 if d is None else d for d in s.shape)) for s in specs
    )


def tensors_of(columns: Sequence[WireColumn]) -> tuple[Tensor, ...]:
    """The tensors that carry some columns."""
    return tuple(
        Tensor(n, dtype) for n, dtype in chain.from_iterable(c.tensors.items() for c in columns)
    )


def _preprocess(name: str, version: int, features: Features, options: ServingOptions) -> ModelSpec:
    return ModelSpec(
        name=name,
        version=version,
        backend="python",
        inputs=tensors_of(features.inputs),
        outputs=tensors_of(features.outputs),
        parameters={
            "inputs": dump_columns(features.inputs),
            "outputs": dump_columns(features.outputs),
        },
        instances=options.preprocess_instances,
    )


def _ensemble(
    name: str, preprocess: ModelSpec, network: ModelSpec, features: Features
) -> ModelSpec:
    own = {tensor.name: tensor.name for tensor in (*preprocess.inputs, *network.outputs)}
    suffix = "_nvt"
    while any(f"{tensor.name}{suffix}" in own for tensor in preprocess.outputs):
        suffix += "_"
    inside = {tensor.name: f"{tensor.name}{suffix}" for tensor in preprocess.outputs}
    outputs = [WireColumn(tensor.name, tensor.dtype) for tensor in network.outputs]
    return ModelSpec(
        name=name,
        version=preprocess.version,
        platform="ensemble",
        inputs=preprocess.inputs,
        outputs=network.outputs,
        parameters={
            "inputs": dump_columns(features.inputs),
            "outputs": dump_columns(outputs),
            "label_columns": json.dumps(features.labels),
        },
        steps=(
            Step(
                preprocess.name,
                preprocess.version,
                {t.name: own[t.name] for t in preprocess.inputs},
                inside,
            ),
            Step(
                network.name,
                network.version,
                {t.name: inside.get(t.name, t.name) for t in network.inputs},
                {t.name: own[t.name] for t in network.outputs},
            ),
        ),
    )
