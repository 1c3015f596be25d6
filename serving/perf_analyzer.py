"""Rows and expected answers as a file for NVIDIA's load generator perf_analyzer."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from serving.client import EnsembleClient, current_contract
from serving.connection.tensors import to_bytes
from serving.errors import ColumnError
from serving.exchange import to_requests
from workflow.files.write_errors import write_errors
from workflow.schema.column import Array


def write_perf_analyzer_input(
    client: EnsembleClient,
    data: Any,
    path: str | os.PathLike[str],
    *,
    validation_data: bool = True,
) -> int:
    """Write a JSON file for perf_analyzer's `--input-data`: each row as a separate request.

    The server's present answers are written as the expected ones, the file's `validation_data`;
    perf_analyzer fails on any other answer, even by a single bit. So they are for
    `--concurrency-range 1`: a server that joins requests may sum floats in another order, and the
    last bit of an answer depends on the rows beside it. For more concurrent requests write a file
    with `validation_data=False`; perf_analyzer compares all outputs or none.

    It can compare only outputs of a known shape, so expected answers are omitted if the model does
    not join requests (`max_batch_size` 0), since the rows are then a dimension of its tensors, and
    if it answers with lists.

    Values are written as numbers and texts. A tensor with values that JSON lacks, such as NaN or
    the code for a null string, is written in base64.

    Args:
        client: connected to the model.
        data: a table of any kind that `EnsembleClient.predict` takes.
        path: the file.
        validation_data: whether to write the expected answers, for which the rows are sent.

    Returns:
        The number of requests written.

    Raises:
        ClientError: the data does not fit or has no rows, or the server refused.
        WorkflowError: the file cannot be written.

    Example:
        >>> write_perf_analyzer_input(
        ...     client, rows, "input.json", validation_data=False
        ... )  # doctest: +SKIP
        1000
    """
    contract = current_contract(client)
    requests = to_requests(replace(contract, limits={"max_rows": 1}), data)
    if not requests:
        raise ColumnError("INVALID_INPUT", "Expected rows to write. Received: none.")
    # The rows are a separate dimension in Triton if it joins requests.
    skipped = 1 if contract.max_batch_size else 0
    document = {"data": [_described(tensors, skipped) for tensors in requests]}
    if validation_data and skipped and not any(column.is_list for column in contract.outputs):
        answers = [client.raw(request) for request in requests]
        document["validation_data"] = [_described(tensors, skipped) for tensors in answers]
    with write_errors(path):
        Path(path).write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return len(requests)


def _described(tensors: Mapping[str, Array], skipped: int) -> dict[str, Any]:
    return {
        name: {"content": json_content(tensor), "shape": list(tensor.shape[skipped:])}
        for name, tensor in tensors.items()
    }


def json_content(tensor: Array) -> Any:
    """The values of a tensor as JSON; as base64 if JSON cannot hold one."""
    values = tensor.reshape(-1).tolist()
    if tensor.dtype == object:
        try:
            return [value.decode() if isinstance(value, bytes) else value for value in values]
        except UnicodeDecodeError:
            return _base64(tensor)
    return values if np.isfinite(tensor).all() else _base64(tensor)


def _base64(tensor: Array) -> dict[str, str]:
    return {"b64": base64.b64encode(to_bytes(tensor)).decode()}
