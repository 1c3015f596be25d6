"""A network as an ONNX model, by way of tf2onnx.

Converting constants is what takes tf2onnx long, so large weights are inputs of the function that
it converts, and become initializers afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import keras
import numpy as np
import onnx
import tensorflow as tf

from exporter.errors import ExportError
from exporter.network import Network
from exporter.onnx_conversions import HANDLERS
from exporter.onnx_model import OnnxModel, Table, rename
from training.quiet import quiet

OPSET = 18
# Weights with more bytes are left out of the conversion.
LARGE = 100_000
# The conversion of larger constants takes minutes.
MOST_FROZEN = 64_000_000
ADVICE = 'Use runtime="tensorflow" or runtime="fused_tensorflow", which run every Keras model.'


def network_to_onnx(network: Network) -> OnnxModel:
    """A network in inference mode, its inputs and outputs named as in its signature.

    Raises:
        ExportError: tf2onnx is not installed, cannot convert an operation of the model, or would
            take minutes.
    """
    signature = network.signature
    if network.frozen_bytes > MOST_FROZEN:
        raise ExportError(
            f"Expected weights up to {MOST_FROZEN / 1e6:.0f} MB in a SavedModel, since they take part "
            f"in the conversion to ONNX. Received: {network.frozen_bytes / 1e6:,.0f} MB. Give the Keras "
            'model or its .keras file, or use runtime="tensorflow" or runtime="fused_tensorflow".'
        )
    strings = [spec.name for spec in signature.inputs if spec.dtype == "string"]
    if strings:
        raise ExportError(
            "Expected a network without strings, which ONNX has no operations for. "
            f"Received: the inputs {', '.join(strings)}. {ADVICE}"
        )
    large = [v for v in network.variables if np.prod(v.shape) * 4 > LARGE]
    inputs = [
        tf.TensorSpec(s.shape, s.dtype, name=f"in{n}") for n, s in enumerate(signature.inputs)
    ]
    tables = [tf.TensorSpec(v.shape, v.dtype, name=f"table{n}") for n, v in enumerate(large)]

    def serve(*tensors: Any) -> list[Any]:
        given = dict(zip((s.name for s in signature.inputs), tensors, strict=False))
        swapped = zip(large, tensors[len(given) :], strict=True)
        with keras.StatelessScope(state_mapping=list(swapped)):
            answer = network.call(**given)
        return [answer[spec.name] for spec in signature.outputs]

    converted = _convert(tf.function(serve, autograph=False), [*inputs, *tables])
    names = {spec.name: own.name for spec, own in zip(inputs, signature.inputs, strict=True)}
    converted_outputs = [output.name for output in converted.graph.output]
    names |= dict(zip(converted_outputs, (s.name for s in signature.outputs), strict=True))
    return _named(converted, names, dict(zip((t.name for t in tables), large, strict=True)))


def _named(
    converted: onnx.ModelProto, names: Mapping[str, str], large: Mapping[str, Any]
) -> OnnxModel:
    """The converted model under the signature's names, its tables no inputs any more."""
    taken = set(names.values())

    def renamed(name: str) -> str:
        return names.get(name) or (f"/{name}" if name in taken else name)

    graph = rename(converted.graph, renamed)
    present = [tensor.name for tensor in graph.input if tensor.name in large]
    kept = [tensor for tensor in graph.input if tensor.name not in large]
    del graph.input[:]
    graph.input.extend(kept)
    converted.graph.CopyFrom(graph)
    tables: dict[str, Table] = {name: partial(_array, large[name]) for name in present}
    return OnnxModel(converted, tables)


def _array(variable: Any) -> Any:
    return np.asarray(variable.value.read_value())


def _convert(function: Any, specs: list[Any]) -> onnx.ModelProto:
    try:
        import tf2onnx.convert  # noqa: PLC0415 - an extra of its own
    except ImportError as error:
        raise ExportError(
            "Expected the package tf2onnx for this runtime. Received: none. Install the extra [onnx]."
        ) from error
    try:
        # It logs each step, and each optimisation of its that failed.
        with quiet("tf2onnx", logging.CRITICAL):
            model, _ = tf2onnx.convert.from_function(
                function, specs, opset=OPSET, custom_op_handlers=HANDLERS
            )
    except Exception as error:  # tf2onnx raises whatever it meets
        text = " ".join(str(error).split())[:300]
        raise ExportError(
            f"Expected a network that tf2onnx can convert. Received: {text}. {ADVICE}"
        ) from error
    _expect_standard(model)
    return model


def _expect_standard(model: onnx.ModelProto) -> None:
    """tf2onnx leaves what it cannot convert under TensorFlow's name."""
    unknown = sorted(
        {
            node.op_type
            for node in model.graph.node
            if node.domain or not onnx.defs.has(node.op_type, OPSET)
        }
    )
    if unknown:
        raise ExportError(
            "Expected a network of operations that ONNX has. "
            f"Received: TensorFlow's {', '.join(unknown)}. {ADVICE}"
        )
