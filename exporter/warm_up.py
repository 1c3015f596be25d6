"""The requests that the server makes of each model before it calls the model ready.

They are golden rows, raw ones of the user's, as the client would send them; the network of two
steps is sent what preprocessing makes of them. Without such rows it is a row of zeros, which is
as good for everything but caches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from exporter.errors import ExportError
from exporter.model_spec import ModelSpec, WarmUpTensor
from exporter.pipeline import Pipeline
from serving.connection.tensors import to_bytes
from serving.contract import Contract
from serving.errors import ClientError
from serving.exchange import to_requests
from workflow import WorkflowError
from workflow.data import Source
from workflow.dtypes import DTYPES
from workflow.expressions.column import Array, Column
from workflow.expressions.numpy import NumpyInterpreter
from workflow.packing import pack, parse_packing
from workflow.wire import NNZS, WireColumn, decode, encode

MOST_ROWS = 8
Tensors = dict[str, Array]


def with_warm_up(pipeline: Pipeline, models: Sequence[ModelSpec]) -> tuple[ModelSpec, ...]:
    """The models of a plan with their warm-up requests, one for each row.

    Args:
        pipeline: what is exported.
        models: the steps, if there are any, and the published model last.

    Raises:
        ExportError: golden rows that a client could not send, or that a limit refuses.
    """
    if not pipeline.options.warm_up:
        return tuple(models)
    asked = [_golden_requests(pipeline)]
    if len(models) > 1:
        asked.append(_network_requests(pipeline, models[0], asked[0]))
    warm = [
        replace(model, warm_up=tuple(_request(model, tensors) for tensors in requests))
        for model, requests in zip(models, asked, strict=False)
    ]
    return (*warm, *models[len(warm) :])


def _golden_requests(pipeline: Pipeline) -> list[Tensors]:
    columns, rows = pipeline.client_columns, pipeline.options.golden_rows
    if rows is None:
        return [_blank_row(columns)]
    try:
        source = Source.of(rows)
        with source.errors("The golden rows cannot be read"):
            wanted = [column.name for column in columns if column.name in source.names]
            # Without any known column there is an error to come that names all of them.
            table = source.select(wanted or None).sound().frame.head(MOST_ROWS).collect()
        contract = Contract(columns, (), (), "", {}, max_batch_size=1)
        requests = to_requests(contract, table)
    except (ClientError, WorkflowError) as error:
        text = error.message if isinstance(error, ClientError) else str(error)
        raise ExportError(f"Expected golden_rows that a client can send. {text}") from error
    if not requests:
        raise ExportError("Expected golden_rows to hold a row. Received: none.")
    for number, tensors in enumerate(requests):
        for reason in _beyond_limits(pipeline.options.limits, columns, tensors):
            raise ExportError(
                f"Expected golden_rows within the limits. Received: row {number}, where {reason}."
            )
    return requests


def _blank_row(columns: Sequence[WireColumn]) -> Tensors:
    """One row of zeros and empty strings, lists of one of them."""
    tensors: Tensors = {}
    for column in columns:
        is_string = DTYPES[column.dtype].kind == "string"
        values = np.array([""], object) if is_string else np.zeros(1, DTYPES[column.dtype].numpy)
        lengths = np.ones(1, np.int64) if column.is_list else None
        tensors |= encode(column, Column(values, None, lengths))
    return tensors


def _network_requests(
    pipeline: Pipeline, preprocess: ModelSpec, requests: Sequence[Tensors]
) -> list[Tensors]:
    """What preprocessing hands on to the network."""
    columns = pipeline.step_columns
    if pipeline.options.golden_rows is None:
        made = [_blank_row(columns)]
    else:
        run = NumpyInterpreter(pipeline.features.program)
        made = []
        for tensors in requests:
            answer = run({c.name: decode(c, tensors) for c in pipeline.client_columns})
            made.append({})
            for column in columns:
                made[-1] |= encode(column, answer[column.name])
    packing = parse_packing(preprocess.parameters.get("packing", "{}"))
    return [pack(tensors, packing) for tensors in made]


def _request(model: ModelSpec, tensors: Tensors) -> Mapping[str, WarmUpTensor]:
    """A row as the model takes it; equal tensors share a file, which is named by its content."""
    made = {}
    for name, dtype in ((tensor.name, tensor.dtype) for tensor in model.inputs):
        content, shape = to_bytes(tensors[name]), tensors[name].shape
        made[name] = WarmUpTensor(
            file=f"{model.version}/{hashlib.sha256(content).hexdigest()[:16]}",
            dtype=dtype,
            dims=shape[1:] if model.max_batch_size else shape,
            content=content,
        )
    return made


def _beyond_limits(
    limits: Mapping[str, int], columns: Sequence[WireColumn], tensors: Mapping[str, Any]
) -> Iterator[str]:
    longest, most = limits.get("max_list_length"), limits.get("max_string_bytes")
    for column in columns:
        if longest and column.is_list and (tensors[column.name + NNZS] > longest).any():
            yield f"{column.name} has a list of more than {longest}"
        if most and column.dtype == "string":
            lengths = [len(text) for text in tensors[column.values_name].ravel()]
            if max(lengths, default=0) > most:
                yield f"{column.name} has a string of more than {most} bytes"
