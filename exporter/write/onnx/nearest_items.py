"""The search for the nearest items in ONNX: a product with all items, and the largest of it."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from exporter.write.onnx.model import OnnxModel, Table
from training.network.nearest_items import NearestNetwork
from workflow.expressions.onnx import OPSET

_VECTORS = "items/vectors"


def nearest_to_onnx(network: NearestNetwork) -> OnnxModel:
    """The search alone, from the tower's vector."""
    name, width = network.vector.name, network.items.width
    vector = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width])
    graph = helper.make_graph([], "nearest_items", [vector], [])
    opsets = [helper.make_opsetid("", OPSET)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return with_nearest_items(OnnxModel(proto), network)


def with_nearest_items(tower: OnnxModel, network: NearestNetwork) -> OnnxModel:
    """A tower with the search in place of its output.

    Of equal scores ONNX' TopK gives the one with the lower index first. It has one row of zeros where a
    request has none, for which onnxruntime before 1.31 divides by zero, which ends the server.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(tower.proto)
    graph, ids = proto.graph, network.items.ids
    vector, zero = network.vector.name, "items/zero"
    is_text = ids.dtype == object
    graph.initializer.extend(
        [
            numpy_helper.from_array(np.array([network.k], np.int64), "items/k"),
            numpy_helper.from_array(np.zeros(1, np.int64), zero),
            helper.make_tensor("items/ids", TensorProto.STRING, [len(ids)], [*map(str.encode, ids)])
            if is_text
            else numpy_helper.from_array(ids, "items/ids"),
        ]
    )
    graph.node.extend(
        [
            helper.make_node("Shape", [vector], ["items/shape"]),
            helper.make_node("Gather", ["items/shape", zero], ["items/rows"]),
            helper.make_node("Equal", ["items/rows", zero], ["items/none"]),
            helper.make_node("Cast", ["items/none"], ["items/more"], to=TensorProto.INT64),
            helper.make_node("Concat", [zero, zero, "items/more", zero], ["items/pads"], axis=0),
            helper.make_node("Pad", [vector, "items/pads"], ["items/vector"]),
            helper.make_node("MatMul", ["items/vector", _VECTORS], ["items/scores"]),
            helper.make_node("TopK", ["items/scores", "items/k"], ["items/best", "items/found"]),
            helper.make_node("Slice", ["items/best", zero, "items/rows", zero], ["score"]),
            helper.make_node("Slice", ["items/found", zero, "items/rows", zero], ["items/places"]),
            helper.make_node("Gather", ["items/ids", "items/places"], ["item"]),
        ]
    )
    kinds = (TensorProto.STRING if is_text else TensorProto.INT64, TensorProto.FLOAT)
    del graph.output[:]
    graph.output.extend(
        helper.make_tensor_value_info(spec.name, kind, ["N", network.k])
        for spec, kind in zip(network.signature.outputs, kinds, strict=True)
    )
    vectors = network.items.vectors
    table = Table(vectors.T.shape, lambda: np.ascontiguousarray(vectors.T))
    return OnnxModel(proto, {**tower.tables, _VECTORS: table})
