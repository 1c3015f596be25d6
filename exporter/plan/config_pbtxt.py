"""config.pbtxt from a `ModelSpec`, by Triton's own protobuf message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from exporter.errors import ExportError
from exporter.plan.model_spec import ModelSpec, ModelTensor, Queue, WarmUpTensor
from workflow.schema.dtypes import DTYPES


def config_text(model: ModelSpec, versions: Iterable[int] = ()) -> str:
    """The complete config of a model, so that the server infers nothing.

    Args:
        model: the model.
        versions: the versions that can be loaded; by default all that exist.

    Example:
        >>> config_text(ModelSpec("m", 1, (ModelTensor("x", "int64"),), (ModelTensor("y", "float32"),))).splitlines()[0]
        'name: "m"'
    """
    config = pb.ModelConfig(name=model.name, platform=model.platform, backend=model.backend)
    if listed := sorted(versions):
        config.version_policy.specific.versions.extend(listed)
    else:
        config.version_policy.all.SetInParent()
    config.max_batch_size = model.max_batch_size
    config.input.extend(_tensor(pb.ModelInput, tensor, model) for tensor in model.inputs)
    for entry, tensor in zip(config.input, model.inputs, strict=True):
        entry.allow_ragged_batch = tensor.ragged
    config.output.extend(_tensor(pb.ModelOutput, tensor, model) for tensor in model.outputs)
    for target, source in model.widths.items():
        config.batch_input.add(
            kind=pb.BatchInput.BATCH_ITEM_SHAPE_FLATTEN,
            target_name=[target],
            data_type=pb.TYPE_INT32,
            source_input=[source],
        )
    if model.queue is not None and model.max_batch_size:
        _set_queue(config.dynamic_batching, model.queue)
    if model.response_cache:
        config.response_cache.enable = True
    for number, request in enumerate(model.warm_up):
        # Triton skips a warm-up of batch size 0, even if requests are not joined.
        _set_warm_up(config.model_warmup.add(name=f"row {number}", batch_size=1), request)
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
    text = str(text_format.MessageToString(config))
    # Protobuf omits zeros; readers of the file should see that rows are an explicit dimension.
    return text if model.max_batch_size else f"{text}max_batch_size: 0\n"


def _tensor(message: Any, tensor: ModelTensor, model: ModelSpec) -> Any:
    data_type = pb.DataType.Value(DTYPES[tensor.dtype].triton_config)
    dims = tensor.dims[1:] if model.max_batch_size else tensor.dims
    return message(name=tensor.name, data_type=data_type, dims=dims)


def _set_queue(batching: Any, queue: Queue) -> None:
    # An empty message matters as well: it makes the server join requests.
    batching.SetInParent()
    batching.max_queue_delay_microseconds = queue.delay_us
    if queue.size or queue.timeout_us:
        batching.default_queue_policy.max_queue_size = queue.size
        batching.default_queue_policy.default_timeout_microseconds = queue.timeout_us


def _set_warm_up(warm_up: Any, request: Mapping[str, WarmUpTensor]) -> None:
    for name, tensor in request.items():
        entry = warm_up.inputs[name]
        entry.data_type = pb.DataType.Value(DTYPES[tensor.dtype].triton_config)
        entry.dims.extend(tensor.dims)
        entry.input_data_file = tensor.file


def parse_config(text: str) -> Any:
    """The `ModelConfig` message of a config.pbtxt.

    Raises:
        google.protobuf.text_format.ParseError: invalid text; names line and field.
    """
    return text_format.Parse(text, pb.ModelConfig())


def read_config(path: Path) -> Any:
    """The `ModelConfig` message of a config.pbtxt in a repository.

    Raises:
        ExportError: the file is not a config; the text names line and field.
    """
    try:
        return parse_config(path.read_text(encoding="utf-8"))
    except (text_format.ParseError, UnicodeDecodeError) as error:
        reason = str(error).rstrip(".")
        raise ExportError(f"Expected a model's config in {path}. Received: {reason}.") from error
