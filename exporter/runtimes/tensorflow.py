"""Two steps: preprocessing in Python, and the network as a SavedModel.

NVIDIA's TensorFlow backend served the network's model, and ours serves it now.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from exporter.plan.model_spec import ModelSpec
from exporter.plan.pack_columns import pack_step, with_row_shapes
from exporter.plan.pipeline import Pipeline
from exporter.plan.plan import Runtime, Writer
from exporter.plan.specs import ensemble, even, tensors_of, tensors_of_network
from exporter.write import python_step
from exporter.write.saved_model import called_signature, network_writer, saved_model_spec
from training.network.network import TensorFlowNetwork
from workflow.wire.format import dump_columns
from workflow.wire.packed_tensor import dump_packing


def _plan(pipeline: Pipeline) -> tuple[ModelSpec, ...]:
    options = pipeline.options
    travelling, packing = pack_step(pipeline, mixed=True)
    between = even(travelling)
    preprocess = ModelSpec(
        name=f"{pipeline.name}_nvt",
        version=pipeline.version,
        backend="python",
        inputs=tensors_of(pipeline.client_columns),
        outputs=between,
        parameters={
            "inputs": dump_columns(pipeline.client_columns),
            "outputs": dump_columns(pipeline.step_columns),
            "packing": dump_packing(packing),
            "limits": json.dumps(options.limits),
        },
        instances=options.preprocess_instances,
        max_batch_size=options.max_batch_size,
        queue=options.queue,
    )
    outputs = tensors_of_network(pipeline.signature.outputs)
    signature = called_signature(pipeline, packing)
    network = saved_model_spec(f"{pipeline.name}_tf", pipeline, between, outputs, signature)
    network = with_row_shapes(pipeline, network, packing)
    return preprocess, network, ensemble(pipeline, preprocess, network)


def _prepare(network: TensorFlowNetwork, pipeline: Pipeline) -> Mapping[str, Writer]:
    _, packing = pack_step(pipeline, mixed=True)
    return {
        f"{pipeline.name}_nvt": python_step.writer(
            pipeline.features.program, pipeline.features.training_data
        ),
        f"{pipeline.name}_tf": network_writer(network, pipeline, packing),
    }


RUNTIME = Runtime(_plan, _prepare)
