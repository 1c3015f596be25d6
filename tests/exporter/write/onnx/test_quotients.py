"""Divisions of whole numbers that end the process in onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx_networks import model_of

from exporter.write.onnx.model import OnnxModel
from exporter.write.onnx.quotients import with_safe_quotients

DIVISORS = np.array([[-1], [2], [-1], [-2]])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize(
    ("operator", "attributes"), [("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1})]
)
def test_the_least_number_is_divided_by_minus_one(operator, attributes, is_constant, dtype):
    sent = {
        "x": np.array([[np.iinfo(dtype).min], [7], [7], [-7]], dtype),
        "y": DIVISORS.astype(dtype),
    }
    constants = [numpy_helper.from_array(sent.pop("y"), "y")] if is_constant else []
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node(operator, ["x", "y"], ["z"], **attributes)
    shapes = {name: ["N", 1] for name in sent}
    proto = model_of([node], shapes, {"z": ["N", 1]}, constants, dtype=kind)
    changed = with_safe_quotients(OnnxModel(proto)).proto
    onnx.checker.check_model(changed, full_check=True)
    session = onnxruntime.InferenceSession(
        changed.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (made,) = session.run(None, sent)
    quotient = [[np.iinfo(dtype).min], [3], [-7], [3]]
    rest = [[0], [1], [0], [-1]]
    np.testing.assert_array_equal(made, quotient if operator == "Div" else rest)


@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_no_number_is_divided_by_zero_where_there_is_none(operator):
    node = helper.make_node(operator, ["x", "y"], ["z"])
    proto = model_of(
        [node], {"x": ["N", 1], "y": [1]}, {"z": ["N", 1]}, dtype=onnx.TensorProto.INT64
    )
    changed = with_safe_quotients(OnnxModel(proto)).proto.SerializeToString()
    session = onnxruntime.InferenceSession(changed, providers=["CPUExecutionProvider"])
    zero = np.zeros(1, np.int64)
    (answer,) = session.run(None, {"x": np.empty((0, 1), np.int64), "y": zero})
    assert answer.shape == (0, 1)
    with pytest.raises(Exception, match="by zero"):
        session.run(None, {"x": np.ones((1, 1), np.int64), "y": zero})


def test_other_divisions_stay():
    nodes = [
        helper.make_node("Constant", [], ["three"], value_int=3),
        helper.make_node("Div", ["x", "three"], ["z"]),
    ]
    whole = model_of(nodes, {"x": ["N", 1]}, {"z": ["N", 1]}, dtype=onnx.TensorProto.INT64)
    real = model_of(
        [helper.make_node("Div", ["x", "y"], ["z"])],
        {"x": ["N", 1], "y": ["N", 1]},
        {"z": ["N", 1]},
    )
    for proto in (whole, real):
        assert with_safe_quotients(OnnxModel(proto)).proto.graph == proto.graph
