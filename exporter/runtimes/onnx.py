"""Two steps, both as ONNX models: a stock Triton image is enough."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from exporter.plan.model_spec import ModelSpec
from exporter.plan.pack_columns import pack_step, with_row_shapes
from exporter.plan.pipeline import Pipeline
from exporter.plan.plan import Runtime, Writer
from exporter.plan.specs import ensemble, even, tensors_of, tensors_of_network
from exporter.write.onnx.model import OnnxModel, writers
from exporter.write.onnx.network import network_to_onnx
from exporter.write.onnx.packed_tensor import pack_outputs, unpack_inputs
from exporter.write.onnx.preprocessing import onnx_spec, preprocessing_to_onnx, with_padded_lists
from exporter.write.onnx.simplify import simplify
from training.network.network import Network
from workflow.expressions.onnx import OUTPUT_SUFFIX
from workflow.wire.format import dump_columns
from workflow.wire.packed_tensor import dump_packing


def _plan(pipeline: Pipeline) -> tuple[ModelSpec, ...]:
    between, packing = pack_step(pipeline, mixed=False)
    tensors = [replace(tensor, name=tensor.name + OUTPUT_SUFFIX) for tensor in even(between)]
    preprocess = replace(
        onnx_spec(
            f"{pipeline.name}_nvt",
            pipeline,
            tensors_of(pipeline.client_columns),
            tuple(tensors),
        ),
        instances=pipeline.options.preprocess_instances,
        instance_kind="KIND_CPU",
    )
    described = {
        "inputs": dump_columns(pipeline.client_columns),
        "outputs": dump_columns(pipeline.step_columns),
        "output_suffix": OUTPUT_SUFFIX,
        "packing": dump_packing(packing),
        "limits": json.dumps(pipeline.options.limits),
    }
    preprocess = replace(preprocess, parameters={**preprocess.parameters, **described})
    outputs = tensors_of_network(pipeline.signature.outputs)
    network = onnx_spec(f"{pipeline.name}_onnx", pipeline, between, outputs)
    network = with_row_shapes(pipeline, network, packing)
    return preprocess, network, ensemble(pipeline, preprocess, network)


def _prepare(network: Network, pipeline: Pipeline) -> Mapping[str, Writer]:
    _, packing = pack_step(pipeline, mixed=False)
    order = [member.name for packed in packing.values() for member in packed.members]
    features = preprocessing_to_onnx(pipeline, pipeline.step_columns, order)
    preprocess = simplify(OnnxModel(pack_outputs(features, packing)))
    converted = unpack_inputs(with_padded_lists(pipeline, network_to_onnx(network)), packing)
    converted = simplify(converted)
    models = {f"{pipeline.name}_nvt": preprocess, f"{pipeline.name}_onnx": converted}
    return writers(models, pipeline.options.onnxruntime)


RUNTIME = Runtime(_plan, _prepare)
