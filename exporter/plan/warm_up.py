"""Requests that the server makes of each model before it reports the model as ready.

They are golden rows, as a client would send them; the network of a pipeline with two steps gets the
output of preprocessing. Without rows from the user both get zeros, which serve all purposes but
filling caches, and are the same for every state of the workflow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from exporter.plan.golden_rows import GoldenRows, Tensors
from exporter.plan.model_spec import ModelSpec, WarmUpTensor
from exporter.plan.pipeline import Pipeline
from serving.connection.tensors import to_bytes
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.schema.column import Array
from workflow.wire.format import decode, encode
from workflow.wire.packed_tensor import pack, parse_packing
from workflow.wire.request_rules import NNZS


def with_warm_up(
    pipeline: Pipeline, models: Sequence[ModelSpec], golden: GoldenRows
) -> tuple[ModelSpec, ...]:
    """The models of a plan with their warm-up requests, one for each row.

    Args:
        pipeline: the subject of the export.
        models: the steps, if there are any, and the published model last.
        golden: the golden rows, of which the first warm up.
    """
    if not pipeline.options.warm_up:
        return tuple(models)
    asked = [golden.requests[: golden.warming]]
    if len(models) > 1:
        asked.append(_network_requests(pipeline, models[0], asked[0]))
    warm = [
        replace(model, warm_up=tuple(_request(model, tensors) for tensors in requests))
        for model, requests in zip(models, asked, strict=False)
    ]
    return (*warm, *models[len(warm) :])


def _network_requests(
    pipeline: Pipeline, preprocess: ModelSpec, requests: Sequence[Tensors]
) -> tuple[Tensors, ...]:
    """Tensors that preprocessing passes to the network."""
    run = NumpyInterpreter(pipeline.features.program)
    exact = pipeline.options.golden_rows is not None
    rows: list[Tensors] = []
    for tensors in requests:
        answer = run({c.name: decode(c, tensors) for c in pipeline.client_columns})
        rows.append({})
        for column in pipeline.step_columns:
            wire = encode(column, answer[column.name])
            rows[-1] |= wire if exact else {n: _zeros(n, tensor) for n, tensor in wire.items()}
    packing = parse_packing(preprocess.parameters["packing"])
    return tuple(pack(tensors, packing) for tensors in rows)


def _zeros(name: str, tensor: Array) -> Array:
    """Zeros in place of values, so that the request does not depend on a workflow's state."""
    if name.endswith(NNZS):
        return tensor
    return np.full_like(tensor, b"" if tensor.dtype == object else 0)


def _request(model: ModelSpec, tensors: Tensors) -> Mapping[str, WarmUpTensor]:
    """A row in the model's form; equal tensors share a file, named after its content."""
    request = {}
    for name, dtype in ((tensor.name, tensor.dtype) for tensor in model.inputs):
        content, shape = to_bytes(tensors[name]), tensors[name].shape
        request[name] = WarmUpTensor(
            file=hashlib.sha256(content).hexdigest()[:16],
            dtype=dtype,
            dims=shape[1:] if model.max_batch_size else shape,
            content=content,
        )
    return request
