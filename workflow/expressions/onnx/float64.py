"""Numbers of float64 that onnxruntime would round to float32 when it simplifies a graph."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0}
# What a session of an unchanged graph has to leave out.
ROUNDING_OPTIMIZERS = ("NoopElimination", "MatMulScaleFusion")


def keep_float64(graph: onnx.GraphProto) -> None:
    """Spread single float64 numbers over the rows where onnxruntime would round them.

    Its NoopElimination leaves out `x * (1 + 1e-10)` and `x + 1e-300`, since it compares a constant
    with 1 or 0 as a float32. Its MatMulScaleFusion makes a factor beside a matrix product a float32.
    Both concern constants of one number alone, given or computed from constants.

    Args:
        graph: modified in place.
    """
    constants: dict[str, TensorProto | None] = {t.name: t for t in graph.initializer}
    _add_computed(graph, constants)
    if not _has_float64(graph, constants):
        return
    scales = any(node.op_type == "MatMul" for node in graph.node)
    spread: dict[str, onnx.NodeProto] = {}
    nodes = []
    for node in graph.node:
        neutral = _NEUTRAL.get(node.op_type)
        places = [place for place, name in enumerate(node.input) if name in constants]
        if neutral is not None and len(places) == 1:
            name, other = node.input[places[0]], node.input[1 - places[0]]
            if _rounds(constants[name], neutral, scales=scales):
                shape, rows = f"/float64/{other}", f"/float64/{name}/{other}"
                for new_node in (
                    helper.make_node("Shape", [other], [shape], shape),
                    helper.make_node("Expand", [name, shape], [rows], rows),
                ):
                    if new_node.name not in spread:
                        spread[new_node.name] = new_node
                        nodes.append(new_node)
                node.input[places[0]] = rows
        nodes.append(node)
    if spread:
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)


def _add_computed(graph: onnx.GraphProto, constants: dict[str, TensorProto | None]) -> None:
    """Add the results of operations on constants, of which onnxruntime makes constants."""
    for node in graph.node:
        if node.op_type == "Constant":
            values = (each.t for each in node.attribute if each.name == "value")
            constants[node.output[0]] = next(values, None)
        elif node.input and all(name in constants for name in node.input):
            constants |= dict.fromkeys(node.output)


def _has_float64(graph: onnx.GraphProto, constants: Mapping[str, TensorProto | None]) -> bool:
    casts = (a.i for n in graph.node if n.op_type == "Cast" for a in n.attribute)
    tensors = (tensor.data_type for tensor in constants.values() if tensor is not None)
    inputs = (info.type.tensor_type.elem_type for info in graph.input)
    return TensorProto.DOUBLE in {*casts, *tensors, *inputs}


def _rounds(constant: TensorProto | None, neutral: float, *, scales: bool) -> bool:
    """Whether a constant is, or may be, one float64 that changes as a float32."""
    if constant is None:
        return True
    if constant.data_type != TensorProto.DOUBLE or math.prod(constant.dims) != 1:
        return False
    value = numpy_helper.to_array(constant).item()
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))  # as a float32, NumPy 2 would round `value` to compare
    return bool(value != rounded and (scales or rounded == neutral))
