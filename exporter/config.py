"""config.pbtxt from a `ModelSpec`, through Triton's own protobuf message."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from exporter.errors import ExportError
from exporter.model_spec import ModelSpec, Tensor
from workflow.schema import DTYPES


def config_text(model: ModelSpec, versions: Iterable[int] = ()) -> str:
    """The config of a model, complete, so that the server has nothing to guess.

    Args:
        model: the model.
        versions: older versions of the same inputs and outputs that stay loadable.

    Example:
        >>> config_text(ModelSpec("m", 1, (Tensor("x", "int64"),), (Tensor("y", "float32"),))).splitlines()[0]
        'name: "m"'
    """
    config = pb.ModelConfig(name=model.name, platform=model.platform, backend=model.backend)
    config.version_policy.specific.versions.extend(sorted({*versions, model.version}))
    config.input.extend(_tensor(pb.ModelInput, tensor) for tensor in model.inputs)
    config.output.extend(_tensor(pb.ModelOutput, tensor) for tensor in model.outputs)
    if model.instances:
        kind = pb.ModelInstanceGroup.Kind.Value(model.instance_kind)
        config.instance_group.add(name=model.name, count=model.instances, kind=kind)
    for name, value in model.parameters.items():
        config.parameters[name].string_value = value
    for step in model.steps:
        entry = config.ensemble_scheduling.step.add(
            model_name=step.model, model_version=step.version
        )
        entry.input_map.update(step.inputs)
        entry.output_map.update(step.outputs)
    # Protobuf leaves zeros out; a reader of the file should see that rows are a dimension of ours.
    return str(text_format.MessageToString(config)) + "max_batch_size: 0\n"


def _tensor(message: Any, tensor: Tensor) -> Any:
    data_type = pb.DataType.Value(DTYPES[tensor.dtype].triton_config)
    return message(name=tensor.name, data_type=data_type, dims=tensor.dims)


def parse_config(text: str) -> Any:
    """The `ModelConfig` message of a config.pbtxt.

    Raises:
        google.protobuf.text_format.ParseError: text that is no config; it names line and field.
    """
    return text_format.Parse(text, pb.ModelConfig())


def read_config(path: Path) -> Any:
    """The `ModelConfig` message of a config.pbtxt that lies in a repository.

    Raises:
        ExportError: the file is no config; the text names line and field.
    """
    try:
        return parse_config(path.read_text(encoding="utf-8"))
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ExportError(f"Expected a model's config in {path}. Received: {error}.") from error
