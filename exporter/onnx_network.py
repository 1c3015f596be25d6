"""A Keras model as an ONNX model, by way of tf2onnx.

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
from exporter.onnx_model import OnnxModel, Table, rename
from training.quiet import quiet
from training.saved_model import network_function
from training.signature import ModelSignature

OPSET = 18
# Weights with more bytes are left out of the conversion.
LARGE = 100_000
ADVICE = 'Use runtime="tensorflow" or runtime="fused_tensorflow", which run every Keras model.'


def network_to_onnx(model: keras.Model, signature: ModelSignature) -> OnnxModel:
    """A Keras model in inference mode, its inputs and outputs named as in its signature.

    Raises:
        ExportError: tf2onnx is not installed, or cannot convert an operation of the model.
    """
    strings = [spec.name for spec in signature.inputs if spec.dtype == "string"]
    if strings:
        raise ExportError(
            "Expected a network without strings, which ONNX has no operations for. "
            f"Received: the inputs {', '.join(strings)}. {ADVICE}"
        )
    large = [v for v in model.variables if np.prod(v.shape) * 4 > LARGE]
    inputs = [
        tf.TensorSpec(s.shape, s.dtype, name=f"in{n}") for n, s in enumerate(signature.inputs)
    ]
    tables = [tf.TensorSpec(v.shape, v.dtype, name=f"table{n}") for n, v in enumerate(large)]
    call = network_function(model, signature)

    def serve(*tensors: Any) -> list[Any]:
        given = dict(zip((s.name for s in signature.inputs), tensors, strict=False))
        swapped = zip(large, tensors[len(given) :], strict=True)
        with keras.StatelessScope(state_mapping=list(swapped)):
            answer = call(**given)
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
                function, specs, opset=OPSET, custom_op_handlers=_handlers()
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


def _handlers() -> dict[str, Any]:
    """Conversions of our own: tf2onnx's sum over segments takes no empty lists, and it lacks Erfc."""
    return {"SparseSegmentSumWithNumSegments": (_sum_segments, []), "Erfc": (_erfc, [])}


def _erfc(graph: Any, node: Any, name: str, _: Any) -> None:
    """1 - erf(x), which the gelu activation needs."""
    output = node.output[0]
    shape, dtype = graph.get_shape(output), graph.get_dtype(output)
    graph.remove_node(node.name)
    one = np.ones(1, onnx.helper.tensor_dtype_to_np_dtype(dtype))
    erf = graph.make_node("Erf", [node.input[0]]).output[0]
    constant = graph.make_const(f"{name}/one", one).output[0]
    graph.make_node("Sub", [constant, erf], outputs=[output], shapes=[shape], dtypes=[dtype])


def _sum_segments(graph: Any, node: Any, name: str, _: Any) -> None:
    """The rows of `data` that `indices` name, added up by segment, as a scatter onto zeros."""
    data, indices, segments, count = node.input
    output, dtype = node.output[0], graph.get_dtype(node.output[0])
    shape = graph.get_shape(output)
    graph.remove_node(node.name)

    def add(operator: str, *inputs: str, **attributes: Any) -> str:
        return str(graph.make_node(operator, list(inputs), attr=attributes).output[0])

    def vector(label: str, *values: int) -> str:
        return str(graph.make_const(f"{name}/{label}", np.array(values, np.int64)).output[0])

    as_int64 = {"to": onnx.TensorProto.INT64}
    rows = add("Reshape", add("Cast", count, **as_int64), vector("one", 1))
    width = add("Slice", add("Shape", data), vector("from", 1), vector("to", 2**31))
    zeros = add("Expand", _zero(graph, name, dtype), add("Concat", rows, width, axis=0))
    places = add("Reshape", add("Cast", segments, **as_int64), vector("column", -1, 1))
    added = add("Gather", data, add("Cast", indices, **as_int64))
    graph.make_node(
        "ScatterND",
        [zeros, places, added],
        attr={"reduction": "add"},
        outputs=[output],
        shapes=[shape],
        dtypes=[dtype],
    )


def _zero(graph: Any, name: str, dtype: int) -> str:
    """A constant 0 of one of ONNX's types."""
    zero = np.zeros(1, onnx.helper.tensor_dtype_to_np_dtype(dtype))
    return str(graph.make_const(f"{name}/zero", zero).output[0])
