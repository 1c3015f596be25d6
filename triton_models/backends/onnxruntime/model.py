"""An onnxruntime backend for a Triton that lacks the native one, such as the embedded server.

Serves `<model>/<version>/model.onnx` (with external data beside it) and supports the native
backend's parameter intra_op_thread_count. Runs inside the server, on Python 3.10 and above with
numpy and onnxruntime.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

# It reports its use to its makers otherwise, from 1.31 on.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import onnxruntime

if TYPE_CHECKING:
    from triton_models.backends.joint_calls import RequestError, Tensors
    from triton_models.backends.model_backend import (
        DATATYPES,
        ConfigError,
        ModelBackend,
        TensorType,
        complete_config,
        thread_count,
    )
    from workflow.wire.request_rules import NULL_STRING, VALUES, widens
else:  # In the server these files are beside this one, outside any package.
    from joint_calls import RequestError, Tensors
    from model_backend import (
        DATATYPES,
        ConfigError,
        ModelBackend,
        TensorType,
        complete_config,
        thread_count,
    )
    from request_rules import NULL_STRING, VALUES, widens


class TritonPythonModel(ModelBackend):
    """An ONNX model in an inference session. Triton requires this class name."""

    flattens = True

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Fill inputs and outputs from the graph if the config omits them."""
        return complete_config(TritonPythonModel(), auto_complete_model_config)

    def load(self, path: Path, config: Mapping[str, Any], device: int | None) -> None:
        """Open a session on the model's file.

        Raises:
            ConfigError: the file is missing, an instance on a GPU, or a type that Triton does not
                know.
        """
        file = path / (config.get("default_model_filename") or "model.onnx")
        if not file.is_file():
            raise ConfigError(f"Expected the model of {config['name']!r} in {file}. No such file.")
        if device is not None:
            raise ConfigError(
                "This onnxruntime backend serves on the CPU. Received: an instance of "
                f"{config['name']!r} on GPU {device}. Use KIND_CPU, or a Triton with the native one."
            )
        options = onnxruntime.SessionOptions()
        # Further threads would spin while they wait, and halve the throughput of small models.
        options.intra_op_num_threads = thread_count(config, "intra_op_thread_count", 1)
        self._session = onnxruntime.InferenceSession(
            str(file), options, providers=["CPUExecutionProvider"]
        )
        self.inputs = _types(self._session.get_inputs())
        self.outputs = _types(self._session.get_outputs())
        self._strings = [n for n, kind in self.inputs.items() if kind.datatype == "TYPE_STRING"]

    def call(self, tensors: Tensors) -> Tensors:
        """Run the session once.

        Raises:
            UnicodeDecodeError: a string that is neither UTF-8 nor an allowed null code.
            RequestError: a string with a NUL.
        """
        feed = dict(tensors)
        for name in self._strings:
            feed[name] = string_tensor(name, feed[name], nullable=name in (self.nullable or ()))
        return dict(zip(self.outputs, self._session.run(list(self.outputs), feed), strict=True))


def string_tensor(name: str, tensor: npt.NDArray[Any], *, nullable: bool) -> Any:
    """Convert bytes to a form that a session takes, including the null code where allowed.

    onnxruntime's Python interface takes text, and would silently convert an object array of bytes
    by `str(b"a")`, which is "b'a'". It takes bytes of one width unchanged, but reads each up to a
    NUL, and past its end if there is none. Triton's own backend reads a string up to a NUL too, so
    strings with a NUL are refused here. One long string would widen all others.
    """
    values = tensor.reshape(-1).tolist()
    if any(b"\0" in value for value in values):
        column = name.removesuffix(VALUES)
        raise RequestError(f"Expected {column} without a NUL. Received: a string with one.")
    has_null = nullable and NULL_STRING in values
    texts = [b"" if has_null and value == NULL_STRING else value for value in values]
    decoded = [text.decode() for text in texts]
    if not has_null:
        return np.array(decoded, object).reshape(tensor.shape)
    width = max(map(len, values)) + 1
    if not widens(len(values), width, sum(map(len, values))):
        return np.array(values, f"S{width}").reshape(tensor.shape)
    return _as_constant(values, tensor.shape)


def _as_constant(values: Sequence[bytes], shape: Sequence[int]) -> Any:
    """Arbitrary bytes, as the output of a model with a constant: slow, and rarely needed."""
    from onnx import TensorProto, helper  # noqa: PLC0415 - see above

    constant = TensorProto(
        name="bytes", data_type=TensorProto.STRING, dims=shape, string_data=values
    )
    graph = helper.make_graph(
        [helper.make_node("Identity", ["bytes"], ["strings"])],
        "constant",
        [],
        [helper.make_tensor_value_info("strings", TensorProto.STRING, shape)],
        [constant],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run_with_ort_values(["strings"], {})[0]


def _types(tensors: Iterable[Any]) -> dict[str, TensorType]:
    types = {}
    for tensor in tensors:
        match = re.fullmatch(r"tensor\((\w+)\)", tensor.type)
        if match is None or match[1] not in DATATYPES:
            raise ConfigError(f"Triton has no datatype for {tensor.name!r}: {tensor.type}.")
        # A dimension is a number, or a name or None if it is dynamic.
        shape = tuple(dim if isinstance(dim, int) else -1 for dim in tensor.shape)
        types[tensor.name] = TensorType(DATATYPES[match[1]], shape)
    return types
