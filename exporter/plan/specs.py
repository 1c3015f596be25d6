"""Common parts of the runtimes' models."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, replace

from exporter.plan.model_spec import EnsembleStep, ModelSpec, ModelTensor
from exporter.plan.pipeline import Pipeline
from training.signature import TensorSpec
from workflow.schema.schema import time_name
from workflow.wire.format import WireColumn, dump_columns
from workflow.wire.request_rules import is_list_values

# The parameter of a published model's config that names the columns with another dtype than the workflow's.
CASTS = "casts"


def tensors_of(columns: Iterable[WireColumn]) -> tuple[ModelTensor, ...]:
    """The tensors that carry some columns; those of padded lists without fixed width are ragged."""
    return tuple(
        ModelTensor(
            name,
            dtype,
            dims := column.shapes[name],
            dims[1] < 0,
            time_name(column.time) if name == column.values_name else "",
            is_list_values(name, column.tensors),
        )
        for column in columns
        for name, dtype in column.tensors.items()
    )


def tensors_of_network(specs: Sequence[TensorSpec]) -> tuple[ModelTensor, ...]:
    """The tensors of a network's signature."""
    names = {spec.name for spec in specs}
    return tuple(
        ModelTensor(
            s.name,
            s.dtype,
            tuple(-1 if d is None else d for d in s.shape),
            elements=is_list_values(s.name, names),
        )
        for s in specs
    )


def even(tensors: Iterable[ModelTensor]) -> tuple[ModelTensor, ...]:
    """The same tensors for a backend that joins only requests of equal widths."""
    return tuple(replace(tensor, ragged=False) for tensor in tensors)


def published_parameters(pipeline: Pipeline, preprocessing: str = "") -> dict[str, str]:
    """Parameters in the published model's config for clients.

    Args:
        pipeline: the subject of the export.
        preprocessing: the name of the preprocessing model, if there is one.
    """
    outputs = [WireColumn(spec.name, spec.dtype) for spec in pipeline.signature.outputs]
    parameters = {
        "inputs": dump_columns(pipeline.client_columns),
        "outputs": dump_columns(outputs),
        "label_columns": json.dumps(pipeline.features.labels),
        "limits": json.dumps(pipeline.options.limits),
        "tolerance": json.dumps(pipeline.tolerance),
        CASTS: json.dumps([astuple(cast) for cast in pipeline.features.casts]),
    }
    if preprocessing:
        parameters["preprocessing"] = preprocessing
    if pipeline.options.columns:
        parameters["network_columns"] = json.dumps(dict(pipeline.options.columns))
    return parameters


def ensemble(pipeline: Pipeline, preprocess: ModelSpec, network: ModelSpec) -> ModelSpec:
    """Combine preprocessing and network into one model, with tensors in the order of the steps.

    The `preprocess` outputs are the network's inputs, in the same order, under any names.
    """
    names = {tensor.name for tensor in (*preprocess.inputs, *network.outputs)}
    suffix = "_nvt"
    while any(f"{tensor.name}{suffix}" in names for tensor in network.inputs):
        suffix += "_"
    inside = {tensor.name: f"{tensor.name}{suffix}" for tensor in network.inputs}
    pairs = zip(preprocess.outputs, network.inputs, strict=True)
    return ModelSpec(
        name=pipeline.name,
        version=pipeline.version,
        platform="ensemble",
        inputs=preprocess.inputs,
        outputs=network.outputs,
        parameters=published_parameters(pipeline, preprocess.name),
        max_batch_size=pipeline.options.max_batch_size,
        response_cache=pipeline.options.response_cache,
        steps=(
            EnsembleStep(
                preprocess.name,
                preprocess.version,
                {tensor.name: tensor.name for tensor in preprocess.inputs},
                {output.name: inside[target.name] for output, target in pairs},
            ),
            EnsembleStep(
                network.name,
                network.version,
                inside,
                {tensor.name: tensor.name for tensor in network.outputs},
            ),
        ),
    )
