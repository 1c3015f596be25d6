"""SavedModels of a network, alone or with its preprocessing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from exporter.errors import ExportError
from exporter.plan.model_spec import ModelSpec, ModelTensor
from exporter.plan.pipeline import Pipeline, relay
from exporter.plan.plan import Writer
from training.errors import unwritable
from training.network.network import TensorFlowNetwork
from training.network.saved_network import SIGNATURE
from training.saved_model import write_saved_model
from workflow.expressions.tensorflow import WireInterpreter
from workflow.wire.packed_tensor import Packed, Packing

# In a SavedModel whose inputs in the ensemble differ from the network's own.
ENSEMBLE_SIGNATURE = "ensemble"
GRAPH_TAG = "serve"
FOLDER = "model.savedmodel"


def saved_model_spec(
    name: str,
    pipeline: Pipeline,
    inputs: tuple[ModelTensor, ...],
    outputs: tuple[ModelTensor, ...],
    signature: str = SIGNATURE,
) -> ModelSpec:
    """A model of Triton's TensorFlow backend, which calls one signature of a SavedModel."""
    options = pipeline.options
    return ModelSpec(
        name=name,
        version=pipeline.version,
        backend="tensorflow",
        platform="tensorflow_savedmodel",
        inputs=inputs,
        outputs=outputs,
        parameters={"TF_SIGNATURE_DEF": signature, "TF_GRAPH_TAG": GRAPH_TAG},
        instances=options.network_instances,
        instance_kind=options.network_kind,
        max_batch_size=options.max_batch_size,
        queue=options.queue,
    )


def called_signature(pipeline: Pipeline, packing: Packing) -> str:
    """The signature that the ensemble calls: the network's own, if it takes tensors as they travel."""
    return ENSEMBLE_SIGNATURE if packing or pipeline.unpadded[1] else SIGNATURE


def network_writer(network: TensorFlowNetwork, pipeline: Pipeline, packing: Packing) -> Writer:
    """Write the network with its own names, and if needed with a signature for the ensemble.

    The SavedModel has the signature `serving_default`, with the network's inputs. If the previous
    step sends packed tensors or padded lists, it also has the signature `ensemble`, over the same
    weights.

    Args:
        network: the network.
        pipeline: the subject of the export.
        packing: the packed tensors by name.
    """
    signatures = {SIGNATURE: network.function}
    if called_signature(pipeline, packing) == SIGNATURE:
        return signatures_writer(network, signatures)
    travelling, taken = pipeline.unpadded
    unpad = WireInterpreter(relay(taken), travelling, taken) if taken else None

    def serve(**tensors: Any) -> dict[str, Any]:
        for name, packed in packing.items():
            tensors |= unpack_tensor(tensors.pop(name), packed)
        return network.call(**(tensors | (unpad(tensors) if unpad else {})))

    specs = {spec.name: spec for spec in map(_named_spec, pipeline.signature.inputs)}
    if unpad is not None:
        for column in taken:
            for name in column.tensors:
                del specs[name]
        specs |= unpad.signature
    for name, packed in packing.items():
        for member in packed.members:
            del specs[member.name]
        width = None if packed.width < 0 else packed.width
        specs[name] = tf.TensorSpec([None, width], packed.dtype, name=name)
    signatures[ENSEMBLE_SIGNATURE] = traced(serve, specs)
    return signatures_writer(network, signatures, unpad)


def unpack_tensor(tensor: Any, packed: Packed) -> dict[str, Any]:
    """The members of a packed tensor, in a graph."""
    tensors: dict[str, Any] = {}
    begin, runs = 0, list(packed.runs())
    for dtype, members in runs:
        widths = [member.width for member in members]
        size = packed.items(dtype)
        length = -1 if -1 in widths else size * sum(widths)
        # A slice of the whole tensor would be a copy.
        part = tf.slice(tensor, [0, begin], [-1, length]) if len(runs) > 1 else tensor
        begin += length
        if size > 1:
            count = tf.shape(part)[1] // size if length < 0 else sum(widths)
            part = tf.reshape(part, [-1, count, size])
        if dtype != packed.dtype:
            part = tf.bitcast(part, dtype)
        parts = tf.split(part, widths, axis=1) if len(widths) > 1 else [part]
        tensors |= {member.name: part for member, part in zip(members, parts, strict=True)}
    return tensors


def signatures_writer(
    network: TensorFlowNetwork, signatures: Mapping[str, Any], *modules: tf.Module | None
) -> Writer:
    """Write a SavedModel.

    Args:
        network: the network that the signatures call.
        signatures: concrete functions by name.
        modules: further state that they need.
    """
    state = network.state()
    state.modules = [module for module in modules if module is not None]
    return lambda folder: _write(folder, lambda path: write_saved_model(state, path, signatures))


def traced(serve: Callable[..., Any], specs: Mapping[str, Any]) -> Any:
    """A function of named tensors, as a concrete function."""
    return tf.function(serve, autograph=False).get_concrete_function(**specs)


def _named_spec(spec: Any) -> Any:
    return tf.TensorSpec(spec.shape, spec.dtype, name=spec.name)


def _write(folder: Path, save: Callable[[Path], Any]) -> None:
    try:
        save(folder / FOLDER)
    except tf.errors.OpError as error:
        raise ExportError(str(unwritable(folder, error))) from error
