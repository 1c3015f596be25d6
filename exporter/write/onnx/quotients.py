"""Quotients and remainders of whole numbers by -1, and of none by 0.

Dividing the smallest number of a dtype by -1 ends the process, and so the server, up to onnxruntime 1.31
or later. It also fails if no number is divided by one 0, as where tf2onnx counts the columns of empty lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from exporter.write.onnx.model import OnnxModel
from exporter.write.onnx.reductions import constants_of

# Narrower numbers are divided as int32, and unsigned ones are not negative.
_ENDING = (TensorProto.INT32, TensorProto.INT64)


def with_safe_quotients(model: OnnxModel) -> OnnxModel:
    """An equal model that does not divide whole numbers by -1, and no numbers by 0; those in loops stay."""
    divided = [n for n in model.proto.graph.node if n.op_type in ("Div", "Mod") and not n.domain]
    constants = constants_of(model.proto.graph, {node.input[1] for node in divided})
    asked = {
        node.output[0]
        for node in divided
        if node.input[1] not in constants or (constants[node.input[1]] == -1).any()
    }
    if not asked:
        return model
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    graph = onnx.shape_inference.infer_shapes(proto).graph
    dtypes = {t.name: t.type.tensor_type.elem_type for t in (*graph.value_info, *graph.output)}
    asked = {name for name in asked if dtypes.get(name) in _ENDING}
    nodes: list[onnx.NodeProto] = []
    for node in model.proto.graph.node:
        own = node.output[0] if node.output else ""
        nodes += _guarded(node, dtypes[own], constants) if own in asked else [node]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    return OnnxModel(proto, model.tables)


def _guarded(
    node: onnx.NodeProto, dtype: int, constants: Mapping[str, Any]
) -> Iterator[onnx.NodeProto]:
    """The operation by 1 in place of -1; a quotient by -1 is the number with the other sign."""
    own, (number, divisor) = node.output[0], node.input
    one, minus, is_minus, safe = (f"{own}/{part}" for part in ("one", "minus", "is minus", "safe"))
    zero, zeros, each = (f"{own}/{part}" for part in ("zero", "zeros", "each"))
    for name, value in ((zero, 0), (one, 1), (minus, -1)):
        array = np.array(value, helper.tensor_dtype_to_np_dtype(dtype))
        yield helper.make_node("Constant", [], [name], name, value=numpy_helper.from_array(array))
    if divisor not in constants:  # one for each number, so none for none
        yield helper.make_node("Mul", [number, zero], [zeros], zeros)
        yield helper.make_node("Add", [divisor, zeros], [each], each)
        divisor = each
    yield helper.make_node("Equal", [divisor, minus], [is_minus], is_minus)
    yield helper.make_node("Where", [is_minus, one, divisor], [safe], safe)
    changed = onnx.NodeProto()
    changed.CopyFrom(node)
    changed.input[1] = safe
    if node.op_type == "Mod":  # by 1 and by -1 nothing is left
        yield changed
        return
    changed.name = changed.output[0] = f"{own}/quotient"
    yield changed
    yield helper.make_node("Neg", [number], [f"{own}/negative"], f"{own}/negative")
    yield helper.make_node("Where", [is_minus, f"{own}/negative", f"{own}/quotient"], [own], own)
