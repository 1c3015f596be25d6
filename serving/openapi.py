"""The OpenAPI document of a model's HTTP face, KServe's protocol v2 as Triton speaks it.

Sources: https://spec.openapis.org/oas/v3.1.1.html and
https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import numpy as np

from serving.contract import Contract
from workflow.schema.dtypes import DTYPES
from workflow.wire.format import WireColumn
from workflow.wire.request_rules import NNZS

_FORMATS = {"float32": "float", "float64": "double", "int32": "int32", "int64": "int64"}
_NULLS = {
    "float": "null is NaN, which JSON has no word for: Triton reads NaN, without quotes, or send "
    "the tensor as binary data",
    "string": "null is the single byte 0xFF, which no valid JSON contains: send the tensor as "
    "binary data",
}


def openapi_document(
    name: str, contract: Contract, server: str = "http://127.0.0.1:8000"
) -> dict[str, Any]:
    """The OpenAPI 3.1 document of a model: its inference, its metadata and its readiness.

    The schemas have the names, datatypes, shapes and ranges of the model's own tensors, and the
    codes of nulls as descriptions.

    Args:
        name: the model's name on the server.
        contract: the model's inputs and outputs.
        server: the server's HTTP address.

    Example:
        >>> contract = Contract((WireColumn("age", "int8"),), (), (), "", {})
        >>> openapi_document("ages", contract)["openapi"]
        '3.1.0'
    """
    model = f"/v2/models/{quote(name, safe='')}"
    return {
        "openapi": "3.1.0",
        "info": {
            "title": name,
            "version": contract.generation or "unknown",
            "description": _description(contract),
        },
        "servers": [{"url": server}],
        "paths": {
            f"{model}/infer": {"post": _infer(name)},
            model: {"get": _get("metadata", "The tensors of the model.", "404", "Metadata")},
            f"{model}/ready": {"get": _get("ready", "The model is loaded.", "400")},
        },
        "components": {"schemas": _schemas(name, contract)},
    }


def _description(contract: Contract) -> str:
    limits = "".join(
        f" A request has at {word} {rows:,} {'row' if rows == 1 else 'rows'}."
        for word, rows in (("least", _least_rows(contract)), ("most", contract.max_rows))
        if rows
    )
    return (
        "N is the number of rows, the first dimension of every tensor but those named "
        f"`__values`, which hold the elements of all lists of the request one after another.{limits}"
    )


def _least_rows(contract: Contract) -> int:
    """The least rows of a request: a model that joins requests takes none without a row."""
    return 1 if contract.max_batch_size else 0


def _infer(name: str) -> dict[str, Any]:
    binary = (
        "JSON without the data of some tensors, each of which has the parameter `binary_data_size`, and "
        "then their bytes in this order; the header Inference-Header-Content-Length is the length of "
        "the JSON. Numbers are little-endian; a string is its length as a uint32 and its bytes."
    )
    answers = {"200": _answer("The predictions.", "InferResponse")}
    for code, text in (
        ("400", "A request that the model refuses."),
        ("404", "No such model."),
        ("500", "JSON that cannot be read, or a failure."),
        ("503", "The server has too much to do."),
    ):
        answers[code] = _answer(text, "Error")
    return {
        "operationId": "infer",
        "summary": f"Predictions of {name} for some rows.",
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": _ref("InferRequest")},
                "application/octet-stream": {"schema": {"type": "string", "description": binary}},
            },
        },
        "responses": answers,
    }


def _get(operation: str, text: str, absent: str, schema: str | None = None) -> dict[str, Any]:
    answers = {
        "200": _answer(text, schema),
        absent: _answer("No such model, or not loaded.", "Error"),
    }
    return {"operationId": operation, "summary": text, "responses": answers}


def _answer(text: str, schema: str | None = None) -> dict[str, Any]:
    if schema is None:
        return {"description": text}
    return {"description": text, "content": {"application/json": {"schema": _ref(schema)}}}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _schemas(name: str, contract: Contract) -> dict[str, Any]:
    rows = {"type": "integer", "minimum": _least_rows(contract)}
    if contract.max_rows:
        rows["maximum"] = contract.max_rows
    inputs = [
        _sent(column, tensor, rows) for column in contract.inputs for tensor in column.tensors
    ]
    outputs = [
        _received(column, tensor, tensor + contract.output_suffix)
        for column in contract.outputs
        for tensor in column.tensors
    ]
    return {
        "InferRequest": _object(
            {
                "id": {"type": "string"},
                "inputs": _all_of(inputs),
                "outputs": {"type": "array", "items": {"type": "object", "required": ["name"]}},
            },
            ["inputs"],
        ),
        "InferResponse": _object(
            {
                "id": {"type": "string"},
                "model_name": {"const": name},
                "model_version": {"type": "string"},
                "outputs": _all_of(outputs),
            },
            ["model_name", "outputs"],
        ),
        "Metadata": _object({"name": {"const": name}}, ["name", "inputs", "outputs"]),
        "Error": _object({"error": {"type": "string"}}, ["error"]),
    }


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _all_of(tensors: list[dict[str, Any]]) -> dict[str, Any]:
    """An array with each of the tensors once, in any order."""
    names = [tensor["properties"]["name"] for tensor in tensors]
    contained = [{"contains": {"properties": {"name": name}}} for name in names]
    schema: dict[str, Any] = {"type": "array", "items": {"oneOf": tensors}}
    return schema | {"minItems": len(tensors), "maxItems": len(tensors), "allOf": contained}


def _sent(column: WireColumn, tensor: str, rows: dict[str, Any]) -> dict[str, Any]:
    """The schema of an input, of two dimensions; `rows` is that of a number of rows."""
    any_length = {"type": "integer", "minimum": 0}
    length = column.shapes[tensor][1]
    are_elements = column.layout == "flat" and tensor == column.values_name
    shape = {
        "type": "array",
        "prefixItems": [
            any_length if are_elements else rows,
            any_length if length < 0 else {"const": length},
        ],
        "minItems": 2,
        "maxItems": 2,
    }
    return _tensor(tensor, column.tensors[tensor], shape) | {
        "description": _meaning(column, tensor)
    }


def _received(column: WireColumn, tensor: str, name: str) -> dict[str, Any]:
    """The schema of an output, which may have more dimensions."""
    shape = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
    return _tensor(name, column.tensors[tensor], shape)


def _tensor(name: str, dtype: str, shape: dict[str, Any]) -> dict[str, Any]:
    properties = {
        "name": {"const": name},
        "datatype": {"const": DTYPES[dtype].triton},
        "shape": shape,
        "data": {"type": "array", "items": _values(dtype)},
        "parameters": {"type": "object"},
    }
    return {"title": name} | _object(properties, ["name", "datatype", "shape"])


def _values(dtype: str) -> dict[str, Any]:
    info = DTYPES[dtype]
    if info.is_integer:
        limits = np.iinfo(info.numpy)
        values = {"type": "integer", "minimum": int(limits.min), "maximum": int(limits.max)}
    else:
        values = {"type": {"bool": "boolean", "string": "string"}.get(info.kind, "number")}
    return values | ({"format": _FORMATS[dtype]} if dtype in _FORMATS else {})


def _meaning(column: WireColumn, tensor: str) -> str:
    """The layout, the kind of time and the null code of a tensor, in a sentence each."""
    if tensor == column.name + NNZS:
        return f"The number of elements of each list of {column.name}."
    parts = {
        "scalar": "One value for each row.",
        "flat": "The elements of all lists, one after another.",
        "padded": "A row for each list, filled up to one length; elements after its end are ignored.",
        "fixed": f"{column.width} elements for each row.",
    }
    words = [parts[column.layout]]
    if column.time:
        words.append(f"Microseconds since 1970-01-01, {_zone(column.time)}.")
    if column.ends_at_nul:
        words.append("Strings have no NUL character.")
    if column.nullable:
        kind = DTYPES[column.dtype].kind
        words.append(f"{_NULLS.get(kind, f'null is {column.null_code}')}.")
    return " ".join(words)


def _zone(time: str) -> str:
    descriptions = {"date": "a date at midnight", "naive": "of a clock without a zone"}
    return descriptions.get(time, f"in UTC, of times in the zone {time}")
