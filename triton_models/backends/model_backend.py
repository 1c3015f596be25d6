"""Common parts of the backends: reading requests, answering them, and checking the config.

Runs inside the server: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import uuid
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import triton_python_backend_utils as pb_utils

if TYPE_CHECKING:
    from triton_models.backends.joint_calls import (
        RequestError,
        Tensors,
        answer,
        attempt,
        check_padded_lengths,
        row_count,
    )
    from workflow.schema.dtypes import DTYPES
    from workflow.wire.integrity import expect_exported
    from workflow.wire.request_rules import (
        NULL_STRING,
        VALUES,
        LimitError,
        expect_within,
        parse_limits,
    )
else:  # In the server these files are beside model.py, outside any package.
    from dtypes import DTYPES
    from integrity import expect_exported
    from joint_calls import (
        RequestError,
        Tensors,
        answer,
        attempt,
        check_padded_lengths,
        row_count,
    )
    from request_rules import NULL_STRING, VALUES, LimitError, expect_within, parse_limits

# Triton's names of dtypes by TensorFlow's names in Python and in files, and by ONNX's.
DATATYPES = {dtype.name: dtype.triton_config for dtype in DTYPES.values()} | {
    "float16": "TYPE_FP16",
    "half": "TYPE_FP16",
}
DATATYPES |= {dtype.onnx.lower(): dtype.triton_config for dtype in DTYPES.values()}


@dataclass(frozen=True)
class TensorType:
    """An input or output as declared by the model.

    Attributes:
        datatype: as in config.pbtxt, for example "TYPE_INT64".
        shape: all dimensions, -1 for a dynamic one; None if even the rank is unknown.
    """

    datatype: str
    shape: tuple[int, ...] | None


class ConfigError(ValueError):
    """The model's config.pbtxt does not fit the model's file."""


class ModelBackend:
    """A model of one runtime. A subclass loads the model and calls it.

    Attributes:
        flattens: whether a ragged input is passed as the elements of all rows, as in the native
            onnxruntime backend; else it is [N, width].
        inputs: the model's inputs by name.
        outputs: the model's outputs by name.
    """

    flattens = False
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]

    def load(self, path: Path, config: Mapping[str, Any], device: int | None) -> None:
        """Load the model, set `inputs` and `outputs`.

        Args:
            path: the version folder.
            config: the model's config, as parsed from Triton's JSON.
            device: the GPU to use, None for the CPU.
        """
        raise NotImplementedError

    def call(self, tensors: Tensors) -> Tensors:
        """Run the model once."""
        raise NotImplementedError

    def is_server_fault(self, error: Exception) -> bool:
        """Whether a failed call is the server's fault, not the request's."""
        return isinstance(error, MemoryError)

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the model and validate the config against it. Called by Triton once per instance.

        Raises:
            ConfigError: the config names other inputs, outputs, dtypes or shapes than the model, or
                invalid limits.
            IntegrityError: the files are not those of one export.
        """
        # A crash of this process has its place in the server's log.
        faulthandler.enable()
        config = json.loads(args["model_config"])
        folder = Path(pb_utils.get_model_dir())
        expect_exported(folder, config)
        on_gpu = args["model_instance_kind"] == "GPU"
        device = int(args["model_instance_device_id"]) if on_gpu else None
        self.nullable = _nullable_inputs(config)
        self.load(folder, config, device)
        check_config(config, self.inputs, self.outputs, flattens=self.flattens)
        self.input_names = [tensor["name"] for tensor in config["input"]]
        self.ragged = ragged_inputs(config)
        self.limits = _limits(config)
        self.widths = made_widths(config) if self.flattens else {}
        self.name = args["model_name"]
        # Loaded objects stay: the garbage collector need not visit them during requests.
        gc.freeze()

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answer requests; each gets its own response, in order. Called by Triton."""
        read = [attempt(self._read, request) for request in requests]
        good = [tensors for tensors in read if not isinstance(tensors, Exception)]
        answers = map(self._explained, good, answer(good, self._call, self.ragged))
        return [
            self._respond(request, tensors if isinstance(tensors, Exception) else next(answers))
            for request, tensors in zip(requests, read, strict=True)
        ]

    def _read(self, request: Any) -> Tensors:
        given = {tensor.name(): _read_tensor(tensor) for tensor in request.inputs()}
        try:
            tensors = {name: given[name] for name in self.input_names}
        except KeyError as error:
            text = f"Expected the input {error}. Received: {sorted(given)}."
            raise RequestError(text) from error
        if self.limits:
            rows = row_count(tensors, self.ragged)
            if rows is None:
                raise RequestError("Expected columns of one number of rows. Received: several.")
            expect_within(self.limits, tensors, rows)
        if self.nullable is not None:  # In another model such names are any numbers.
            check_padded_lengths(tensors)
        for name, made in self.widths.items():
            tensor = tensors[name]
            tensors[made] = np.full(len(tensor), tensor.shape[1], np.int32)
            tensors[name] = tensor.reshape(-1)
        return tensors

    def _call(self, tensors: Tensors) -> Tensors:
        """Run the model once, and make the rows of its outputs contiguous."""
        return {name: np.ascontiguousarray(made) for name, made in self.call(tensors).items()}

    def _explained(self, tensors: Tensors, answered: Tensors | Exception) -> Tensors | Exception:
        """The answer, or for values that the exported graph refuses the error that names them."""
        if isinstance(answered, Exception) and self.nullable is not None:
            return attempt(expect_values, tensors, self.nullable) or answered
        return answered

    def _respond(self, request: Any, answered: Tensors | Exception) -> Any:
        if not isinstance(answered, Exception):
            answered = attempt(self._response, request, answered)
        if isinstance(answered, Exception):
            return pb_utils.InferenceResponse(error=self._refuse(answered))
        return answered

    def _response(self, request: Any, answered: Tensors) -> Any:
        wanted = frozenset(request.requested_output_names())
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, made) for name, made in answered.items() if name in wanted]
        )

    def _refuse(self, error: Exception) -> Any:
        """A text for the client. That of a library goes only to the log, under the same id."""
        error_id = uuid.uuid4().hex[:12]
        pb_utils.Logger.log_error(
            f"{self.name}: error {error_id}: {type(error).__name__}: {str(error)!r}"
        )
        if isinstance(error, LimitError):
            return pb_utils.TritonError(
                f"The request is beyond a limit of the model: {error}.",
                pb_utils.TritonError.INVALID_ARG,
            )
        if isinstance(error, RequestError):
            return pb_utils.TritonError(
                f"The request does not fit the model's inputs. {error}",
                pb_utils.TritonError.INVALID_ARG,
            )
        see_log = f"Error id {error_id}, see the server's log."
        if self.is_server_fault(error):
            return pb_utils.TritonError(
                f"The model failed. {see_log}", pb_utils.TritonError.INTERNAL
            )
        return pb_utils.TritonError(
            f"The model cannot answer these inputs. {see_log}", pb_utils.TritonError.INVALID_ARG
        )


def complete_config(backend: ModelBackend, auto: Any) -> Any:
    """Fill a config's inputs and outputs from the model, for Triton's `auto_complete_config`.

    Args:
        backend: a new backend, not initialized.
        auto: Triton's `pb_utils.ModelConfig`.

    Returns:
        `auto`, completed.
    """
    config = auto.as_dict()
    if config["input"] and config["output"]:
        return auto  # Loading the model twice would double the start-up time.
    backend.load(Path(pb_utils.get_model_dir()), config, None)
    skip = 1 if config["max_batch_size"] > 0 else 0
    for add, declared in ((auto.add_input, backend.inputs), (auto.add_output, backend.outputs)):
        for name, tensor in declared.items():
            dims = list(tensor.shape or ())[skip:]
            add({"name": name, "data_type": tensor.datatype, "dims": dims})
    return auto


def ragged_inputs(config: Mapping[str, Any]) -> frozenset[str]:
    """The names of the inputs whose width may differ between joined requests."""
    return frozenset(t["name"] for t in config["input"] if t.get("allow_ragged_batch", False))


def made_widths(config: Mapping[str, Any]) -> dict[str, str]:
    """The inputs that the server derives from ragged ones: the derived name by the ragged input.

    Raises:
        ConfigError: an input derived in a way that this backend does not support.
    """
    widths = {}
    for made in config.get("batch_input", ()):
        if (made["kind"], made["data_type"]) != ("BATCH_ITEM_SHAPE_FLATTEN", "TYPE_INT32"):
            raise ConfigError(
                f"Expected batch inputs BATCH_ITEM_SHAPE_FLATTEN of TYPE_INT32 in {config['name']!r}. "
                f"Received: {made['kind']} of {made['data_type']}."
            )
        widths[made["source_input"][0]] = made["target_name"][0]
    return widths


def check_config(
    config: Mapping[str, Any],
    inputs: Mapping[str, TensorType],
    outputs: Mapping[str, TensorType],
    *,
    flattens: bool = False,
) -> None:
    """Validate a config against the model: names, dtypes and shapes. Outputs may be omitted.

    Raises:
        ConfigError: names both sides.
    """
    flat = ragged_inputs(config) if flattens else frozenset()
    declared = {tensor["name"] for tensor in config["input"]}
    if flattens:
        declared |= set(made_widths(config).values())
    if declared != set(inputs):
        raise ConfigError(
            f"The config of {config['name']!r} declares the inputs {sorted(declared)}, "
            f"but the model has {sorted(inputs)}."
        )
    for kind, known in (("input", inputs), ("output", outputs)):
        for tensor in config[kind]:
            shape = (-1,) if tensor["name"] in flat else _shape(config, tensor)
            _check_tensor(config["name"], kind, tensor, shape, known)


def _shape(config: Mapping[str, Any], tensor: Any) -> tuple[int, ...]:
    dims = tuple(map(int, tensor.get("reshape", {}).get("shape", tensor["dims"])))
    return (-1, *dims) if config["max_batch_size"] > 0 else dims


def _check_tensor(
    model: str, kind: str, tensor: Any, shape: tuple[int, ...], known: Mapping[str, TensorType]
) -> None:
    name = tensor["name"]
    if name not in known:
        raise ConfigError(
            f"The config of {model!r} declares the {kind} {name!r}, "
            f"but the model has {sorted(known)}."
        )
    found = known[name]
    if tensor["data_type"] != found.datatype or not _same_shape(shape, found.shape):
        raise ConfigError(
            f"The config of {model!r} declares the {kind} {name!r} as {tensor['data_type']} "
            f"{list(shape)}, but the model has {found.datatype} "
            f"{'of any shape' if found.shape is None else list(found.shape)}."
        )


def _same_shape(declared: tuple[int, ...], found: tuple[int, ...] | None) -> bool:
    if found is None:
        return True
    return len(declared) == len(found) and all(
        -1 in (one, other) or one == other for one, other in zip(declared, found, strict=True)
    )


def parameter(config: Mapping[str, Any], name: str, default: str) -> str:
    """A parameter of the config, as text."""
    value = config.get("parameters", {}).get(name, {}).get("string_value", "")
    return str(value) or default


def _read_tensor(tensor: Any) -> Any:
    """An input as an array, whose booleans are 0 or 1: libraries compute with another byte as a number."""
    array = tensor.as_numpy()
    return array.view(np.uint8) != 0 if array.dtype == np.bool_ else array


def _nullable_inputs(config: Mapping[str, Any]) -> frozenset[str] | None:
    """The tensors that may contain nulls, by the exporter's config; None for a model of other inputs."""
    text = parameter(config, "inputs", "")
    if not text:
        return None
    try:
        names = [column["name"] for column in json.loads(text) if column["nullable"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"The parameter inputs of {config['name']!r}: {error!r}") from error
    return frozenset(name + half for name in names for half in ("", VALUES))


def expect_values(tensors: Tensors, nullable: Container[str]) -> None:
    """Refuse values that no exported model takes.

    Args:
        tensors: the request's tensors by name.
        nullable: the names of those that may contain nulls.

    Raises:
        RequestError: a null where none is allowed, or a string that is not UTF-8.
    """
    for name, tensor in tensors.items():
        column, takes_null = name.removesuffix(VALUES), name in nullable
        if tensor.dtype.kind == "f" and not takes_null and np.isnan(tensor).any():
            raise RequestError(f"Expected {column} without NaN, since it takes no null.")
        if tensor.dtype != object:
            continue
        for text in tensor.flat:
            if not (takes_null and text == NULL_STRING):
                try:
                    text.decode()
                except UnicodeDecodeError:
                    raise RequestError(
                        f"Expected {column} as UTF-8. Received: other bytes."
                    ) from None


def _limits(config: Mapping[str, Any]) -> dict[str, int]:
    try:
        return parse_limits(parameter(config, "limits", "{}"))
    except ValueError as error:
        raise ConfigError(f"The parameter limits of {config['name']!r}: {error}") from error


def thread_count(config: Mapping[str, Any], name: str, default: int) -> int:
    """A parameter of the config that is a number of threads.

    Raises:
        ConfigError: it is not a whole number of at least 0.
    """
    text = parameter(config, name, str(default))
    if not text.isdecimal():
        raise ConfigError(
            f"Expected the parameter {name} of {config['name']!r} as a number of threads. "
            f"Received: {text!r}."
        )
    return int(text)
