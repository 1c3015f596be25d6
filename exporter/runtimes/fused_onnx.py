"""One ONNX model from raw columns to predictions, the fastest on a stock Triton image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from exporter.network.network import Network
from exporter.plan.model_spec import ModelSpec
from exporter.plan.pipeline import Pipeline
from exporter.plan.runtime import Runtime, Writer
from exporter.plan.specs import published_parameters, tensors_of, tensors_of_network
from exporter.write.onnx.model import fuse
from exporter.write.onnx.network import network_to_onnx
from exporter.write.onnx.preprocessing import onnx_spec, preprocessing_to_onnx


def _plan(pipeline: Pipeline) -> tuple[ModelSpec, ...]:
    inputs = tensors_of(pipeline.client_columns)
    outputs = tensors_of_network(pipeline.signature.outputs)
    spec = onnx_spec(pipeline.name, pipeline, inputs, outputs)
    parameters = {**spec.parameters, **published_parameters(pipeline)}
    return (replace(spec, parameters=parameters),)


def _prepare(network: Network, pipeline: Pipeline) -> Mapping[str, Writer]:
    preprocess = preprocessing_to_onnx(pipeline, pipeline.features.outputs)
    return {pipeline.name: fuse(preprocess, network_to_onnx(network)).write}


RUNTIME = Runtime(_plan, _prepare)
