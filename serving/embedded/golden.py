"""Golden rows of a published version: requests, and the answers that its export computed.

They are a file of the version folder, so that any server can be asked for them at any time: before a
version is published, when it is published into a live server, and after a rollback.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tritonclient.utils import triton_to_np_dtype

from serving.connection.tensors import datatype_of
from serving.embedded.administration import Administration
from serving.errors import ServerError
from triton_models.healthcheck import ProbeError
from workflow.schema.column import Array
from workflow.schema.dtypes import DTYPES

GOLDEN = "golden.json"
# A string may be any bytes, such as the code for null, and JSON holds text.
_BYTES = ("utf-8", "surrogateescape")


@dataclass(frozen=True)
class GoldenAnswer:
    """A request of one row, and its answer.

    Attributes:
        name: what the row tests.
        request: the input tensors.
        answer: the output tensors that the export computed in its process.
        allowed: the allowed difference of each value of the answer; infinite if the order of a sum
            decides between a number and an overflow.
    """

    name: str
    request: Mapping[str, Array]
    answer: Mapping[str, Array]
    allowed: Mapping[str, Array]


def write_golden(path: Path, rows: Iterable[GoldenAnswer]) -> None:
    """Write golden rows as JSON, with tensors as in Triton's HTTP protocol.

    Floats that JSON lacks are the strings "nan", "inf" and "-inf".
    """
    document = [
        {
            "name": row.name,
            "inputs": [_dumped(name, tensor) for name, tensor in row.request.items()],
            "outputs": [
                {**_dumped(name, tensor), "allowed": _numbers(row.allowed[name])}
                for name, tensor in row.answer.items()
            ],
        }
        for row in rows
    ]
    path.write_text(json.dumps({"rows": document}, allow_nan=False), encoding="utf-8")


def read_golden(path: Path) -> list[GoldenAnswer]:
    """Read the file of `write_golden`.

    Raises:
        ServerError: the file is missing, or not what an export wrote.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return [
            GoldenAnswer(
                row["name"],
                {tensor["name"]: _parsed(tensor) for tensor in row["inputs"]},
                {tensor["name"]: _parsed(tensor) for tensor in row["outputs"]},
                {
                    tensor["name"]: np.array(tensor["allowed"], float).reshape(tensor["shape"])
                    for tensor in row["outputs"]
                },
            )
            for row in rows
        ]
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise ServerError(
            f"Expected the golden rows of an export in {path}. Received: {type(error).__name__}. "
            "Export the model again."
        ) from error


def expect_golden(
    server: Administration,
    model: str,
    rows: Sequence[GoldenAnswer],
    *,
    timeout: float,
    tolerance: float = 0.0,
) -> None:
    """Ask a served model for golden rows, each alone, and compare the answers.

    Args:
        server: the server.
        model: the model's name.
        rows: the rows.
        timeout: seconds for each row.
        tolerance: the least allowed difference of a float, relative to the answer or to 1 if that is
            larger. The export's own, mostly 1e-5, is for a server that computes as exactly as this
            process; a GPU with TensorFloat-32 needs about 1e-2.

    Raises:
        ServerError: a row has no answer, or another one; names the row and the output, and no value.
    """
    for row in rows:
        try:
            answer = server.answer(model, row.request, timeout)
        except ProbeError as error:
            raise ServerError(
                f"Expected {model} to answer the golden row {row.name!r}. Received: {error}"
            ) from error
        for name, expected in row.answer.items():
            if reason := _difference(expected, answer.get(name), row.allowed[name], tolerance):
                raise ServerError(
                    f"Expected {model} to answer the golden row {row.name!r} as its "
                    f"export did. Received: the output {name!r} {reason}."
                )


def distances(expected: Array, served: Array) -> Array:
    """Distance of two answers, value by value: 0 for equal ones, infinite for incomparable ones.

    Example:
        >>> distances(np.array([1.0, np.nan]), np.array([1.5, np.nan])).tolist()
        [0.5, 0.0]
    """
    if expected.dtype.kind == "f":
        here, there = expected.astype(np.float64), served.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            gaps = np.abs(here - there)
        same = (here == there) | (np.isnan(here) & np.isnan(there))
        return np.where(same, 0.0, np.where(np.isnan(gaps), np.inf, gaps))
    return np.where(expected == served, 0.0, np.inf)


def _difference(
    expected: Array, served: Array | None, allowed: Array, tolerance: float
) -> str | None:
    """The kind of a difference that is too large, without a value of either answer."""
    if served is None:
        return "is missing"
    if (served.dtype, served.shape) != (expected.dtype, expected.shape):
        return f"is {served.dtype}{served.shape} instead of {expected.dtype}{expected.shape}"
    if expected.dtype.kind == "f":
        size = np.nan_to_num(np.abs(expected.astype(np.float64)), posinf=1.0)
        allowed = np.maximum(allowed, tolerance * np.maximum(1.0, size))
    wrong = distances(expected, served) > allowed
    return f"differs in {wrong.sum()} of {wrong.size} values" if wrong.any() else None


def _dumped(name: str, tensor: Array) -> dict[str, Any]:
    datatype = datatype_of(name, tensor)
    values = tensor.reshape(-1).tolist()
    if datatype == "BYTES":
        values = [value.decode(*_BYTES) for value in values]
    elif tensor.dtype.kind == "f":
        values = _numbers(tensor)
    return {"name": name, "datatype": datatype, "shape": [*tensor.shape], "data": values}


def _numbers(tensor: Array) -> list[float | str]:
    values = tensor.reshape(-1)
    return [
        value if finite else str(value)
        for value, finite in zip(values.tolist(), np.isfinite(values).tolist(), strict=True)
    ]


def _parsed(tensor: Mapping[str, Any]) -> Array:
    if tensor["datatype"] == "BYTES":
        values = np.empty(len(tensor["data"]), DTYPES["string"].numpy)
        values[:] = [text.encode(*_BYTES) for text in tensor["data"]]
        return values.reshape(tensor["shape"])
    dtype = np.dtype(triton_to_np_dtype(tensor["datatype"]))
    return np.array(tensor["data"], dtype).reshape(tensor["shape"])
