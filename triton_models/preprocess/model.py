"""The preprocessing step: runs a fitted workflow's program inside Triton, on numpy alone.

An export copies this file into the model's version folder, beside the program and the package
`preprocess_runtime` that it imports. A request that is wrong is answered with a fixed text and
INVALID_ARGUMENT, and its details go to the server's log; the others are answered as usual.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from preprocess_runtime import wire  # noqa: E402 - found beside this file
from preprocess_runtime.expressions.numpy import NumpyInterpreter  # noqa: E402
from preprocess_runtime.expressions.program import Program  # noqa: E402
from preprocess_runtime.schema import DTYPES, SchemaError  # noqa: E402

INVALID = "The request does not fit the model's inputs: {}."


class RequestError(ValueError):
    """A request that the inputs' description does not allow; the text may go to the client."""


class TritonPythonModel:
    """What Triton's python backend calls."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the program that lies beside this file, and hold it to the config.

        Raises:
            RuntimeError: program and config do not belong together.
        """
        parameters = json.loads(args["model_config"])["parameters"]
        self._inputs = wire.parse_columns(parameters["inputs"]["string_value"])
        self._outputs = wire.parse_columns(parameters["outputs"]["string_value"])
        program = Program.load(HERE)
        for side, columns, schema in (
            ("inputs", self._inputs, program.inputs),
            ("outputs", self._outputs, program.output_schema),
        ):
            described = {column.name: column.dtype for column in columns}
            made = {column.name: column.dtype for column in schema.columns}
            if described != made:
                raise RuntimeError(
                    f"The config describes the {side} {described}, and the program has {made}."
                )
        self._run = NumpyInterpreter(program)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request alone."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            return pb_utils.InferenceResponse(self._transform(request))
        except RequestError as error:
            pb_utils.Logger.log_warn(f"refused a request: {error.__cause__ or error}")
            return _refusal(INVALID.format(error), pb_utils.TritonError.INVALID_ARG)
        except Exception as error:  # noqa: BLE001 - one request must not take the server down
            pb_utils.Logger.log_error(f"failed on a request: {type(error).__name__}: {error}")
            return _refusal("The preprocessing failed.", pb_utils.TritonError.INTERNAL)

    def _transform(self, request: Any) -> list[Any]:
        tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        columns = {column.name: _decode(column, tensors) for column in self._inputs}
        if len({column.rows for column in columns.values()}) > 1:
            raise RequestError("its columns differ in their number of rows")
        made = self._run(columns)
        answer: dict[str, Any] = {}
        for column in self._outputs:
            answer |= _encode(column, made[column.name])
        return [pb_utils.Tensor(name, tensor) for name, tensor in answer.items()]


def _decode(column: Any, tensors: dict[str, Any]) -> Any:
    for name, dtype in column.tensors.items():
        if tensors[name].dtype != DTYPES[dtype].numpy:
            raise RequestError(f"{name} is not {dtype}")
        if tensors[name].ndim != 2 or tensors[name].shape[1] != 1:
            raise RequestError(f"{name} is not of the shape [N, 1]")
    try:
        return wire.decode(column, tensors)
    except SchemaError as error:
        raise RequestError(f"{column.name} cannot be read") from error


def _encode(column: Any, made: Any) -> dict[str, Any]:
    try:
        return wire.encode(column, made)
    except SchemaError as error:
        raise RequestError(f"{column.name} would be null") from error


def _refusal(text: str, code: Any) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, code))
