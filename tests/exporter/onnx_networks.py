"""ONNX networks as converters make them, by hand."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

# The weights of up to four columns.
LINEAR = np.array([[0.5], [-1.0], [2.0], [0.125]], np.float32)


def model_of(
    nodes, inputs, outputs, constants=(), *, dtype=TensorProto.FLOAT, opset=18, ml=0, **others
):
    """A model of operations, with the shapes of its inputs and outputs by name."""
    graph = helper.make_graph(
        nodes,
        "main_graph",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [
            helper.make_tensor_value_info(name, others.get(name, dtype), shape)
            for name, shape in outputs.items()
        ],
        constants,
    )
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid("ai.onnx.ml", ml)] * bool(ml)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _scored(features, width):
    """Operations that make a score of features, and a label as trees have it, (N)."""
    nodes = [
        helper.make_node("Gemm", [features, "weight", "bias"], ["score"]),
        helper.make_node("Greater", ["score", "zero"], ["above"]),
        helper.make_node("Cast", ["above"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["wide", "flat"], ["label"]),
    ]
    constants = {
        "weight": LINEAR[:width],
        "bias": np.array([0.25], np.float32),
        "zero": np.zeros(1, np.float32),
        "flat": np.array([-1]),
    }
    return nodes, [numpy_helper.from_array(array, name) for name, array in constants.items()]


def matrix(width, opset=18, rows="N"):
    """A network of one matrix, `features`, as torch.onnx.export writes one."""
    nodes, constants = _scored("features", width)
    outputs = {"score": [rows, 1], "label": [rows]}
    return model_of(
        nodes,
        {"features": [rows, width]},
        outputs,
        constants,
        opset=opset,
        label=TensorProto.INT64,
    )


def named():
    """A network of two named columns, `user` and `price`."""
    nodes, constants = _scored("joined", 2)
    joined = helper.make_node("Concat", ["user", "price"], ["joined"], axis=1)
    return model_of(
        [joined, *nodes],
        {"user": ["N", 1], "price": ["N", 1]},
        {"score": ["N", 1], "label": ["N"]},
        constants,
        label=TensorProto.INT64,
    )
