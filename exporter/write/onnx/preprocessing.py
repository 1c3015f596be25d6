"""A pipeline's preprocessing, and relays of lists between two layouts, as ONNX models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx

from exporter.errors import ExportError
from exporter.plan.model_spec import ModelSpec, ModelTensor
from exporter.plan.pipeline import Pipeline, relay
from exporter.write.onnx.model import OnnxModel, fuse
from workflow import WorkflowError
from workflow.expressions.language.types import ExpressionError
from workflow.expressions.onnx import WIDTHS_SUFFIX, Rows, to_onnx
from workflow.wire.format import WireColumn


def onnx_spec(
    name: str, pipeline: Pipeline, inputs: tuple[ModelTensor, ...], outputs: tuple[ModelTensor, ...]
) -> ModelSpec:
    """A model of Triton's onnxruntime backend."""
    options = pipeline.options
    return ModelSpec(
        name=name,
        version=pipeline.version,
        backend="onnxruntime",
        inputs=inputs,
        outputs=outputs,
        # More threads would spin while they wait, which halves the throughput of such models.
        parameters={"intra_op_thread_count": "1"},
        instances=options.network_instances,
        instance_kind=options.network_kind,
        max_batch_size=options.max_batch_size,
        queue=options.queue,
        widths={t.name + WIDTHS_SUFFIX: t.name for t in inputs if t.ragged},
    )


def preprocessing_to_onnx(
    pipeline: Pipeline,
    outputs: tuple[WireColumn, ...],
    order: Sequence[str] = (),
    *,
    rows: Rows = "unknown",
) -> onnx.ModelProto:
    """The preprocessing, from the client's columns to the given columns.

    Args:
        pipeline: the subject of the export.
        outputs: the columns to make.
        order: the order in which a network joins its inputs.
        rows: as in `to_onnx`.

    Raises:
        ExportError: an operation that ONNX lacks.
    """
    program = pipeline.features.program
    places = {name: place for place, name in enumerate(order)}
    ordered = sorted(program.outputs, key=lambda output: places.get(output[0].name, len(places)))
    program = replace(program, outputs=tuple(ordered))
    try:
        return to_onnx(program, pipeline.client_columns, outputs, rows=rows)
    except (WorkflowError, ExpressionError) as error:
        runtimes = pipeline.without_onnx
        raise ExportError(f"{error}{runtimes and f' Use {runtimes}.'}") from error


def with_padded_lists(pipeline: Pipeline, network: OnnxModel) -> OnnxModel:
    """The network with lists as inputs in the layout in which they travel between steps."""
    travelling, taken = pipeline.unpadded
    if not taken:
        return network
    return fuse(to_onnx(relay(taken), travelling, taken, name="lists"), network)
