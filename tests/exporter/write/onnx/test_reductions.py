"""Reductions of requests without rows, along axes that a network counts from the back."""

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from exporter.write.onnx.model import OnnxModel
from exporter.write.onnx.network import network_to_onnx
from exporter.write.onnx.reductions import with_axes_from_the_front
from training.network.keras_network import KerasNetwork


def answers(model, rows):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)})


def test_a_keras_network_of_reductions_answers_no_rows(tmp_path):
    x = keras.Input((3,), name="x")
    mean = keras.ops.mean(x, axis=-1)
    outputs = {
        "layer": keras.layers.Dense(1)(mean[:, None]),
        "total": keras.ops.sum(x, axis=-1, keepdims=True),
        "places": keras.ops.argmax(keras.ops.cast(x, "int32"), axis=-1, keepdims=True),
    }
    network_to_onnx(KerasNetwork(keras.Model({"x": x}, outputs), {})).write(tmp_path)
    model = str(tmp_path / "model.onnx")
    assert [answer.shape for answer in answers(model, 0)] == [(0, 1)] * 3
    np.testing.assert_array_equal(answers(model, 2)[2], [[3], [12]])


LAST = numpy_helper.from_array(np.array([-1]), "axes")
FORMS = {
    "attribute": (11, [], {"axes": [-1]}),
    "initializer": (18, [], {}),
    "constant": (18, [helper.make_node("Constant", [], ["axes"], value=LAST)], {}),
    "numbers": (18, [helper.make_node("Constant", [], ["axes"], value_ints=[-1])], {}),
}


def network(nodes, opset=18, constants=()):
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", 3])],
        [onnx.ValueInfoProto(name="y")],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceL2"])
@pytest.mark.parametrize("form", FORMS)
def test_axes_count_from_the_front_in_each_form(form, operator):
    opset, before, attributes = FORMS[form]
    inputs = ["x"] if attributes else ["x", "axes"]
    reduction = helper.make_node(operator, inputs, ["y"], keepdims=0, **attributes)
    proto = network([*before, reduction], opset, [LAST] if form == "initializer" else [])
    (expected,) = answers(proto.SerializeToString(), 2)
    changed = with_axes_from_the_front(OnnxModel(proto)).proto.SerializeToString()
    np.testing.assert_array_equal(answers(changed, 2)[0], expected)
    assert answers(changed, 0)[0].shape == (0,)


@pytest.mark.parametrize(("operator", "place"), [("ArgMax", 2), ("ArgMin", 0)])
def test_places_in_no_rows_are_none(operator, place):
    proto = network([helper.make_node(operator, ["x"], ["y"], axis=-1)])
    changed = with_axes_from_the_front(OnnxModel(proto)).proto.SerializeToString()
    np.testing.assert_array_equal(answers(changed, 2)[0], [[place], [place]])
    assert answers(changed, 0)[0].shape == (0, 1)


def test_axes_that_a_network_computes_stay():
    nodes = [
        helper.make_node("Identity", ["last"], ["axes"]),
        helper.make_node("ReduceMax", ["x", "axes"], ["y"]),
    ]
    proto = network(nodes, constants=[numpy_helper.from_array(np.array([-1]), "last")])
    assert with_axes_from_the_front(OnnxModel(proto)).proto == proto
