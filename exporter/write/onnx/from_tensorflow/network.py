"""A network of TensorFlow as an ONNX model, by tf2onnx."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from exporter.errors import ExportError
from exporter.write.onnx.from_tensorflow.canonical import canonical
from exporter.write.onnx.from_tensorflow.freeze_network import FrozenGraph, freeze
from exporter.write.onnx.from_tensorflow.tf2onnx_fixes import HANDLERS, KEPT_CAST
from exporter.write.onnx.model import OnnxModel, Table, rename, subgraphs
from training.network.network import TensorFlowNetwork
from training.quiet import quiet
from workflow.errors import in_a_line
from workflow.expressions.onnx import OPSET
from workflow.schema.names import listed

ADVICE = 'Use runtime="tensorflow" or runtime="fused_tensorflow", which run every Keras model.'


def convert_network(network: TensorFlowNetwork) -> OnnxModel:
    """A network in inference mode, its inputs and outputs named as in its signature.

    Raises:
        ExportError: tf2onnx is not installed, or cannot convert an operation of the model.
    """
    signature = network.signature
    strings = [spec.name for spec in signature.inputs if spec.dtype == "string"]
    if strings:
        raise ExportError(
            "Expected a network without strings, which ONNX has no operations for. "
            f"Received: the inputs {listed(strings)}. {ADVICE}"
        )
    inputs = [
        tf.TensorSpec(s.shape, s.dtype, name=f"in{n}") for n, s in enumerate(signature.inputs)
    ]

    def serve(*tensors: Any) -> list[Any]:
        arguments = dict(zip((spec.name for spec in signature.inputs), tensors, strict=True))
        answer = network.call(**arguments)
        # An output that is also an input, or occurs twice, would have no separate name.
        return [tf.identity(answer[spec.name]) for spec in signature.outputs]

    frozen, converted = _convert(tf.function(serve, autograph=False), inputs)
    names = {f"{spec.name}:0": own.name for spec, own in zip(inputs, signature.inputs, strict=True)}
    names |= dict(zip(frozen.outputs, (spec.name for spec in signature.outputs), strict=True))
    return canonical(_named(converted, names, frozen.tables))


def _named(
    converted: onnx.ModelProto, names: Mapping[str, str], large: Mapping[str, Any]
) -> OnnxModel:
    """The converted model with the signature's names, and with its tables no longer inputs."""
    public_names = set(names.values())

    def renamed(name: str) -> str:
        return names.get(name) or (f"/{name}" if name in public_names else name)

    graph = rename(converted.graph, renamed)
    variables = {renamed(name): variable for name, variable in large.items()}
    present = [tensor.name for tensor in graph.input if tensor.name in variables]
    inputs = [tensor for tensor in graph.input if tensor.name not in variables]
    del graph.input[:]
    graph.input.extend(inputs)
    converted.graph.CopyFrom(graph)
    tables = {
        name: Table(tuple(variables[name].shape), partial(_array, variables[name]))
        for name in present
    }
    return OnnxModel(converted, tables)


def _array(variable: Any) -> Any:
    return np.asarray(variable.read_value())


def _convert(function: Any, specs: list[Any]) -> tuple[FrozenGraph, onnx.ModelProto]:
    try:
        import tf2onnx.convert  # noqa: PLC0415 - a separate extra
    except ImportError as error:
        raise ExportError(
            "Expected the package tf2onnx for this runtime. Received: none. Install the extra [onnx]."
        ) from error
    try:
        # tf2onnx logs each step, and each failed optimisation; TensorFlow logs deprecated calls.
        with quiet("tf2onnx", logging.CRITICAL), quiet("tensorflow", logging.ERROR):
            frozen = freeze(function.get_concrete_function(*specs))
            _expect_no_bfloat16(frozen.graph)
            model, _ = tf2onnx.convert.from_graph_def(
                frozen.graph,
                input_names=[*(f"{spec.name}:0" for spec in specs), *frozen.tables],
                output_names=frozen.outputs,
                opset=OPSET,
                custom_op_handlers=HANDLERS,
                # Those that the optimiser must not see, without which paddings would be wrong.
                shape_override={name: [*v.shape] for name, v in frozen.tables.items()},
            )
    except ExportError:
        raise
    except Exception as error:  # tf2onnx raises errors of any type
        raise ExportError(
            f"Expected a network that tf2onnx can convert. Received: {in_a_line(error)} {ADVICE}"
        ) from error
    for node in _nodes(model.graph):
        if node.op_type == KEPT_CAST:
            node.op_type = "Cast"
    _expect_standard(model)
    return frozen, model


def _expect_no_bfloat16(graph: Any) -> None:
    """Refuse bfloat16, which tf2onnx takes for float16, of another range."""
    nodes = [
        node
        for node in graph.node
        if any(attribute.type == types_pb2.DT_BFLOAT16 for attribute in node.attr.values())
    ]
    if nodes:
        # One that computes, whose name has its layer's, rather than a cast of the whole model's inputs.
        node = min(nodes, key=lambda node: "T" not in node.attr)
        raise ExportError(
            f"Expected a network without bfloat16 for an ONNX runtime. Received: {node.name}. Give "
            f"its layer the dtype policy float32 or mixed_float16. {ADVICE}"
        )


def _expect_standard(model: onnx.ModelProto) -> None:
    """Refuse operations that tf2onnx could not convert, and left with TensorFlow's name."""
    unknown = sorted(
        {
            node.op_type
            for node in _nodes(model.graph)
            if node.domain or not onnx.defs.has(node.op_type, OPSET)
        }
    )
    if unknown:
        raise ExportError(
            "Expected a network of operations that ONNX has. "
            f"Received: TensorFlow's {', '.join(unknown)}. {ADVICE}"
        )


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The operations of a graph, and those inside of its loops and branches."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from _nodes(inner)
