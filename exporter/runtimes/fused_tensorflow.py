"""One SavedModel from raw columns to predictions, which TensorFlow runs anywhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from exporter.errors import ExportError
from exporter.plan.model_spec import ModelSpec
from exporter.plan.pipeline import Pipeline
from exporter.plan.plan import Runtime, Writer
from exporter.plan.specs import even, published_parameters, tensors_of, tensors_of_network
from exporter.write.saved_model import saved_model_spec, signatures_writer, traced
from training.network.network import TensorFlowNetwork
from training.network.saved_network import SIGNATURE
from workflow.expressions.fold_tables import fold_tables
from workflow.expressions.tensorflow import WireInterpreter
from workflow.schema.names import listed

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def _plan(pipeline: Pipeline) -> tuple[ModelSpec, ...]:
    inputs = even(tensors_of(pipeline.client_columns))
    names = [tensor.name for tensor in inputs]
    alike = Counter(name.lower() for name in names)
    renamed = [n for n in names if not _NAME.fullmatch(n) or alike[n.lower()] > 1]
    if renamed:
        raise ExportError(
            "Expected names of letters, digits and _ that differ by more than upper and lower case, "
            f"since TensorFlow renames other inputs. Received: {listed(renamed)}. "
            'Rename the columns, or use runtime="tensorflow" or one of ONNX.'
        )
    outputs = tensors_of_network(pipeline.signature.outputs)
    spec = saved_model_spec(pipeline.name, pipeline, inputs, outputs)
    parameters = {**spec.parameters, **published_parameters(pipeline)}
    return (replace(spec, parameters=parameters),)


def _prepare(network: TensorFlowNetwork, pipeline: Pipeline) -> Mapping[str, Writer]:
    features = pipeline.features
    program = fold_tables(features.program)
    preprocess = WireInterpreter(program, pipeline.client_columns, features.outputs)
    function = traced(lambda **tensors: network.call(**preprocess(tensors)), preprocess.signature)
    return {pipeline.name: signatures_writer(network, {SIGNATURE: function}, preprocess)}


RUNTIME = Runtime(_plan, _prepare)
