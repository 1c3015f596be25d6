"""One ONNX model from raw columns to predictions, the fastest on a stock Triton image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from exporter.plan.model_spec import ModelSpec
from exporter.plan.pipeline import Pipeline
from exporter.plan.plan import Runtime, Writer
from exporter.plan.specs import published_parameters, tensors_of, tensors_of_network
from exporter.write.onnx.model import OnnxModel, fuse, writers
from exporter.write.onnx.network import network_to_onnx
from exporter.write.onnx.preprocessing import onnx_spec, preprocessing_to_onnx
from exporter.write.onnx.simplify import order, rows_agree, simplify
from exporter.write.onnx.tabulate import tabulate
from training.network.network import Network
from workflow.expressions.onnx import Rows


def _plan(pipeline: Pipeline) -> tuple[ModelSpec, ...]:
    inputs = tensors_of(pipeline.client_columns)
    outputs = tensors_of_network(pipeline.signature.outputs)
    spec = onnx_spec(pipeline.name, pipeline, inputs, outputs)
    parameters = {**spec.parameters, **published_parameters(pipeline)}
    return (replace(spec, parameters=parameters),)


def _prepare(network: Network, pipeline: Pipeline) -> Mapping[str, Writer]:
    converted = network_to_onnx(network)
    # Triton compares the rows of a request's inputs if it may join requests.
    elsewhere: Rows = "agree" if pipeline.options.max_batch_size else "agree unless empty"
    model = _fused(pipeline, converted, elsewhere)
    if not rows_agree(model):
        model = _fused(pipeline, converted, "unknown")
    return writers({pipeline.name: tabulate(model)}, pipeline.options.onnxruntime)


def _fused(pipeline: Pipeline, network: OnnxModel, rows: Rows) -> OnnxModel:
    """The preprocessing and the network; `rows` as in `to_onnx`."""
    outputs = pipeline.features.outputs
    features = preprocessing_to_onnx(pipeline, outputs, order(network), rows=rows)
    return simplify(fuse(features, network))


RUNTIME = Runtime(_plan, _prepare)
