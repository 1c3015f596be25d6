"""The next ONNX step unpacks the columns that one packs: names, dtypes and values stay."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from exporter.plan.pack_columns import pack_columns
from exporter.write.onnx.model import OnnxModel
from exporter.write.onnx.packed_tensor import pack_outputs, unpack_inputs
from workflow.expressions.onnx import OUTPUT_SUFFIX
from workflow.schema.dtypes import DTYPES
from workflow.wire.format import WireColumn

NUMBERS = [name for name, dtype in DTYPES.items() if dtype.kind != "string"]


def relay(columns, prefix="", suffix=""):
    """A model that hands each column on under another name."""

    def info(name, column):
        dtype = helper.np_dtype_to_tensor_dtype(np.dtype(DTYPES[column.dtype].numpy))
        return helper.make_tensor_value_info(name, dtype, ["N", 1])

    nodes = [helper.make_node("Identity", [prefix + c.name], [c.name + suffix]) for c in columns]
    graph = helper.make_graph(
        nodes,
        "relay",
        [info(prefix + c.name, c) for c in columns],
        [info(c.name + suffix, c) for c in columns],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def run(model, feed):
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_what_is_packed_arrives(dtype):
    columns = [WireColumn(name, dtype) for name in ("a", "packed_" + dtype, "b")]
    alone = WireColumn("alone", "int64" if dtype == "float32" else "float32")
    travelling, packing = pack_columns([*columns, alone], mixed=False)
    assert [tensor.dims[1] for tensor in travelling] == [3, 1]
    first = pack_outputs(relay([*columns, alone], "in_", OUTPUT_SUFFIX), packing)
    network = OnnxModel(relay([*columns, alone], suffix="_answer"))
    second = unpack_inputs(network, packing).proto
    sent = {
        f"in_{column.name}": np.array([[number], [0]]).astype(DTYPES[column.dtype].numpy)
        for number, column in enumerate([*columns, alone])
    }
    between = run(first, sent)
    assert between.keys() == {tensor.name + OUTPUT_SUFFIX for tensor in travelling}
    answer = run(second, {n.removesuffix(OUTPUT_SUFFIX): t for n, t in between.items()})
    for column in (*columns, alone):
        np.testing.assert_array_equal(answer[f"{column.name}_answer"], sent[f"in_{column.name}"])
        assert answer[f"{column.name}_answer"].dtype == DTYPES[column.dtype].numpy


def test_a_network_without_packed_inputs_stays_as_it_is():
    network = OnnxModel(relay([WireColumn("a", "int64")], suffix="_answer"))
    assert unpack_inputs(network, {}) is network
