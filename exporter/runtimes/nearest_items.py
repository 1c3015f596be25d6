"""A further step for a runtime, which finds the items nearest to the network's vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from exporter.plan.model_spec import EnsembleStep, ModelSpec
from exporter.plan.pipeline import Pipeline
from exporter.plan.plan import Runtime, Writer
from exporter.plan.specs import published_parameters, tensors_of_network
from exporter.write import index_step
from exporter.write.index_step import index_spec
from exporter.write.onnx.nearest_items import nearest_to_onnx
from exporter.write.onnx.preprocessing import onnx_spec
from training.network.nearest_items import NearestNetwork


def with_nearest_items(runtime: Runtime) -> Runtime:
    """The runtime with a step `<name>_items` behind its two; a fused one has the search inside."""

    def plan(pipeline: Pipeline) -> tuple[ModelSpec, ...]:
        if pipeline.options.is_fused:
            return runtime.plan(pipeline)
        preprocess, network, whole = runtime.plan(pipeline.of_tower)
        outputs = tensors_of_network(pipeline.signature.outputs)
        make_spec = index_spec if pipeline.index else onnx_spec
        step = make_spec(f"{pipeline.name}_items", pipeline, network.outputs, outputs)
        connected = EnsembleStep(
            step.name,
            step.version,
            {tensor.name: tensor.name for tensor in step.inputs},
            {tensor.name: tensor.name for tensor in step.outputs},
        )
        whole = replace(
            whole,
            outputs=step.outputs,
            steps=(*whole.steps, connected),
            parameters=published_parameters(pipeline, preprocess.name),
        )
        return preprocess, network, step, whole

    def prepare(network: NearestNetwork, pipeline: Pipeline) -> Mapping[str, Writer]:
        if pipeline.options.is_fused:
            return runtime.prepare(network, pipeline)
        tower: Any = network.tower
        steps = runtime.prepare(tower, pipeline.of_tower)
        search = (
            index_step.writer(network.index) if network.index else nearest_to_onnx(network).write
        )
        return {**steps, f"{pipeline.name}_items": search}

    return Runtime(plan, prepare)
